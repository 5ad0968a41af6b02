"""What slots do when state moves: old ones send what they hold, new ones fill their states with it, stage by stage.

Like any step, they depend on the last manifest and the multiset of the rows they are given, and write under names that
nobody has used. Nothing of it counts before a manifest names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import UserFunction
from midstream.distribution.fragments import Received, leaves
from midstream.distribution.moves import FragmentFill, Gathered, Shipment, StateName
from midstream.distribution.placement import Placed
from midstream.errors import MidstreamError
from midstream.migration.execution import SingleBox
from midstream.migration.state_move import StateMove
from midstream.operators.box import Box
from midstream.operators.elements import Elements, concatenate, empty_elements
from midstream.operators.hashing import hash_columns
from midstream.operators.join import prepare
from midstream.operators.state.segment import Segment, make_segment
from midstream.operators.state.sorted_state import SortedState
from midstream.runtime.checkpoint.files import Files
from midstream.runtime.checkpoint.names import name_for
from midstream.runtime.checkpoint.packs import SegmentEntry, kept_entries, open_segment, open_states, write_pack
from midstream.runtime.spark.slots.arrival_hash import arrival_hash
from midstream.runtime.spark.slots.exchange import Exchange, Slots, slots_of
from midstream.runtime.spark.slots.layout import NOTE_PORT, Layout, one_batch
from midstream.runtime.spark.slots.reports import FragmentReport, Report

ROWS_AT_ONCE = 100_000
"""How many rows of a state leave a slot in one piece."""

Entries = Mapping[int, Sequence[SegmentEntry]]
"""Segments of each slot."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A shipment that travels: for which plan, by which port, and from which segments of each old slot."""

    query: str
    shipment: Shipment
    port: int
    frontier: int
    entries: Entries
    parted: frozenset[int]
    """The old slots that keep what stays with them."""


@dataclass(frozen=True, slots=True)
class FillWork:
    """A fragment to be filled: from parcels by port, from segments that are shared, from other fragments' output."""

    query: str
    fill: FragmentFill
    functions: Mapping[str, UserFunction]
    frontier: int
    parcels: Mapping[int, Shipment]
    shared: Mapping[StateName, Entries]
    parted: Mapping[StateName, Entries]
    received: Mapping[int, str]
    port: int
    ahead: Mapping[str, Entries] | None = None
    """What it is fed with afterwards, silently, by source; None: it is not fed."""


