"""The segments of a task in a slot: opened by their entries, moved into files when they are many, written and named.

Tasks of a slot have a pool in common, so that what several hold is opened once and written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from midstream.algebra.declarations import UserFunction
from midstream.checkpoint.files import Files
from midstream.checkpoint.names import name_for
from midstream.checkpoint.opening import open_in, open_segment, open_states
from midstream.checkpoint.packs import SegmentEntry, StateKey, kept_entries
from midstream.checkpoint.records import grouped
from midstream.distribution.fragments import Received, Routing, leaves
from midstream.distribution.moves import FragmentFill, Gathered, Shipment, StateName
from midstream.distribution.placement import Placed
from midstream.job.task.exchange import Slots, at_site, slots_of
from midstream.job.task.kept_tasks import HeldSegments, Pool
from midstream.job.task.memory import Memory, bind, mapped_states, write_packs
from midstream.job.task.reports import FragmentReport
from midstream.job.task.results import ForwardBuffer
from midstream.migration.execution import SingleBox
from midstream.migration.state_move import Portions, StateMove
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.group_hash import group_hash
from midstream.operators.join import prepare
from midstream.operators.state.portions import slices
from midstream.operators.state.segment import Segment, make_segment
from midstream.operators.state.sorted_state import SortedState

NamedState = tuple[StateKey, SortedState]
"""A state with the name that it is stored by."""


@dataclass(slots=True)
class StateStore:
    """Where a task's states are: in files of the batch `batch_id`, named after the slot and a fragment's `number`."""

    slot: int
    files: Files
    pool: Pool
    batch_id: int
    memory: Memory
    number: int = 0
    flushed: list[str] = field(default_factory=list)
    """The files that were written before the task was closed."""
    held: HeldSegments = field(default_factory=HeldSegments)
    """What a closed task holds for the next batch."""

    def take_up(self, files: Files, pool: Pool, batch_id: int, memory: Memory) -> None:
        """Goes on with another batch."""
        self.files, self.pool, self.batch_id, self.memory, self.flushed = files, pool, batch_id, memory, []

    def open(self, entries: Sequence[SegmentEntry], state: SortedState) -> list[Segment]:
        """The segments of a state, without those that turn out to be empty."""
        segments = (self.pool.open(self.files, entry, state) for entry in entries)
        return [segment for segment in segments if len(segment)]

    def spill(self, states: Sequence[NamedState]) -> None:
        """Moves new segments into files and maps them once they are many."""
        new = {id(s): (s, state) for _, state in states for s in state.segments if s.place is None}
        if sum(segment.bytes for segment, _ in new.values()) <= self.memory.new_state:
            return
        self.flushed += self.write(states)
        mapped: dict[int, Segment] = {}
        for number, (_, state) in new.items():
            entry = self.pool.written.pop(number)
            mapped[number] = self.pool.opened[entry.place] = open_in(self.files, entry, state)
            self.pool.entries[entry.place] = entry
        for _, state in states:
            if any(id(segment) in mapped for segment in state.segments):
                state.segments = [mapped.get(id(segment), segment) for segment in state.segments]

    def write(self, states: Iterable[NamedState]) -> list[str]:
        """Writes the segments that nobody has written yet; gives the names of the packs."""
        new: dict[int, tuple[StateKey, Segment]] = {}
        for name, state in states:
            for segment in state.segments:
                if segment.place is None and id(segment) not in self.pool.written:
                    new.setdefault(id(segment), (name, segment))
        held = grouped(new.values())
        path = partial(name_for, "state", self.batch_id, self.slot, self.number)
        entries = write_packs(self.files, path, held, self.memory)
        ordered = [segment for segments in held.values() for segment in segments]
        self.pool.written.update({id(s): e for s, e in zip(ordered, entries, strict=True)})
        return sorted({entry.file for entry in entries})

    def remove_merged(self, states: Iterable[NamedState]) -> None:
        """Removes the files written before the task was closed of which states no longer hold anything.

        States of one name need not be the same: queries may compute one content in different ways.
        """
        if self.flushed:
            held = [self.pool.entry(segment, name) for name, state in states for segment in state.segments]
            remove_unused(self.files, self.flushed, held)

    def entries(self, states: Iterable[NamedState]) -> list[SegmentEntry]:
        """What states hold, written and named; of states of one name, the last."""
        found = {name: [self.pool.entry(segment, name) for segment in state.segments] for name, state in states}
        return [entry for entries in found.values() for entry in entries]

    def hold(self, states: Iterable[SortedState]) -> None:
        """Holds what closed states hold, for the next batch."""
        pool = self.pool

        def entry_of(segment: Segment) -> SegmentEntry:
            return pool.written[id(segment)] if segment.place is None else pool.entries[segment.place].of(segment)

        self.held.hold(states, entry_of, self.files, self.memory.new_state, pool.in_memory)


def remove_unused(files: Files, written: Sequence[str], entries: Sequence[SegmentEntry]) -> None:
    """Removes packs of this very step whose segments have all been merged into others."""
    used = {entry.file for entry in entries}
    for path in written:
        if path not in used:
            files.delete(path)


def by_state(entries: Sequence[SegmentEntry]) -> Mapping[StateKey, list[SegmentEntry]]:
    """Entries by the states that they are of."""
    return grouped(((entry.state, entry.key), entry) for entry in entries)


Entries = Mapping[int, Sequence[SegmentEntry]]
"""Segments of each slot."""

Arrived = Mapping[int, Sequence[Elements]]
"""What was sent to a slot, by port, in parts that are small or lie in a file."""


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
    feeds: bool = False
    """Whether what was sent for its sources, and what others gave because of theirs, goes through it afterwards."""
    into: frozenset[int] | None = None
    """The slots in which it is filled; None: all."""


class Filling:
    """One fragment being filled in one slot; `given` is what it gives to its reader."""

    def __init__(
        self, work: FillWork, files: Files, slot: int, sent: Arrived, routing: Routing, memory: Memory
    ) -> None:
        self.work, self.files, self.slot, self.sent, self.routing = work, files, slot, sent, routing
        self.memory = memory
        self.box = Box(work.fill.fragment.plan, work.functions)
        self.output = ForwardBuffer(memory.output)
        self.batch_id = 0
        self.opened: list[SegmentEntry] = []
        self.written: list[str] = []

    def run(self, batch_id: int) -> FragmentReport:
        """Fills the states and writes what is new of them."""
        work, self.batch_id = self.work, batch_id
        bind(self.box.operators, self.memory)
        offered = Gathered(dict(self._states()), self._elements("content"), self._elements("leaf"))
        move = StateMove(offered, self.box, work.functions, self._give if work.fill.gives else None, follows=False)
        move.portions = Portions(self.memory.moved, self._spill_box)
        move.begin(work.frontier)
        move.send(work.frontier)
        if work.feeds:
            self._feed()
        held = {(state.id, state.key): list(state.segments) for state in self.box.states()}
        entries = [*kept_entries(self.opened, held), *write_packs(self.files, self._path, held, self.memory)]
        remove_unused(self.files, self.written, entries)
        return FragmentReport(
            entries=entries,
            rows_out=self.output.rows,
            processed_twice=move.rows_sent,
            extra_rows=sum(held.state.rows for held in move.unmatched),
        )

    def _give(self, elements: Elements) -> None:
        if len(elements):
            self.output.add(elements.without_hashes())

    def _path(self) -> str:
        return name_for("state", self.batch_id, self.slot, self.work.fill.fragment.number)

    def _spill_box(self) -> None:
        self._spill(self.box.states())

    def _spill(self, states: Iterable[SortedState]) -> None:
        """Moves new segments into files and maps them once they are many."""
        named = {(state.id, state.key): state for state in states}
        entries = mapped_states(self.files, self._path, named, self.memory)
        self.written += {entry.file for entry in entries}
        self.opened += entries

    def _feed(self) -> None:
        box = SingleBox(self.box, self._give)
        leaves_sent = {port: s.name for port, s in self.work.parcels.items() if s.what == "leaf"}
        for port, alias in (*leaves_sent.items(), *self.work.received.items()):
            for part in self.sent.get(port, ()):
                box.feed(alias, part)
                self._spill_box()

    def _states(self) -> Iterator[tuple[StateName, SortedState]]:
        """The states that are taken over: what lies here already and what was sent."""
        own = {(state.id, state.key): state for state in self.box.states()}
        ports = {shipment.address: port for port, shipment in self.work.parcels.items()}
        for shipment in self.work.fill.shipments:
            if shipment.what != "state":
                continue
            name = (shipment.name, shipment.key)
            like = own[name]
            state = type(like)(like.id, like.key, like.schema, like.longest, grouping=like.grouping)
            entries = list(self.work.shared.get(name, {}).get(self.slot, ()))
            self.opened += entries
            state.replace_segments(open_states(self.files, entries, {like.id: like}).get(name, []))
            for segment in self._staying(shipment, like):
                state.replace_segments([*state.segments, segment])
                self._spill([state])
            for part in self.sent.get(ports.get(shipment.address, -1), ()):
                kept, hashes = prepare(part, state.key, True, state.grouping)
                state.append(kept, hashes)
                self._spill([state])
            yield name, state

    def _staying(self, shipment: Shipment, like: SortedState) -> Iterator[Segment]:
        """What stays of segments of which something leaves, in the order it is in."""
        for entry in self.work.parted.get((shipment.name, shipment.key), {}).get(self.slot, ()):
            segment = open_segment(self.files, entry, like)
            parts = list(slices(segment.elements, segment.bytes, self.memory.chunk))
            stays = [slots_for(shipment.placed, part, self.routing) == self.slot for part in parts]
            if len(segment) and all(mask.all() for mask in stays):
                self.opened.append(entry)
                yield segment
                continue
            end = 0
            for part, mask in zip(parts, stays, strict=True):
                start, end = end, end + len(part)
                if mask.any():
                    hashes = segment.hashes[start:end][mask]
                    yield make_segment(part.where(mask), hashes, segment.bucket, segment.born)

    def _elements(self, what: str) -> dict[str, Sequence[Elements]]:
        """Contents that were sent under their names; what another fragment gave counts as a leaf."""
        asked = [s for s in self.work.fill.shipments if s.what == what]
        found: dict[str, Sequence[Elements]] = {shipment.name: () for shipment in asked}
        for port, shipment in self.work.parcels.items():
            if shipment.what == what and port in self.sent:
                found[shipment.name] = self.sent[port]
        if what == "leaf":
            received = [leaf for leaf in leaves(self.work.fill.fragment.plan) if isinstance(leaf, Received)]
            given = {alias: self.sent[port] for port, alias in self.work.received.items() if port in self.sent}
            for leaf in received:
                if leaf.fragment in self.work.fill.receives:
                    found[leaf.stream.alias] = given.get(leaf.stream.alias, ())
        return found


def slots_for(placed: Placed, elements: Elements, routing: Routing, anywhere: int = 0) -> Slots:
    """The slots that rows belong to."""
    key = placed.key
    if not key:
        return np.full(len(elements), anywhere if key is None else 0, np.int32)
    hashed = group_hash([elements.columns.column(name) for name in key])
    return slots_of(hashed, at_site(placed.slots, len(routing.groups)) or routing.table(placed.key_class))
