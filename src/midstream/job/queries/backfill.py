"""Rows that are read again from the source of a stream, for a query whose windows reach further back than others keep.

What a source had given before a batch never changes, and the manifest says how far that was. So a source keeps rows as
queries keep them in segments: those between the first position whose rows can still be valid and the one at which a
query began are what its window lacks, each of them once. Before a batch some are read again and put among the rows that
the query has yet to be given (`filling.py`); the manifest says what is unread. Tasks cannot tell where rows are from.

Rows that could not be used when they came are left out again, and of files those that came too late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from midstream.algebra.declarations import ARRIVAL
from midstream.algebra.physical import SourceNode
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import STATE, lane_name, name_for
from midstream.checkpoint.packs import SegmentEntry, write_pack
from midstream.checkpoint.query_windows import FilledWindow, Spans, WindowFilling
from midstream.distribution.fragments import STAY, Route
from midstream.errors import JobError, MidstreamError
from midstream.job.queries.completeness import end_of
from midstream.job.queries.derived_windows import columns_read, is_derivable
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.ingest import in_range, ticks_of
from midstream.job.task.lanes import KEPT
from midstream.operators.elements import Elements, Ticks
from midstream.operators.slices import grid_floor
from midstream.operators.state.segment import numbered_segment
from midstream.operators.vectors import distinct

SOURCE = "#source"
"""The state of which rows are that were read again."""

BAD = "#bad"
"""The column in which rows that cannot be read say why."""


@dataclass(frozen=True, slots=True)
class OldRows:
    """What a source still has of the rows that were read, and about how many rows and bytes these are."""

    spans: Spans
    rows: int
    bytes: int


class Rereading(Protocol):
    """A stream whose source can be read again; both fail by name if rows are gone that were read."""

    def old_rows(self, files: Files, manifest: Manifest, needed: Callable[[int], bool]) -> OldRows:
        """What was read of the stream by a manifest, from the first row on whose time may be needed."""

    def again(
        self, files: Files, manifest: Manifest, spans: Spans, rows: int, needed: Callable[[int], bool]
    ) -> tuple[Sequence[pa.Table], Spans]:
        """About so many rows of what has yet to be read again, and the rest, as far as it is needed."""


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Read rows of a stream again, for a window of a query; the answer is their segments and what is left, or an error.

    Only rows are kept that are still valid at the frontier.
    """

    batch_id: int
    before: Manifest
    source: SourceNode
    window: FilledWindow
    rows: int
    frontier: int

    def carried_out(self, files: Files, stream: Rereading | None) -> tuple[list[SegmentEntry], Spans] | MidstreamError:
        """Reads them, and writes them into a file of the batch."""
        try:
            known, needed = _open(self.source, stream), partial(_is_needed, self.source, self.frontier)
            tables, rest = known.again(files, self.before, self.window.unread, self.rows, needed)
            elements = [some for table in tables for some in self._still_valid(table)]
        except MidstreamError as error:
            return error
        segments = [numbered_segment(some, 0, 0) for some in elements]
        path = name_for(STATE, self.batch_id, 0, 0)
        return write_pack(files, path, {(SOURCE, ()): segments}), rest

    def _still_valid(self, table: pa.Table) -> Sequence[Elements]:
        source, time = self.source, self.source.stream.time
        names = sorted({*self.window.columns.values(), *(self.window.key or ())})
        types = {field.name: field.type for field in source.stream.columns}
        rows = table if BAD not in table.column_names else table.filter(table.column(BAD).is_null())
        found = []
        for batch in rows.combine_chunks().to_batches():
            ticks, valid = ticks_of(batch.column(time), source.stream.name)
            usable = in_range(ticks) if valid is None else in_range(ticks) & valid
            alive = usable & (ticks >= _first_needed(source, distinct(ticks[usable]), self.frontier))
            columns = [batch.column(name).cast(types[name]) for name in names]
            payload = pa.RecordBatch.from_arrays(columns, names=names) if names else batch.select([])
            elements = Elements(payload, ticks, ticks + 1).where(alive)
            found += [elements] if len(elements) else []
        return found