@dataclass(frozen=True, slots=True)
class SendStep:
    """Every old slot reads what is asked for and sends it where it will be needed."""

    checkpoint: str
    layout: Layout
    routing: tuple[int, ...]
    slots: int
    parcels: tuple[Parcel, ...]

    def run(self, slot: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that leave a slot, and a report."""
        list(batches)
        exchange = Exchange(self.layout, False)
        yield from _reporting(exchange, Report(-1, slot), lambda report: self._sent(slot, exchange, report))

    def _sent(self, slot: int, exchange: Exchange, report: Report) -> Iterator[pa.RecordBatch]:
        files = Files.at(self.checkpoint)
        for parcel in self.parcels:
            origin, shipment = parcel.shipment.origin, parcel.shipment
            entries = parcel.entries.get(slot, ())
            if origin is None or not entries:
                continue
            segments = [open_segment(files, entry, origin.schema) for entry in entries]
            elements = shipment.shaped(origin.read([s for s in segments if len(s)], parcel.frontier))
            if slot in parcel.parted:
                elements = elements.where(slots_for(shipment.placed, elements, self.routing) != slot)
            report.rows[parcel.query] = report.rows.get(parcel.query, 0) + len(elements)
            for start in range(0, len(elements), ROWS_AT_ONCE):
                part = elements.slice(start, min(ROWS_AT_ONCE, len(elements) - start))
                anywhere = slot % self.slots
                yield exchange.rows(parcel.port, slots_for(shipment.placed, part, self.routing, anywhere), part)


@dataclass(frozen=True, slots=True)
class FillStep:
    """One stage of the new plans: fills the states of its fragments and gives what later stages need."""

    checkpoint: str
    batch_id: int
    stage: int
    last: bool
    layout: Layout
    routing: tuple[int, ...]
    work: tuple[FillWork, ...]

    def run(self, slot: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows for the next stage, and a report."""
        exchange = Exchange(self.layout, self.last)
        rows = one_batch(list(batches))
        parts = {} if rows is None else self.layout.split(rows)
        if NOTE_PORT in parts:
            yield exchange.onward(parts.pop(NOTE_PORT))
        report = Report(self.stage, slot)
        yield from _reporting(exchange, report, lambda r: self._filled(slot, parts, exchange, r))

    def _filled(
        self, slot: int, parts: Mapping[int, pa.RecordBatch], exchange: Exchange, report: Report
    ) -> Iterator[pa.RecordBatch]:
        files = Files.at(self.checkpoint)
        mine = {port for work in self.work for port in (*work.parcels, *work.received)}
        for work in self.work:
            sent = {port: exchange.elements(port, parts[port]) for port in parts if port in mine}
            filling = Filling(work, files, slot, sent, self.routing)
            report.fragments[work.query, work.fill.fragment.number] = filling.run(self.batch_id)
            if filling.given and work.fill.fragment.reader is not None:
                output = concatenate(filling.given)
                yield exchange.rows(work.port, self._slots(work, output), output)
        for port in sorted(parts.keys() - mine):
            yield exchange.onward(parts[port])

    def _slots(self, work: FillWork, output: Elements) -> Slots:
        key = work.fill.fragment.route.key
        if not key:
            return np.zeros(len(output), np.int32)
        return slots_of(hash_columns([output.columns.column(name) for name in key]), self.routing)


class Filling:
    """One fragment being filled in one slot."""

    def __init__(
        self, work: FillWork, files: Files, slot: int, sent: Mapping[int, Elements], routing: Sequence[int]
    ) -> None:
        self.work, self.files, self.slot, self.sent, self.routing = work, files, slot, sent, routing
        self.box = Box(work.fill.fragment.plan, work.functions)
        self.given: list[Elements] = []
        self.opened: list[SegmentEntry] = []

    def run(self, batch_id: int) -> FragmentReport:
        """Fills the states and writes what is new of them."""
        work = self.work
        offered = Gathered(dict(self._states()), self._elements("content"), self._elements("leaf"))
        move = StateMove(offered, self.box, work.functions, self._onward, follows=False)
        move.begin(work.frontier)
        move.send(work.frontier)
        if work.ahead is not None:
            self._feed(work.ahead)
        held = {(state.id, state.key): list(state.segments) for state in self.box.states()}
        path = name_for("state", batch_id, self.slot, work.fill.fragment.number)
        entries = [*kept_entries(self.opened, held), *write_pack(self.files, path, held)]
        return FragmentReport(
            entries=entries,
            rows_out=sum(map(len, self.given)),
            processed_twice=move.rows_sent,
            extra_rows=sum(held.state.rows for held in move.unmatched),
        )

    def _feed(self, ahead: Mapping[str, Entries]) -> None:
        """Takes what the fragment has left out so far, and what others gave because of theirs."""
        box = SingleBox(self.box, self.given.append)
        for alias, entries in ahead.items():
            for entry in entries.get(self.slot, ()):
                box.feed(alias, open_segment(self.files, entry).elements)
        for port, alias in self.work.received.items():
            if port in self.sent:
                box.feed(alias, self.sent[port])

    @property
    def _onward(self) -> Callable[[Elements], None] | None:
        return self.given.append if self.work.fill.gives else None

    def _states(self) -> Iterator[tuple[StateName, SortedState]]:
        """The states that are taken over: what lies here already and what was sent."""
        own = {(state.id, state.key): state for state in self.box.states()}
        ports = {shipment.address: port for port, shipment in self.work.parcels.items()}
        for shipment in self.work.fill.shipments:
            if shipment.what != "state":
                continue
            name = (shipment.name, shipment.key)
            like = own[name]
            state = type(like)(like.id, like.key, like.schema, like.longest)
            entries = list(self.work.shared.get(name, {}).get(self.slot, ()))
            self.opened += entries
            whole = open_states(self.files, entries, {like.id: like.schema}).get(name, [])
            state.replace_segments([*whole, *self._staying(shipment, like.schema)])
            arrived = self.sent.get(ports.get(shipment.address, -1))
            if arrived is not None:
                _put(state, arrived)
            yield name, state

    def _staying(self, shipment: Shipment, schema: pa.Schema) -> Iterator[Segment]:
        """What stays of segments of which something leaves, in the order it is in."""
        for entry in self.work.parted.get((shipment.name, shipment.key), {}).get(self.slot, ()):
            segment = open_segment(self.files, entry, schema)
            stays = slots_for(shipment.placed, segment.elements, self.routing) == self.slot
            if stays.all() and len(segment):
                self.opened.append(entry)
                yield segment
            elif stays.any():
                yield make_segment(segment.elements.where(stays), segment.hashes[stays], segment.bucket, segment.born)

    def _elements(self, what: str) -> dict[str, Elements]:
        """Contents that were sent under their names; what another fragment gave counts as a leaf."""
        asked = [s for s in self.work.fill.shipments if s.what == what]
        found = {shipment.name: empty_elements(shipment.schema) for shipment in asked}
        for port, shipment in self.work.parcels.items():
            if shipment.what == what and port in self.sent:
                found[shipment.name] = self.sent[port]
        if what == "leaf":
            received = [leaf for leaf in leaves(self.work.fill.fragment.plan) if isinstance(leaf, Received)]
            given = {alias: self.sent[port] for port, alias in self.work.received.items() if port in self.sent}
            for leaf in received:
                if leaf.fragment in self.work.fill.receives:
                    alias = leaf.stream.alias
                    found[alias] = given.get(alias, empty_elements(leaf.schema))
        return found


def slots_for(placed: Placed, elements: Elements, routing: Sequence[int], anywhere: int = 0) -> Slots:
    """The slots that rows belong to."""
    key = placed.key
    if not key:
        return np.full(len(elements), anywhere if key is None else 0, np.int32)
    columns = [elements.columns.column(name) for name in key]
    return slots_of((arrival_hash if placed.arrival else hash_columns)(columns), routing)


def _put(state: SortedState, arrived: Elements) -> None:
    kept, hashes = prepare(arrived, state.key, nulls_equal=True)
    state.append(kept, hashes)


def _reporting(
    exchange: Exchange, report: Report, work: Callable[[Report], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """What a step gives, then its report, which also tells of what went wrong."""
    try:
        yield from work(report)
    except MidstreamError as error:
        report.error = error
    yield exchange.note(report)
