"""From a slot's rows to elements: what has no usable time or comes too late is set aside, the rest is put in order.

`StreamReading` says which rows of each stream count in a slot, and what is noted of them; `Intake` takes them in.
A shuffle delivers rows in any order, so they are sorted by time and then by all columns before anything looks at them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.declarations import ARRIVAL, StreamDeclaration
from midstream.algebra.time import BEGINNING, FARTHEST
from midstream.checkpoint.outputs import DEAD_LETTER_COLUMNS
from midstream.checkpoint.process import this_process
from midstream.connectors.files.bad_rows import BAD, BadRow, readable
from midstream.inputs.json_values import json_texts
from midstream.job.task.exchange import GROUP, Addressing, Layout
from midstream.job.task.in_place import Copy
from midstream.job.task.ingest import OUT_OF_RANGE, TOO_FAR_AHEAD, Reach, in_range, merged, spans_of, ticks_of
from midstream.job.task.memory import ParquetSpool
from midstream.job.task.reports import Report, SampleRequest, add_samples, sampled
from midstream.job.task.sorted_runs import Accepted
from midstream.operators.elements import Mask, Ticks
from midstream.operators.ordering import total_order
from midstream.operators.vectors import column_of, gather_rows

BURIED_AT_ONCE = 1_000
"""How many rows become texts at a time."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Rows as they came, with the order in which those that were `accepted` have only some of their columns."""

    rows: pa.RecordBatch
    order: npt.NDArray[np.intp] | None
    accepted: pa.RecordBatch


