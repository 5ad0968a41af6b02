"""Moving over several batches what would hold one batch up: groups step by step, states of a new plan beside the job.

A group moves by naming its ranges of stored segments, which costs nothing. Two things do cost: where so many groups are
scattered that segments would be cut into too many ranges, all rows of the slot are sent or written anew; and between
slots that run by different plans, what moves is sent and derived. If that is more than a batch is to carry, only some
groups move before it, so few that ranges suffice and little is derived; the others wait for the next batches. Every
step is a move like any other, and the manifest says which dealing is still wanted.

What the old plan had kept of its streams when a migration began is immutable segments; the manifest names what of it
the new plan has yet to be given. Before each batch the next range of hashes of all these segments is sent to the slots
where the new plan reads its streams, and goes through its fragments. So a batch carries about as much besides its own
rows as is wanted, and a key's rows of all streams go together. The last range ends the migration: the batch after it
runs by the new plan alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import lane_name, query_of
from midstream.checkpoint.packs import SegmentEntry, Stored, entries_in
from midstream.distribution.fragments import ARRIVAL, Routing, class_received
from midstream.distribution.moves import Shipment, plan_replay
from midstream.job.lanes import TO_TARGET, regrouped
from midstream.job.queries.filling import Pace, Ranges, parted
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.moving import PlanMove
from midstream.job.slots.segment_reuse import MOST_RANGES, SegmentReuse, ranges_of_groups
from midstream.job.task.lanes import KEPT, TARGET

NAMING = "mslb"
"""The protocol that hands over state between two batches."""


def next_step(
    old: Routing,
    wanted: Routing | None,
    before: Manifest | None,
    queries: Mapping[str, RunningQuery],
    rows: int | None,
) -> Routing | None:
    """The dealing before the next batch: the wanted one, or some way to it if that would move more than so many rows.

    `rows` None means that everything moves at once.
    """
    if wanted is None or before is None or rows is None or wanted.protocol != NAMING or wanted.deals_as(old):
        return wanted
    costs = [_Costs.of(name, old, wanted, before, queries) for name, _, _ in old.beside(wanted)]
    if sum(cost.at_once() for cost in costs) <= rows:
        return wanted
    tables, spent = dict[str, tuple[int, ...]](), 0.0
    for cost in costs:
        tables[cost.key_class], spent = _some(cost, rows, spent)
    # Slots that are to go stay until their last group has left.
    made = replace(wanted, groups=tables.pop(ARRIVAL), apart=tables, slots=max(old.slots, wanted.slots))
    return wanted if made.deals_as(wanted) else made


def _some(costs: _Costs, rows: int, spent: float) -> tuple[tuple[int, ...], float]:
    """A class's table with some groups in their wanted slots, and what has been spent by then."""
    now = list(costs.lay)
    for slot in range(costs.slots):
        for group in costs.first_of(slot):
            cost = costs.derived(group)
            if spent and spent + cost > rows:
                break
            spent += cost
            now[group] = costs.lie[group]
    return tuple(now), spent


@dataclass(frozen=True, slots=True)
class _Costs:
    """What moving groups of a key class costs, in rows; `held` are the rows of each slot by query."""

    key_class: str
    lay: tuple[int, ...]
    lie: tuple[int, ...]
    slots: int
    queries: Mapping[str, RunningQuery]
    held: Mapping[int, Mapping[str, int]]
    shares: tuple[float, ...]
    """The part of its slot's rows that each group has."""

    @staticmethod
    def of(
        key_class: str, old: Routing, wanted: Routing, before: Manifest, queries: Mapping[str, RunningQuery]
    ) -> _Costs:
        held: dict[int, dict[str, int]] = {}
        for name, stages in before.segments.items():
            known = queries.get(query_of(name))
            apart = set() if known is None else _fragments(known, {*old.apart, *wanted.apart}, key_class)
            own = (slots for number, slots in stages.items() if number not in apart)
            for slot, entries in ((s, e) for slots in own for s, e in slots.items()):
                mine = held.setdefault(slot, {})
                mine[query_of(name)] = mine.get(query_of(name), 0) + sum(entry.rows for entry in entries)
        lay, loads = old.table(key_class), before.slots.class_loads.get(key_class, before.slots.loads)
        shares = _shares(lay, old.slots, loads)
        return _Costs(key_class, lay, wanted.table(key_class), old.slots, queries, held, shares)

    def at_once(self) -> float:
        """The rows that are sent or written if all groups move together."""
        scattered = (slot for slot in range(self.slots) if self._ranges(slot) > MOST_RANGES)
        sent = sum(sum(self.held.get(slot, {}).values()) for slot in scattered)
        return sent + sum(self.derived(group) for group in range(len(self.lay)))

    def derived(self, group: int) -> float:
        """The rows of a group that go to a slot with another plan."""
        sender, receiver = self.lay[group], self.lie[group]
        if sender == receiver:
            return 0.0
        mine = self.held.get(sender, {})
        differing = (
            name
            for name, query in self.queries.items()
            if query.local and query.in_slot(sender).plan.text != query.in_slot(receiver).plan.text
        )
        return self.shares[group] * sum(mine.get(name, 0) for name in differing)

    def first_of(self, slot: int) -> Iterator[int]:
        """The first groups that leave a slot, as many as leave its segments in few ranges."""
        ranges, target = 0, None
        for group, owner in enumerate(self.lay):
            if owner != slot:
                continue
            if self.lie[group] != target:
                ranges, target = ranges + 1, self.lie[group]
            if ranges >= MOST_RANGES:  # what stays behind is one more
                return
            if target != slot:
                yield group

    def _ranges(self, slot: int) -> int:
        return len(ranges_of_groups(slot, self.lay, self.lie))


