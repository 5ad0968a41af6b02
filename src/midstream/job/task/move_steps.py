"""What slots do when state moves: old ones send what they hold, new ones fill their states with it, stage by stage.

Like any step, they depend on the last manifest and the multiset of the rows they are given, and write under names that
nobody has used. Nothing of it counts before a manifest names it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.opening import open_segment
from midstream.distribution.fragments import Routing
from midstream.distribution.moves import Shipment
from midstream.errors import MidstreamError
from midstream.job.task.exchange import Exchange, Layout, Slots, at_site, portions, slots_of, to_every_slot
from midstream.job.task.memory import Memory
from midstream.job.task.reports import Report
from midstream.job.task.results import ForwardBuffer
from midstream.job.task.state_store import Entries, Filling, FillWork, slots_for
from midstream.operators.elements import Elements
from midstream.operators.group_hash import group_hash


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
    into: frozenset[int] | None = None
    """The new slots that it is for; None: all."""


@dataclass(frozen=True, slots=True)
class SendStep:
    """Every old slot reads what is asked for and sends it where it will be needed."""

    checkpoint: str
    layout: Layout
    routing: Routing
    slots: int
    parcels: tuple[Parcel, ...]
    memory: Memory = field(default_factory=Memory)

    def run(self, slot: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that leave a slot, and a report."""
        list(batches)
        exchange = Exchange(self.layout, False)
        report = Report(-1, slot)
        yield from _reporting(exchange, report, range(self.slots), self._sent(slot, exchange, report))

    def _sent(self, slot: int, exchange: Exchange, report: Report) -> Iterator[pa.RecordBatch]:
        files = files_at(self.checkpoint)
        for parcel in self.parcels:
            origin, shipment = parcel.shipment.origin, parcel.shipment
            entries = parcel.entries.get(slot, ())
            if origin is None or not entries:
                continue
            segments = [s for entry in entries if len(s := open_segment(files, entry, origin))]
            anywhere = slot % self.slots
            for piece in origin.pieces(segments, parcel.frontier, self.memory.chunk):
                elements = shipment.shaped(piece)
                if shipment.placed.everywhere:
                    elements, slots = to_every_slot(elements, shipment.placed.copied_to(self.slots))
                else:
                    slots = slots_for(shipment.placed, elements, self.routing, anywhere)
                if slot in parcel.parted:
                    leaving = slots != slot
                    elements, slots = elements.where(leaving), slots[leaving]
                if parcel.into is not None:
                    wanted = np.isin(slots, list(parcel.into))
                    elements, slots = elements.where(wanted), slots[wanted]
                if len(elements):
                    report.streams.rows[parcel.query] = report.streams.rows.get(parcel.query, 0) + len(elements)
                    yield exchange.rows(parcel.port, slots, elements)


@dataclass(frozen=True, slots=True)
class FillStep:
    """One stage of the new plans: fills the states of its fragments and gives what later stages need."""

    checkpoint: str
    batch_id: int
    stage: int
    last: bool
    layout: Layout
    routing: Routing
    work: tuple[FillWork, ...]
    slots: int
    memory: Memory = field(default_factory=Memory)

    def run(self, slot: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows for the next stage, and a report."""
        exchange = Exchange(self.layout, self.last)
        report = Report(self.stage, slot)
        yield from _reporting(exchange, report, range(self.slots), self._filled(slot, batches, exchange, report))

    def _filled(
        self, slot: int, batches: Iterator[pa.RecordBatch], exchange: Exchange, report: Report
    ) -> Iterator[pa.RecordBatch]:
        files = files_at(self.checkpoint)
        sent = yield from self._arrived(batches, exchange)
        for work in self.work:
            if work.into is not None and slot not in work.into:
                continue
            filling = Filling(work, files, slot, sent, self.routing, self.memory)
            report.fragments[work.query, work.fill.fragment.number] = filling.run(self.batch_id)
            if work.fill.fragment.reader is not None:
                for output in filling.output.take():
                    if (route := work.fill.fragment.route).everywhere:
                        output, slots = to_every_slot(output, route.copied_to(self.slots))
                    else:
                        slots = self._slots(work, output)
                    yield exchange.rows(work.port, slots, output)

    def _arrived(
        self, batches: Iterator[pa.RecordBatch], exchange: Exchange
    ) -> Generator[pa.RecordBatch, None, dict[int, list[Elements]]]:
        """Takes all rows in, into files where they are many, and passes on at once what is not for this stage."""
        ports = {port for work in self.work for port in (*work.parcels, *work.received)}
        arriving = {port: ForwardBuffer(self.memory.output // len(ports)) for port in ports}
        for rows, _ in portions(batches, self.memory.input):
            for port, part in sorted(self.layout.split(rows).items()):
                if port in arriving:
                    arriving[port].add(exchange.elements(port, part))
                else:
                    yield exchange.onward(part, self.slots)
        return {port: list(given.take()) for port, given in arriving.items() if given.rows}

    def _slots(self, work: FillWork, output: Elements) -> Slots:
        route = work.fill.fragment.route
        if not route.key:
            return np.zeros(len(output), np.int32)
        hashed = group_hash([output.columns.column(name) for name in route.key])
        table = self.routing.table(route.key_class)
        return slots_of(hashed, at_site(route.slots, len(table)) or table)


def _reporting(
    exchange: Exchange, report: Report, slots: Sequence[int], given: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What a step gives, then its report, which also tells of what went wrong."""
    try:
        yield from given
    except MidstreamError as error:
        report.error = error
    yield exchange.note(report, report.slot, slots)