@dataclass(slots=True)
class Intake:
    """Takes in the rows of streams for one slot and batch, and keeps account of them."""

    batch_id: int
    report: Report
    dead: ParquetSpool
    discards: bool = False
    """Whether nobody asks for the account, because another slot gives it."""
    keeps_whole: bool = False
    """Whether queries may set rows aside later, which are to be buried with all columns that they came with."""
    whole: dict[str, Whole] = field(default_factory=dict)
    """The usable rows of streams with all columns as they came."""
    common: dict[object, Any] | None = None
    """What tasks find out about rows that others take too, if there are others."""

    def unaccounted(self) -> Intake:
        """Takes in copies of rows that another slot accounts for."""
        return Intake(self.batch_id, Report(self.report.stage, self.report.slot), self.dead, True)

    def accept(
        self,
        declaration: StreamDeclaration,
        rows: pa.RecordBatch,
        register: int,
        reach: Reach,
        columns: Sequence[str] | None = None,
    ) -> tuple[pa.RecordBatch, Ticks]:
        """The usable rows of a stream, in order, with their ticks; of their columns only some, unless it is None.

        The others are buried with all columns that they came with.
        """
        name = declaration.name
        self.report.streams.rows[name] = self.report.streams.rows.get(name, 0) + rows.num_rows
        rows = self._readable(name, rows)
        ticks, valid = ticks_of(rows.column(declaration.time), name)
        if valid is not None:
            self._bury(name, rows, ~valid, "null time", self.report.streams.unusable)
            rows, ticks = _where(rows, ticks, valid)
        if declaration.timestamps != "external":
            rows, ticks = restamped(declaration, rows, ticks, max(register, reach.latest))
        else:
            rows, ticks = self._within(name, rows, ticks, reach)
        if len(ticks) and (earliest := int(ticks.min())) < register:
            late = ticks < register
            self._bury(name, rows, late, "late", self.report.streams.late)
            self.report.streams.late_by[name] = max(self.report.streams.late_by.get(name, 0), register - earliest)
            rows, ticks = _where(rows, ticks, ~late)
        if len(ticks):
            self.report.streams.latest[name] = max(self.report.streams.latest.get(name, BEGINNING), int(ticks.max()))
        if columns is not None and ARRIVAL in columns and ARRIVAL not in rows.schema.names:
            # Within a batch a shuffle has lost the order; all rows of a batch come after those of the batches before.
            rows = rows.add_column(0, ARRIVAL, pa.array(np.full(rows.num_rows, self.batch_id << 32)))
        chosen = rows if columns is None else rows.select(columns)
        nulls = self.report.streams.nulls.setdefault(name, [])
        nulls += [f.name for f, values in zip(chosen.schema, chosen.columns, strict=True) if values.null_count]
        order = _order(chosen, ticks)
        accepted, ticks = _arranged(chosen, ticks, order)
        if self.keeps_whole:
            self.whole[name] = Whole(rows, order, accepted)
        return accepted, ticks

    def _readable(self, name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that could be read, of streams that have others as well; these are buried with what is known."""
        if BAD not in rows.schema.names:
            return rows
        bad, rows = rows.column(BAD), rows.drop_columns([BAD])
        if bad.null_count == len(bad):
            return rows
        found = readable([BadRow.of_text(text) for text in bad.drop_null().to_pylist()])
        self.report.streams.unusable[name] = self.report.streams.unusable.get(name, 0) + len(found)
        for start in range(0, len(found), BURIED_AT_ONCE):
            some = found[start : start + BURIED_AT_ONCE]
            self._write_texts(name, [row.explained for row in some], [row.row for row in some])
        return gather_rows(rows, np.flatnonzero(bad.is_null().to_numpy(zero_copy_only=False)))

    def _within(self, name: str, rows: pa.RecordBatch, ticks: Ticks, reach: Reach) -> tuple[pa.RecordBatch, Ticks]:
        """The rows whose times are believed."""
        if not len(ticks) or (ticks.min() > -FARTHEST and ticks.max() <= min(reach.until, FARTHEST - 1)):
            return rows, ticks
        odd = ~in_range(ticks)
        if odd.any():
            self._bury(name, rows, odd, OUT_OF_RANGE, self.report.streams.unusable)
            rows, ticks = _where(rows, ticks, ~odd)
        beyond = ticks > reach.until
        if beyond.any():
            self._bury(name, rows, beyond, TOO_FAR_AHEAD, self.report.streams.unusable)
            if reach.step:
                spans = [*self.report.streams.beyond.get(name, ()), *spans_of(ticks[beyond], reach.step)]
                self.report.streams.beyond[name] = merged(spans, reach.step)
            rows, ticks = _where(rows, ticks, ~beyond)
        return rows, ticks

    def _bury(self, stream: str, rows: pa.RecordBatch, which: Mask, reason: str, count: dict[str, int]) -> None:
        chosen = rows.take(pa.array(np.flatnonzero(which)))
        count[stream] = count.get(stream, 0) + chosen.num_rows
        for start in range(0, chosen.num_rows, BURIED_AT_ONCE):
            self._write_down(stream, chosen.slice(start, BURIED_AT_ONCE), reason)

    def set_aside(self, stream: str, query: str, rows: pa.RecordBatch, bad: Mapping[int, str]) -> None:
        """Buries rows that one query cannot use; the others have had them.

        They have all columns that they came with, unless there was too much input to keep it.
        """
        self.report.set_aside[query] = self.report.set_aside.get(query, 0) + len(bad)
        known = self.whole.get(stream)
        whole, order = (rows, None) if known is None or known.accepted is not rows else (known.rows, known.order)
        for reason in dict.fromkeys(bad.values()):
            places = np.array([i for i, why in bad.items() if why == reason], np.int64)
            some = gather_rows(whole, places if order is None else order[places])
            for start in range(0, some.num_rows, BURIED_AT_ONCE):
                self._write_down(stream, some.slice(start, BURIED_AT_ONCE), f"query {query}: {reason}")

    def _write_down(self, stream: str, rows: pa.RecordBatch, reason: str) -> None:
        if not self.discards:
            seen = rows.select([name for name in rows.schema.names if name != ARRIVAL])
            self._write_texts(stream, [reason] * rows.num_rows, json_texts(seen))

    def _write_texts(self, stream: str, reasons: Sequence[str], texts: Sequence[str]) -> None:
        if self.discards:
            return
        batches, streams = pa.array([self.batch_id] * len(texts), pa.int64()), pa.array([stream] * len(texts))
        letters = [batches, streams, pa.array(reasons, pa.string()), pa.array(texts, pa.string())]
        self.dead.add(pa.Table.from_arrays(letters, schema=DEAD_LETTER_COLUMNS))


def restamped(
    declaration: StreamDeclaration, rows: pa.RecordBatch, ticks: Ticks, latest: int
) -> tuple[pa.RecordBatch, Ticks]:
    """Rows that are stamped here, none before what the stream has had: a clock may go backwards.

    Rows of a clock that is behind get the next instant, which no earlier row has.
    """
    behind = ticks < latest
    if not behind.any():
        return rows, ticks
    ticks = np.where(behind, latest + 1, ticks)
    place = rows.schema.get_field_index(declaration.time)
    stamps = column_of(ticks, declaration.domain.output_type).cast(rows.schema.field(place).type)
    columns = [stamps if i == place else column for i, column in enumerate(rows.columns)]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema), ticks


def in_order(rows: pa.RecordBatch, ticks: Ticks) -> tuple[pa.RecordBatch, Ticks]:
    """Rows sorted by time, then by all columns."""
    return _arranged(rows, ticks, _order(rows, ticks))


def _order(rows: pa.RecordBatch, ticks: Ticks) -> npt.NDArray[np.intp] | None:
    """The order by time, then by all columns; None if rows are in it."""
    return None if bool((ticks[1:] > ticks[:-1]).all()) else total_order(rows.columns, [ticks])


def _arranged(rows: pa.RecordBatch, ticks: Ticks, order: npt.NDArray[np.intp] | None) -> tuple[pa.RecordBatch, Ticks]:
    return (rows, ticks) if order is None else (gather_rows(rows, order), ticks[order])


def _where(rows: pa.RecordBatch, ticks: Ticks, mask: Mask) -> tuple[pa.RecordBatch, Ticks]:
    kept = np.flatnonzero(mask)
    return gather_rows(rows, kept), ticks[kept]


@dataclass(frozen=True, slots=True)
class StreamReading:
    """The streams by port, with what they had promised and up to which times their rows are believed.

    `keys` are the columns by which rows of each port arrive, where they do by a key. `samples` are what is sampled.
    """

    streams: Mapping[int, StreamDeclaration]
    registers: Mapping[str, int]
    reaches: Mapping[str, Reach] = field(default_factory=dict)
    keys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    samples: tuple[SampleRequest, ...] = ()
    deliveries: Mapping[int, Addressing] = field(default_factory=dict)
    """How rows of each port go to slots that share groups; copies of these count for all queries then."""
    again: Mapping[int, Copy] = field(default_factory=dict)
    """Rows of streams that arrive once more, by port, for fragments that read them in place."""
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The columns of streams that queries read, where rows may come with more."""

    @property
    def ports(self) -> tuple[int, ...]:
        """By which ports rows arrive, in the order in which they are fed."""
        return (*self.streams, *self.again)

    @property
    def spread(self) -> set[str]:
        """The streams whose rows are spread over slots that share groups."""
        return {self.streams[port].name for port, delivery in self.deliveries.items() if delivery.spread}

    def name_of(self, port: int) -> str:
        """The stream whose rows arrive by a port."""
        return self.streams[self._stream(port)].name

    def _stream(self, port: int) -> int:
        return self.again[port].stream if port in self.again else port

    def accepted(self, layout: Layout, parts: Mapping[int, pa.RecordBatch], intake: Intake) -> dict[int, Accepted]:
        """What counts of each port's rows."""
        return {
            port: self._accepted(
                layout, self._stream(port), rows, intake.unaccounted() if port in self.again else intake
            )
            for port, rows in parts.items()
        }

    def accepted_with_copies(
        self, layout: Layout, parts: Mapping[int, pa.RecordBatch], intake: Intake, slot: int, routing: tuple[int, ...]
    ) -> dict[int, Accepted]:
        """What counts of each port's rows; copies of rows that other slots account for are under `~port`."""
        found: dict[int, Accepted] = {}
        for port, rows in parts.items():
            owned = self.deliveries.get(port, Addressing(routing)).owned(rows.column(GROUP).to_numpy(), slot)
            found[port] = self._accepted(layout, port, gather_rows(rows, np.flatnonzero(owned)), intake)
            if not owned.all():
                copies = gather_rows(rows, np.flatnonzero(~owned))
                found[~port] = self._accepted(layout, port, copies, intake.unaccounted())
        return found

    def _accepted(self, layout: Layout, port: int, rows: pa.RecordBatch, intake: Intake) -> Accepted:
        declaration, report = self.streams[port], intake.report
        groups = rows.column(GROUP).to_numpy()
        report.traffic.count_groups(groups, declaration.name)
        register = self.registers.get(declaration.name, BEGINNING)
        reach = self.reaches.get(declaration.name, Reach())
        payload = layout.payload(port, rows)
        report.traffic.hot_keys.update(hot_key(groups, payload, self.keys.get(port, ())))
        accepted = intake.accept(declaration, payload, register, reach, self.read.get(declaration.name))
        if self.samples and len(accepted[1]) and not intake.discards:
            at = this_process().monotonic()
            add_samples(report.samples, sampled(self.samples, declaration.name, *accepted))
            report.lap("watch", at)
        return accepted


MUCH = 1 / 8
"""Which part of a stream's rows in a slot makes a group worth a look."""

ENOUGH = 16
"""How many rows it must be."""

LOOKED_AT = 4096
"""At how many of them one looks."""


def hot_key(
    groups: npt.NDArray[np.integer], rows: pa.RecordBatch, key: tuple[str, ...]
) -> dict[int, tuple[str, float]]:
    """The largest group of a stream's rows, if it is large: its commonest key, and that key's part of its rows.

    >>> rows = pa.RecordBatch.from_pydict({"k": [7] * 90 + [8] * 10})
    >>> hot_key(np.full(100, 3), rows, ("k",))
    {3: ('k = 7', 0.9)}
    >>> hot_key(np.full(100, 3), rows, ("a column that no query reads",))
    {}
    """
    if not key or not {*key} <= {*rows.schema.names} or rows.num_rows < ENOUGH or int(groups.min()) < 0:
        return {}
    counts = np.bincount(groups)
    group = int(counts.argmax())
    if counts[group] < max(ENOUGH, MUCH * rows.num_rows):
        return {}
    chosen = np.flatnonzero(groups == group)[:LOOKED_AT]
    table = pa.table({name: rows.column(name).take(pa.array(chosen)) for name in key})
    found = (
        table.group_by(list(key), use_threads=False)
        .aggregate([([], "count_all")])
        .sort_by([("count_all", "descending")])
    )
    most = found.slice(0, 1).to_pylist()[0]
    text = ", ".join(f"{name} = {most[name]!s:.40}" for name in key)
    return {group: (text, round(most["count_all"] / len(chosen), 3))}