def _fragments(query: RunningQuery, apart: Collection[str], key_class: str) -> set[int]:
    """The fragments of a query that are not dealt as a class is; `apart` are the classes with tables of their own."""
    found = {fragment.number: class_received(fragment) for fragment in query.staged.fragments}
    return {number for number, name in found.items() if (name if name in apart else ARRIVAL) != key_class}


def _shares(table: Sequence[int], slots: int, loads: Sequence[float]) -> tuple[float, ...]:
    """The part of its slot's load that each group has; equal parts where nothing is known."""
    known = list(loads) if len(loads) == len(table) else [0.0] * len(table)
    own, count = [0.0] * slots, [0] * slots
    for slot, load in zip(table, known, strict=True):
        own[slot] += load
        count[slot] += 1
    return tuple(load / own[slot] if own[slot] else 1 / count[slot] for slot, load in zip(table, known, strict=True))


Stages = Mapping[str, Stored]
"""The segments of plans by name."""


@dataclass(slots=True)
class Replay(PlanMove):
    """What is moved before one batch: `sending` of what the old plan kept, through the new plan as it is by now."""

    sending: Stored = field(default_factory=dict)
    rest: Ranges = field(default_factory=dict)
    """What is left for later batches."""
    query: RunningQuery | None = None
    """The query by its old plan."""

    def __post_init__(self) -> None:
        PlanMove.__post_init__(self)
        assert self.query is not None
        old, functions = self.query, self.new.functions
        leaves = plan_replay(old.staged, old.plan.physical, self.new.staged, functions)
        self.fills = [replace(f, shipments=(*f.shipments, *leaves[f.fragment.number])) for f in self.fills]

    def decide_reuse(self, old: Routing, new: Routing) -> None:
        """The new plan keeps what it has; what the old one kept of streams is sent."""
        PlanMove.decide_reuse(self, old, new)
        for shipment in self.shipments():
            if shipment.what == "leaf":
                self.reused[shipment.address] = SegmentReuse(sent=self._sent(shipment))

    def _sent(self, shipment: Shipment) -> dict[int, Sequence[SegmentEntry]]:
        origin = shipment.origin
        if origin is None:
            return {}
        slots = self.sending.get(origin.fragment, {})
        mine = {slot: [e for e in entries if (e.state, e.key) == origin.name] for slot, entries in slots.items()}
        return {slot: entries for slot, entries in mine.items() if entries}

    def frontier_of(self, shipment: Shipment, frontiers: Mapping[int, int]) -> int:
        """A row goes through all stages, and later ones may be behind."""
        return min(frontiers.values())

    @property
    def in_place(self) -> bool:
        """Whether there is nothing to send."""
        return not any(True for _ in entries_in(self.sending))


def replays(queries: Mapping[str, RunningQuery], before: Manifest, pace: Pace) -> dict[str, Replay]:
    """What is moved before the next batch, by query."""
    found: dict[str, Replay] = {}
    for name, query in queries.items():
        migration = query.migration
        if migration is None or not migration.replays or migration.cancelling or name in pace.idle:
            continue
        kept = before.segments.get(lane_name(name, KEPT), {}) if migration.begun is not None else _kept(query, before)
        sending, rest = parted(kept, pace.rows)
        target = migration.target
        filled = lane_name(name, TARGET)
        stored = before.segments.get(filled, {})
        frontier = before.advanced_to.get(name, BEGINNING)
        found[name] = Replay(
            filled, target, target, stored, frontier, feeds=True, sending=sending, rest=rest, query=query
        )
    return found


def _kept(query: RunningQuery, before: Manifest) -> Ranges:
    """What the old plan has kept of its streams."""
    assert query.migration is not None
    new = query.migration.target.staged
    leaves = plan_replay(query.staged, query.plan.physical, new, query.functions)
    origins = {s.origin.fragment: set[object]() for ss in leaves.values() for s in ss if s.origin is not None}
    for shipment in (s for shipments in leaves.values() for s in shipments if s.origin is not None):
        assert shipment.origin is not None
        origins[shipment.origin.fragment].add(shipment.origin.name)
    stored = before.segments.get(query.name, {})
    return {
        number: {
            slot: [e for e in entries if (e.state, e.key) in names] for slot, entries in stored.get(number, {}).items()
        }
        for number, names in origins.items()
    }


def after_replays(segments: Stages, replayed: Mapping[str, Replay], over: Collection[str]) -> dict[str, Stored]:
    """The segments of all plans with what is left, and the new plans in the place of the old where that is `over`."""
    found = dict(segments)
    for name, replay in replayed.items():
        found[lane_name(name, KEPT)] = replay.rest
    for name in over:
        found = regrouped(found, name, TO_TARGET)
    return found


def resting(before: Manifest, query: RunningQuery) -> dict[str, Stored]:
    """What the manifest of a batch goes on to name for a query whose migration has yet to send it."""
    lane = lane_name(query.name, KEPT)
    sends = query.migration is not None and query.migration.replays and lane in before.segments
    return {lane: before.segments[lane]} if sends else {}
