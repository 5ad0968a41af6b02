"""Dead letters go back: as one file, in the stream's own format, into the folder that a job file names for the stream.

The job that reads the folder takes them as what has just arrived, by its declarations of now. What it is known to bury
again is left out: rows that are still late, or have no time, where the job is the one that buried them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.replayed import Letter, ReplayRecord, begin, end, left, letters_in, replays_of
from midstream.connectors.files.bad_rows import BAD
from midstream.connectors.files.source import FileSource
from midstream.errors import InputError, JobError
from midstream.inputs import NamedSource
from midstream.inputs.files import write_table
from midstream.inputs.json_rows import rows_of_texts
from midstream.interface.jobs.job_file import JobFile, StreamSection
from midstream.job.task.ingest import ticks_of

_NO_ROWS = {
    "query ": "other queries have had them",
    "cannot be read": "they are lines of a file that have to be mended there",
}
"""How reasons begin of letters that are no rows for a stream, and why these stay."""

SUFFIXES = {"parquet": "parquet", "csv": "csv", "json": "jsonl", "arrow": "arrow"}


@dataclass(frozen=True, slots=True)
class ReplayedRows:
    """What became of a stream's letters: how many went to a `file`, and how many stay, by the reason."""

    stream: str
    file: str | None
    replayed: int
    kept: dict[str, int]


def letters_left(job: StoredJob) -> list[Letter]:
    """The dead letters of a job that were not replayed, oldest batch first."""
    letters = sorted(letters_in(job.dead_letters()), key=lambda letter: letter.batch_id)
    return left(letters, replays_of(job.store.files))


def replay(job: StoredJob, letters: Sequence[Letter], into: JobFile) -> list[ReplayedRows]:
    """Writes letters into the folders of a job's streams, each once; gives what became of them, by stream."""
    files = job.store.files
    entries = {entry.name: entry for entry in into.streams}
    for unfinished in (record for record in replays_of(files) if not record.done):
        _finish(job, unfinished, entries)
    found = []
    for stream in dict.fromkeys(letter.stream for letter in letters):
        own = left([letter for letter in letters if letter.stream == stream], replays_of(files))
        found.append(_replay_stream(job, stream, own, _entry(entries, stream), _is_own(job, into)))
    return found


