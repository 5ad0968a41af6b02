"""The streams of a job as this process reads them: what waits of each, what a batch takes, and what is done.

A folder is read file by file, a source from position to position. Each is one reading, and the batches that are made
of them do not ask which it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.file_entries import FilesRead, SourceFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import sources_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.query_windows import Spans
from midstream.connectors.connected import Connected, Span, first
from midstream.connectors.files.identity import come_since, outside
from midstream.connectors.files.source import KnownFiles, ReadFolder
from midstream.connectors.source import Position, Positions, Source
from midstream.errors import JobError, MidstreamError
from midstream.job.queries.backfill import OldRows, Rereading
from midstream.job.task.ingest import ticks_of
from midstream.operators.elements import Ticks

Parts: TypeAlias = Sequence[Any]
"""Files of a folder, or spans of a source: what is read as a whole."""

LAG_EVERY = 5.0
"""After how many seconds a source is asked again how many rows wait there."""

BYTES_OF_A_ROW = 100
"""What a row of a source is taken for, before it was read."""

READ = "#read"
"""Beside the partitions of a source that is read again: how many rows were, and how many have to be."""

LOOKING = 16
"""How many files that wait are looked at side by side: in object stores each takes a while."""

PartsByStream: TypeAlias = Mapping[str, Parts]


class FolderSource(ReadFolder, Protocol):
    """Files that are read once each."""

    def portion(self, files: Sequence[SourceFile]) -> Sequence[SourceFile]:
        """The files that a batch takes of some that wait."""

    def present(self, but: Collection[str] = ()) -> list[SourceFile]:
        """The files that are there, oldest first, without some that are known."""

    def read(self, files: Sequence[SourceFile]) -> tuple[pa.Table, list[SourceFile]]:
        """The rows of files, and the files as they were when they were read."""

    def times(self, file: SourceFile, column: str) -> pa.ChunkedArray | None:
        """Times of a file that waits, without reading all of it; None if they cannot be told."""


class Reading(Protocol):
    """A stream while it is read."""

    def waiting(self) -> Parts:
        """What is there and was not read yet."""

    def divided(self, parts: Parts) -> tuple[Parts, Parts]:
        """What a batch takes of parts that wait, and the rest."""

    def read(self, parts: Parts) -> tuple[pa.Table, Parts]:
        """The rows of parts, and the parts as they were when they were read."""

    def earliest(self, left: Parts, taken: Parts) -> int:
        """How early the rows of parts begin that a batch leaves, which takes others; in ticks, as far as is known."""

    def done(self, parts: Parts) -> None:
        """Remembers parts whose batch is committed."""


class FolderReading:
    """A folder: files that were read are known by their paths."""

    def __init__(self, declaration: StreamDeclaration, source: FolderSource, known: Iterable[SourceFile]) -> None:
        self.declaration, self.source = declaration, source
        read = list(known)
        self._read = {file.path for file in read}
        self._elsewhere = outside(source.place, read)
        """Files that were read where they lie, outside of the folder: they may come into it later."""
        self._begins: dict[str, int] = {}
        """How early the rows of files begin that had to wait, each of which is looked at once."""

    def waiting(self) -> Parts:
        found = self.source.present(self._read)
        came = come_since(self.source.place, self._elsewhere, found)
        self._read |= came
        return [file for file in found if file.path not in came]

    def divided(self, parts: Parts) -> tuple[Parts, Parts]:
        taken = self.source.portion(parts)
        return taken, parts[len(taken) :]

    def read(self, parts: Parts) -> tuple[pa.Table, Parts]:
        return self.source.read(parts)

    def earliest(self, left: Parts, taken: Parts) -> int:
        if self.declaration.timestamps != "external":
            return INFINITY
        new = [file for file in left if file.path not in self._begins]
        with ThreadPoolExecutor(LOOKING) as others:
            begins = others.map(self._begin, new) if len(new) > LOOKING else map(self._begin, new)
            self._begins |= zip((file.path for file in new), begins, strict=True)
        return min((self._begins[file.path] for file in left), default=INFINITY)

    def _begin(self, file: SourceFile) -> int:
        times = self.source.times(file, self.declaration.time)
        ticks = np.empty(0, np.int64) if times is None else ticks_of(times, self.declaration.name)[0]
        return int(ticks.min(initial=INFINITY))

    def done(self, parts: Parts) -> None:
        self._read.update(file.path for file in parts)

    def old_rows(self, files: Files, manifest: Manifest, needed: Callable[[int], bool]) -> OldRows:
        """The files from the first on that may have rows that are needed; all of them must still be there."""
        require_own_times(self.declaration)
        read = self._were_read(files, manifest)
        skipped = (i for i, file in enumerate(read) if file.latest is None or needed(file.latest))
        first, present = next(skipped, len(read)), {file.path: file.size for file in self.source.present()}
        for file in read[first:]:
            if file.size >= 0 and present.get(file.path) != file.size:
                what = "has changed" if file.path in present else "is gone"
                raise JobError(f"the file {file.path} of stream {self.declaration.name}, which was read, {what}")
        size, whole = (sum(max(1, file.size) for file in some) for some in (read[first:], read))
        rows = manifest.streams.rows.get(self.declaration.name, 0) * size // max(1, whole)
        return OldRows({"": (first, len(read))} if read[first:] else {}, rows, size)

    def again(
        self, files: Files, manifest: Manifest, spans: Spans, rows: int, needed: Callable[[int], bool]
    ) -> tuple[list[pa.Table], Spans]:
        """Whole files, the newest first: of the others some may not be needed any more when it is their turn."""
        first, end = spans[""]
        tables, read = list[pa.Table](), self._were_read(files, manifest)
        while first < end and sum(table.num_rows for table in tables) < rows:
            end -= 1
            latest = read[end].latest
            if latest is not None and not needed(latest):
                return tables, {}
            tables.append(self._whole(read[end]))
        return tables, {"": (first, end)} if first < end else {}

    def _whole(self, file: SourceFile) -> pa.Table:
        """The rows of a file that was read, without those that did not count because of their times."""
        try:
            table, (now,) = self.source.read([file])
        except (OSError, MidstreamError) as error:
            told = error.message if isinstance(error, MidstreamError) else str(error)
            name = self.declaration.name
            raise JobError(f"the file {file.path} of stream {name} cannot be read again: {told}") from None
        if file.size >= 0 and now.size != file.size:
            raise JobError(f"the file {file.path} of stream {self.declaration.name} has changed since it was read")
        ticks, _ = ticks_of(table.column(self.declaration.time), self.declaration.name)
        first, last = (BEGINNING if file.register is None else file.register), file.latest
        return table.filter(pa.array((first <= ticks) & (ticks <= (INFINITY if last is None else last))))

    def _were_read(self, files: Files, manifest: Manifest) -> Sequence[SourceFile]:
        name = self.declaration.name
        return self.source.known(manifest.streams.folders.get(name, ""), list(sources_of(files, manifest, name)))


class SourceReading:
    """A source: what was read are positions, and partitions are read at the same pace.

    Rows of a partition go on from about the latest time that it has had. So a partition that has more rows than a batch
    takes holds the stream's register there, however far others are.
    """

    def __init__(self, declaration: StreamDeclaration, source: Connected, manifest: Manifest | None) -> None:
        self.declaration, self.source = declaration, source
        self.positions: dict[str, Position] = dict(source.starts(manifest))
        self.place = source.place()
        self._latest: dict[str, int] = {}
        self._lag: tuple[float, int | None] = (-LAG_EVERY, None)
        """When the source was last asked how many rows wait, and its answer."""
        self._asking = threading.Lock()
        """Rows are read ahead by another thread."""

    def waiting(self) -> Parts:
        with self._asking:
            self.positions = dict(self.source.with_new(self.positions))
            return self.source.waiting(self.positions)

    def divided(self, parts: Parts) -> tuple[Parts, Parts]:
        with self._asking:
            return self.source.divided(list(parts))

    def read(self, parts: Parts) -> tuple[pa.Table, Parts]:
        with self._asking:
            tables = self.source.tables(parts)
        found = [replace(span, latest=self._latest_of(rows)) for span, rows in zip(parts, tables, strict=True)]
        return pa.concat_tables(tables), found

    def _ticks(self, rows: pa.Table) -> Ticks:
        """The times that rows bring."""
        ticks, valid = ticks_of(rows.column(self.declaration.time), self.declaration.name)
        return ticks if valid is None else ticks[valid]

    def _latest_of(self, rows: pa.Table) -> int | None:
        if self.declaration.timestamps != "external" or not rows.num_rows:
            return None
        return int(self._ticks(rows).max(initial=BEGINNING))

    def earliest(self, left: Parts, taken: Parts) -> int:
        if self.declaration.timestamps != "external":
            return INFINITY
        latest = self._with_latest(taken)
        reached = (latest.get(span.partition, BEGINNING) - self.declaration.lateness for span in left)
        return max(BEGINNING, min(reached, default=INFINITY))

    def earliest_left(self, before: Positions, after: Positions) -> int:
        """How early the rows begin that a batch leaves, which others read: as the first of them say."""
        if self.declaration.timestamps != "external" or len(after) < 2:
            return INFINITY
        with self._asking:
            rows = [self.source.first_rows(span) for span in self.source.left(before, after)]
        begins = (int(self._ticks(some).min(initial=INFINITY)) for some in rows)
        return max(BEGINNING, min(begins, default=INFINITY) - self.declaration.lateness)

    def done(self, parts: Parts) -> None:
        self._latest = self._with_latest(parts)
        self.positions |= {span.partition: span.end for span in parts}
        with self._asking:
            self.source.asked(lambda: self.source.source.commit(self.positions))

    def lag(self, positions: Positions) -> int | None:
        """How many rows wait behind positions; the source is asked now and then."""
        if time.monotonic() - self._lag[0] > LAG_EVERY:
            with self._asking:
                found = [self.source.lag(part, at) for part, at in positions.items()]
            self._lag = time.monotonic(), None if None in found else sum(filter(None, found))
        return self._lag[1]

    def close(self) -> None:
        """Ends the connections of the source."""
        with self._asking:
            self.source.source.close()

    def old_rows(self, files: Files, manifest: Manifest, needed: Callable[[int], bool]) -> OldRows:
        """All that the source had given; it is seen at the end whether these are as many rows as were read."""
        require_own_times(self.declaration)
        name, taken = self.declaration.name, manifest.streams.rows.get(self.declaration.name, 0)
        if not self.source.source.replays or type(self.source.source).commit is not Source.commit:
            raise JobError(f"the source of stream {name} may have forgotten rows that were read")
        ends = manifest.streams.positions.get(name, {})
        with self._asking:
            starts = self.source.with_new({})
            spans = {part: (starts[part], end) for part, end in ends.items() if starts.get(part, end) != end}
            behind = [
                (self.source.lag(part, start), self.source.lag(part, end)) for part, (start, end) in spans.items()
            ]
        known = all(None not in both for both in behind)
        there = sum((start or 0) - (end or 0) for start, end in behind) if known else taken
        if there < taken:
            raise JobError(f"the source of stream {name} has {there:,} of {taken:,} rows that were read")
        return OldRows({READ: (0, taken), **spans} if spans else {}, there, there * BYTES_OF_A_ROW)

    def again(
        self, files: Files, manifest: Manifest, spans: Spans, rows: int, needed: Callable[[int], bool]
    ) -> tuple[list[pa.Table], Spans]:
        """Rows of one partition after the other."""
        rest, (count, taken) = dict(spans), spans[READ]
        part = next(part for part in rest if part != READ)
        start, end = rest.pop(part)
        with self._asking:
            upto = first(self.source.end(part, start, rows), end)
            table = self.source.rows(Span(part, start, upto))
        rest |= {READ: (count + table.num_rows, taken)} | ({part: (upto, end)} if start < upto < end else {})
        if len(rest) > 1:
            return [table], rest
        if count + table.num_rows < taken:
            name = self.declaration.name
            there = count + table.num_rows
            raise JobError(f"the source of stream {name} has {there:,} of {taken:,} rows that were read")
        return [table], {}

    def _with_latest(self, taken: Iterable[Span]) -> dict[str, int]:
        seen = {span.partition: span.latest for span in taken if span.latest is not None}
        return self._latest | {part: max(ticks, self._latest.get(part, ticks)) for part, ticks in seen.items()}

    def after(self, parts: Iterable[Span]) -> Mapping[str, Position]:
        """Where it is once some parts are done."""
        return self.positions | {span.partition: span.end for span in parts}


def require_own_times(declaration: StreamDeclaration) -> None:
    """Refuses to read a stream again whose rows have the times at which they came: the source does not have them."""
    if declaration.timestamps != "external":
        raise JobError(f"rows of stream {declaration.name} have the times at which they came, which no source has")


class Readings:
    """All streams that are read, and what manifests say of them."""

    def __init__(self) -> None:
        self._folders: dict[str, FolderReading] = {}
        self._sources: dict[str, SourceReading] = {}
        self._known = KnownFiles({}, {})
        """What the checkpoint knew of files when reading began."""

    def begin(
        self,
        files: Files,
        manifest: Manifest | None,
        streams: Iterable[tuple[StreamDeclaration, FolderSource | Connected]],
    ) -> None:
        """Goes on after a manifest; files that have changed, and sources that have lost rows, are refused."""
        opened = {declaration.name: (declaration, source) for declaration, source in streams}
        folders = {n: (d, source) for n, (d, source) in opened.items() if not isinstance(source, Connected)}
        self._known = KnownFiles.of(files, manifest, {name: source for name, (_, source) in folders.items()})
        self._folders = {n: FolderReading(d, source, self._known.read[n]) for n, (d, source) in folders.items()}
        self._sources = {
            name: SourceReading(declaration, source, manifest)
            for name, (declaration, source) in opened.items()
            if isinstance(source, Connected)
        }

    def __getitem__(self, name: str) -> Reading:
        return self._folders.get(name) or self._sources[name]

    def rereading(self, name: str) -> Rereading | None:
        """A stream as it can be read again, if it is read from anywhere."""
        return self._folders.get(name) or self._sources.get(name)

    def waiting(self) -> PartsByStream:
        """What was not read yet, by stream."""
        return {name: self[name].waiting() for name in (*self._folders, *self._sources)}

    def divided(self, waiting: PartsByStream) -> tuple[PartsByStream, PartsByStream]:
        """What a batch takes of parts that wait, and the rest; streams of which nothing is there are left out."""
        parts = {name: self[name].divided(some) for name, some in waiting.items() if some}
        return {name: now for name, (now, _) in parts.items()}, {
            name: rest for name, (_, rest) in parts.items() if rest
        }

    def earliest(self, left: PartsByStream, taken: PartsByStream) -> Mapping[str, int]:
        """How early the rows begin that a batch leaves, by stream."""
        return {name: self[name].earliest(parts, taken[name]) for name, parts in left.items()}

    def noted(self, taken: PartsByStream, left: Mapping[str, int]) -> FilesRead:
        """What the manifest of a batch that takes parts has to say; `left` is how early those begin that it leaves."""
        files, known = {name: taken[name] for name in self._folders if name in taken}, self._known
        places = {name: reading.place for name, reading in self._sources.items()}
        positions = {name: reading.after(taken.get(name, ())) for name, reading in self._sources.items()}
        waiting = {name: reading.lag(positions[name]) for name, reading in self._sources.items()}
        lags = {name: rows for name, rows in waiting.items() if rows is not None}
        return FilesRead(files, {**known.folders, **places}, known.moved, left, positions, lags)

    def close(self) -> None:
        """Ends the connections of sources."""
        for reading in self._sources.values():
            reading.close()

    def done(self, taken: PartsByStream) -> None:
        """Remembers the parts of a batch that is committed."""
        for name, parts in taken.items():
            self[name].done(parts)
