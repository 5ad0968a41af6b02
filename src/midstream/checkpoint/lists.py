"""Lists of older files, so that a manifest stays short however long the job runs.

Result files whose results are all released, and dead letters, no longer change how a job goes on. Once there are many,
their names move into a list file that manifests name instead; lists of like size are merged into one, so that a
manifest names a logarithmic number of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple
from functools import lru_cache
from typing import Any

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.file_entries import (
    DeadLetterFile,
    File,
    FileLog,
    ListFile,
    ResultFile,
    SourceFile,
    Superseded,
)
from midstream.checkpoint.files import Files
from midstream.checkpoint.format import damaged, seal, unseal
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import LISTS, name_for

KIND = "list"
FORMAT_VERSION = 1

MOST_NAMED = 256
"""How many old files a manifest names itself before they move into a list."""

MOST_KEPT = 64
"""How many files that were merged a manifest names itself, while they are kept for readers."""

TOGETHER = 75.0
"""Files that were merged within so many seconds are in one list."""

TIER = 8
"""How many lists of like size are merged into one."""


def shorten(files: Files, manifest: Manifest, most: int | None = None) -> Manifest:
    """The manifest with old result and dead-letter files moved into lists, where they are more than `most`.

    To be called before the commit; it writes lists only when it moves something.
    """
    limit = MOST_NAMED if most is None else most
    outputs, sources = manifest.outputs, manifest.streams.files
    logs: Iterable[FileLog[Any]] = (*outputs.results.values(), outputs.dead_letters, *sources.values())
    if max(len(log.newer) for log in logs) <= limit and len(outputs.superseded) <= MOST_KEPT:
        return manifest

    def short(log: FileLog[File], done: Sequence[File]) -> FileLog[File]:
        if len(done) <= limit:
            return log
        gone = set(done)
        left = tuple(file for file in log.newer if file not in gone)
        return FileLog(left, _grown(files, manifest.batch_id, log.lists, done))

    results = {
        query: short(log, [file for file in log.newer if file.last_from < manifest.released.get(query, BEGINNING)])
        for query, log in outputs.results.items()
    }
    return manifest.with_streams(files={name: short(log, log.newer) for name, log in sources.items()}).with_outputs(
        results=results,
        dead_letters=short(outputs.dead_letters, outputs.dead_letters.newer),
        superseded=_superseded(files, manifest),
    )


def _superseded(files: Files, manifest: Manifest) -> Sequence[Superseded]:
    """The files that were merged, in a list of their own where they have become many."""
    single = [file for file in manifest.outputs.superseded if not file.is_list]
    if len(single) <= MOST_KEPT:
        return manifest.outputs.superseded
    path = name_for(LISTS, manifest.batch_id, slot=0, stage=0)
    newest = max(file.since for file in single)
    lists = [file for file in manifest.outputs.superseded if file.is_list]
    # A list goes with its newest file, so only files of about one time are put together.
    joined = [file for file in lists if file.since // TOGETHER == newest // TOGETHER]
    rows = [*(row for file in joined for row in read_list(files, file.path)), *((f.path, f.since) for f in single)]
    files.write_atomic(path, seal(KIND, FORMAT_VERSION, {"files": rows}), point="list", sync=False)
    return [*(file for file in lists if file not in joined), Superseded(path, newest)]


def results_of(files: Files, manifest: Manifest, query: str) -> Iterator[ResultFile]:
    """All result files of a query, oldest first."""
    return _all_of(files, manifest.outputs.results.get(query), ResultFile)


def sources_of(files: Files, manifest: Manifest, stream: str) -> Iterator[SourceFile]:
    """All files that were read of a stream's folder, oldest first."""
    return _all_of(files, manifest.streams.files.get(stream), SourceFile)


def dead_letters_of(files: Files, manifest: Manifest) -> Iterator[DeadLetterFile]:
    """All dead-letter files, oldest first."""
    return _all_of(files, manifest.outputs.dead_letters, DeadLetterFile)


def _all_of(files: Files, log: FileLog[File] | None, kind: type[File]) -> Iterator[File]:
    for one in () if log is None else log.lists:
        yield from (kind(*row) for row in read_list(files, one.path))
    yield from () if log is None else log.newer


def without(files: Files, log: FileLog[File], kind: type[File], paths: Collection[str]) -> FileLog[File]:
    """The files without some; a list of which none is left out stays."""
    kept, rest = [], list[File]()
    for one in log.lists:
        left = [row for row in read_list(files, one.path) if row[0] not in paths]
        if len(left) == one.files:
            kept.append(one)
        else:
            rest += (kind(*row) for row in left)
    rest += (file for file in log.newer if file.path not in paths)
    return FileLog(tuple(rest), tuple(kept))


def listed_in(files: Files, lists: Iterable[str]) -> set[str]:
    """All files that lists name."""
    return {row[0] for path in lists for row in read_list(files, path)}


@lru_cache(maxsize=64)
def read_list(files: Files, path: str) -> tuple[tuple[Any, ...], ...]:
    """The rows of a list, the path first in each; lists never change."""
    name = files.full(path)
    content = unseal(KIND, FORMAT_VERSION, files.read(path), name)
    try:
        return tuple(tuple(row) for row in content["files"])
    except (KeyError, TypeError) as error:
        raise damaged(name, f"{type(error).__name__}: {error}") from error


def _grown(files: Files, batch_id: int, lists: Sequence[ListFile], moved: Sequence[File]) -> tuple[ListFile, ...]:
    """The lists with one more, after merging the newest while there are many of like size."""
    rows: tuple[tuple[Any, ...], ...] = tuple(astuple(file) for file in moved)
    kept: list[ListFile] = list(lists)
    while len(kept) >= TIER - 1 and all(_size(a.files) <= _size(len(rows)) for a in kept[-(TIER - 1) :]):
        merged, kept = kept[-(TIER - 1) :], kept[: -(TIER - 1)]
        rows = tuple(row for named in merged for row in read_list(files, named.path)) + rows
    path = name_for(LISTS, batch_id, slot=0, stage=0)
    files.write_atomic(path, seal(KIND, FORMAT_VERSION, {"files": rows}), point="list", sync=False)
    return (*kept, ListFile(path, len(rows), sum(row[1] for row in rows)))


def _size(files: int) -> int:
    """The tier a list is in."""
    return files.bit_length() // TIER.bit_length()