def _replay_stream(
    job: StoredJob, stream: str, letters: Sequence[Letter], entry: StreamSection, own: bool
) -> ReplayedRows:
    source = _source(entry)
    chosen, kept = _useful(job, letters, entry, source) if own else _of_the_stream(letters)
    if not chosen:
        return ReplayedRows(stream, None, 0, kept)
    digest = hashlib.blake2b("".join(letter.digest for letter in chosen).encode(), digest_size=8).hexdigest()
    name = f"replayed-{digest}.{SUFFIXES[entry.format]}"
    if not fnmatchcase(name, source.contents.options.get("pathGlobFilter", "*")):
        pattern = source.contents.options["pathGlobFilter"]
        raise InputError(f"stream {stream} would not read {name}: its pathGlobFilter is {pattern}")
    target = source.folder / name
    draft = _draft(source, target, chosen)
    try:
        record = begin(job.store.files, replays_of(job.store.files), str(target), chosen)
        if record is None:
            raise JobError(f"somebody else replays letters of {job.checkpoint} just now", hint="run the command again")
        _put_in_place(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    end(job.store.files, record)
    return ReplayedRows(stream, str(target), len(chosen), kept)


def _finish(job: StoredJob, record: ReplayRecord, entries: dict[str, StreamSection]) -> None:
    """Writes the file of a replay that was interrupted; a source reads it once, whoever wrote it."""
    target = Path(record.file)
    source = _source(_entry(entries, record.letters[0].stream))
    if target.parent != source.folder:
        raise JobError(
            f"a replay into {target} was interrupted", hint="finish it first, with the job file that reads this folder"
        )
    if not target.exists():
        _put_in_place(_draft(source, target, record.letters), target)
    end(job.store.files, record)


def _of_the_stream(letters: Sequence[Letter]) -> tuple[list[Letter], dict[str, int]]:
    """The letters that are rows which no query has had, and how many stay, by the reason."""
    chosen: list[Letter] = []
    kept: dict[str, int] = {}
    for letter in letters:
        why = next((said for start, said in _NO_ROWS.items() if letter.reason.startswith(start)), None)
        if why is None:
            chosen.append(letter)
        else:
            kept[why] = kept.get(why, 0) + 1
    return chosen, kept


def _useful(
    job: StoredJob, letters: Sequence[Letter], entry: StreamSection, source: FileSource
) -> tuple[list[Letter], dict[str, int]]:
    """The letters that their own job can use by now, and how many stay, by the reason."""
    chosen, kept = _of_the_stream(letters)
    if entry.settings.timestamps != "external" or not chosen:
        return chosen, kept
    times = rows_of_texts(
        [letter.row for letter in chosen], pa.schema([source.contents.schema.field(entry.settings.time)])
    )
    ticks, valid = ticks_of(times.column(0), entry.name)
    valid = np.ones(len(ticks), bool) if valid is None else valid
    late = valid & (ticks < job.manifest.streams.registers.get(entry.name, BEGINNING))
    if late.any():
        kept["still late; a job with a checkpoint of its own takes them"] = int(late.sum())
    if not valid.all():
        kept["without a time"] = int((~valid).sum())
    return [letter for letter, usable in zip(chosen, valid & ~late, strict=True) if usable], kept


def _draft(source: FileSource, target: Path, letters: Sequence[Letter]) -> Path:
    """The rows of letters in a file that readers pass over; refused unless the source reads the very same rows."""
    table = rows_of_texts([letter.row for letter in letters], source.contents.schema)
    draft = target.with_name(f"_{target.name}.{os.getpid()}")
    written = False
    try:
        _write(table, draft.with_suffix(target.suffix), source)
        os.replace(draft.with_suffix(target.suffix), draft)
        read = source.contents.of_path(draft)
        if BAD in read.column_names and read.column(BAD).null_count == read.num_rows:
            read = read.drop_columns([BAD])
        written = read.equals(table)
    finally:
        if not written:
            draft.unlink(missing_ok=True)
    if not written:
        raise InputError(
            f"rows of stream {source.name} cannot be written as {source.contents.format} so that they stay the same",
            hint="a stream of Parquet files can take any value",
        )
    return draft


def _put_in_place(draft: Path, target: Path) -> None:
    """Gives a file the name by which it is read; from now on a source may take it."""
    os.replace(draft, target)


def _write(table: pa.Table, path: Path, source: FileSource) -> None:
    """Rows in a source's format."""
    if source.contents.format != "csv":
        write_table(table, path)
        return
    header = source.contents.options.get("header", "false").lower() == "true"
    delimiter = source.contents.options.get("sep", source.contents.options.get("delimiter", ","))
    pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(include_header=header, delimiter=delimiter))


def _source(entry: StreamSection) -> FileSource:
    """The folder of a stream into which rows can be written as they were."""
    if entry.columns:
        raise InputError(
            f"rows of stream {entry.name} cannot be replayed: its columns are computed from those of its files",
            hint="midstream dead --json prints the rows",
        )
    if entry.format not in SUFFIXES:
        raise InputError(
            f"rows of stream {entry.name} cannot be replayed: no files of {entry.format} are written here",
            hint="midstream dead --json prints the rows",
        )
    return FileSource.opened(
        NamedSource(entry.name, entry.format, path=entry.path, schema=entry.schema, options=dict(entry.options))
    )


def _entry(entries: dict[str, StreamSection], stream: str) -> StreamSection:
    if stream not in entries:
        raise JobError(
            f"the job file has no stream {stream}",
            detail=f"its streams are {', '.join(entries)}",
            hint="choose the letters of one stream with --stream",
        )
    return entries[stream]


def _is_own(job: StoredJob, into: JobFile) -> bool:
    """Whether a job file is that of the job whose letters these are."""
    return os.path.realpath(into.checkpoint) == os.path.realpath(job.checkpoint) or into.checkpoint == job.checkpoint