def _first_needed(source: SourceNode, ticks: Ticks, frontier: int) -> int:
    """The first of some times, in order, at which a row is valid after a frontier; later than all if there is none."""
    if source.longest is None or not len(ticks):
        return BEGINNING
    place = bisect_right(ticks, frontier, key=lambda tick: end_of(source, int(tick)))
    return int(ticks[place]) if place < len(ticks) else int(ticks[-1]) + 1


def _open(source: SourceNode, stream: Rereading | None) -> Rereading:
    if stream is None:
        raise JobError(f"stream {source.stream.name} has no source that can be read again")
    return stream


Streams = Callable[[str], Rereading | None]
"""The streams by name, as they can be read again."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """Which windows of a query can be filled from sources, and why others cannot; by alias."""

    windows: Mapping[str, tuple[FilledWindow, OldRows]]
    why: Mapping[str, str]

    @staticmethod
    def of(query: RunningQuery, files: Files, before: Manifest, streams: Streams) -> Backfill:
        """What can be had for a query that begins after a manifest."""
        found: dict[str, tuple[FilledWindow, OldRows]] = {}
        why: dict[str, str] = {}
        frontier = grid_floor(query.reached(before.streams.registers), query.grid)
        for source in query.sources if is_derivable(query) else ():
            alias, route = source.stream.alias, query.staged.routes.get(source.stream.name, STAY)
            try:
                _require_rereadable(source, route)
                stream = _open(source, streams(source.stream.name))
                old = stream.old_rows(files, before, partial(_is_needed, source, frontier))
            except MidstreamError as error:
                why[alias] = error.message
            else:
                found[alias] = _window(source, route, old.spans), old
        return Backfill(found, why)


def _window(source: SourceNode, route: Route, spans: Spans) -> FilledWindow:
    prefix = f"{source.stream.alias}."
    plain = {name: name.removeprefix(prefix) for name in source.schema.names}
    columns = {name: column for name, column in plain.items() if column != source.stream.time}
    return FilledWindow(
        source.stream.alias, source.stream.name, columns, False, tuple(route.key or ()), route.everywhere, spans
    )


def _is_needed(source: SourceNode, frontier: int, tick: int) -> bool:
    return source.longest is None or end_of(source, tick) > frontier


def _require_rereadable(source: SourceNode, route: Route) -> None:
    stream = source.stream
    if ARRIVAL in columns_read(source):
        raise JobError(f"the order in which rows of stream {stream.name} came is not known any more")
    if route.slots:
        raise JobError(f"rows of stream {stream.name} come in at a site")


def filling_of(before: Manifest, query: str) -> WindowFilling | None:
    """How the windows of a query are being filled, if they are."""
    sharing = before.account(query).sharing
    return sharing.filling if sharing is not None and before.fills(query) else None


def due(before: Manifest | None, queries: Mapping[str, RunningQuery]) -> dict[str, WindowFilling]:
    """The queries for which rows are read again before the next batch: those that have been given all that was."""
    known = {} if before is None else {name: filling_of(before, name) for name in queries}
    return {
        name: filling
        for name, filling in known.items()
        if before is not None and filling is not None and filling.unread and not _kept(before, name)
    }


def _kept(before: Manifest, query: str) -> bool:
    return bool(before.segments.get(lane_name(query, KEPT)))


def with_read(
    before: Manifest, query: str, filling: WindowFilling, number: int, read: tuple[list[SegmentEntry], Spans]
) -> tuple[Manifest, WindowFilling]:
    """The manifest that says that a query has yet to be given rows that were read again for one of its windows."""
    entries, rest = read
    windows = list(filling.windows)
    windows[number] = replace(windows[number], unread=rest)
    filling = replace(filling, windows=tuple(windows))
    sharing = before.account(query).sharing
    assert sharing is not None
    lane = lane_name(query, KEPT)
    kept = {**before.segments.get(lane, {}), **({number: {0: entries}} if entries else {})}
    segments = {**before.segments, **({lane: kept} if kept else {})}
    return replace(before.with_account(query, sharing=replace(sharing, filling=filling)), segments=segments), filling
