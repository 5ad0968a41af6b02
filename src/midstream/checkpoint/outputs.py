"""Files of results and of dead letters: each has the checksum that its manifest gives it, or is an error.

A reader verifies each file, once in a process.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import pyarrow as pa

from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.file_entries import DeadLetterFile, ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import dead_letters_of, results_of
from midstream.checkpoint.manifest import Manifest
from midstream.errors import JobError

Output = ResultFile | DeadLetterFile

_RESTORE = "restore it from a copy of the checkpoint, or give it up: midstream repair CHECKPOINT --give-up"


def checksum_of(content: pa.Buffer) -> int:
    """What a manifest says of a file's content."""
    return zlib.crc32(content)


def open_output(files: Files, output: Output) -> pa.Buffer:
    """The content of a file, mapped."""
    try:
        mapped = files.mapped(output.path)
    except MissingFile as error:
        raise _missing(files, [output]) from error
    if output.checksum is not None and 0 not in mapped.verified:
        if checksum_of(mapped.content) != output.checksum:
            raise JobError(
                f"{_kind(output)} {files.full(output.path)} is damaged",
                detail=f"its checksum does not agree; it holds {output.rows:,} rows of batch {output.batch_id}",
                hint=_RESTORE,
            )
        mapped.verified.add(0)
    return mapped.content


def outputs_of(files: Files, manifest: Manifest) -> Iterator[Output]:
    """All files of results and dead letters, each once however many queries share it."""
    seen: set[str] = set()
    named: list[Iterable[Output]] = [
        *(results_of(files, manifest, query) for query in {**manifest.outputs.results, **manifest.outputs.listed}),
        dead_letters_of(files, manifest),
    ]
    for outputs in named:
        for output in outputs:
            if output.path not in seen:
                seen.add(output.path)
                yield output


def require_present(files: Files, outputs: Iterable[Output]) -> None:
    """Fails by name if files are not there; their content is not looked at."""
    wanted = list(outputs)
    folders = {output.path.rpartition("/")[0] for output in wanted}
    present = {path for folder in folders for path in files.list(folder)}
    missing = [output for output in wanted if output.path not in present]
    if missing:
        raise _missing(files, missing)


def _missing(files: Files, missing: list[Output]) -> MissingFile:
    first, more = missing[0], len(missing) - 1
    return MissingFile(
        f"{_kind(first)} {files.full(first.path)} is missing" + (f", and {more} more" if more else ""),
        detail=f"{sum(output.rows for output in missing):,} rows were written there; nothing else has them",
        hint=_RESTORE,
    )


def _kind(output: Output) -> str:
    return "the result file" if isinstance(output, ResultFile) else "the dead-letter file"
