"""Moving groups over several batches where moving them all at once would hold a batch up.

A group moves by naming its ranges of stored segments, which costs nothing. Two things do cost: where so many groups are
scattered that segments would be cut into too many ranges, all rows of the slot are sent or written anew; and between
slots that run by different plans, what moves is sent and derived. If that is more than a batch is to carry, only some
groups move before it, so few that ranges suffice and little is derived; the others wait for the next batches. Every
step is a move like any other, for all stages and queries alike, and the manifest says which dealing is still wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from midstream.checkpoint.manifest import Manifest
from midstream.distribution.routing import Routing
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.segment_reuse import MOST_RANGES, ranges_of_groups
from midstream.job.task.sides import base_name

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
    if wanted is None or before is None or rows is None or wanted.protocol != NAMING or wanted.groups == old.groups:
        return wanted
    costs = _Costs.of(old, wanted, before, queries)
    if costs.at_once() <= rows:
        return wanted
    now, spent = list(old.groups), 0.0
    for slot in range(old.slots):
        for group in costs.first_of(slot):
            cost = costs.derived(group)
            if spent and spent + cost > rows:
                break
            spent += cost
            now[group] = wanted.groups[group]
    if tuple(now) == wanted.groups:
        return wanted
    # Slots that are to go stay until their last group has left.
    return replace(wanted, groups=tuple(now), slots=max(old.slots, wanted.slots))


@dataclass(frozen=True, slots=True)
class _Costs:
    """What moving groups costs, in rows; `held` are the rows of each slot by query."""

    old: Routing
    wanted: Routing
    queries: Mapping[str, RunningQuery]
    held: Mapping[int, Mapping[str, int]]
    shares: tuple[float, ...]
    """The part of its slot's rows that each group has."""

    @staticmethod
    def of(old: Routing, wanted: Routing, before: Manifest, queries: Mapping[str, RunningQuery]) -> _Costs:
        held: dict[int, dict[str, int]] = {}
        for name, stages in before.segments.items():
            for slot, entries in ((s, e) for slots in stages.values() for s, e in slots.items()):
                mine = held.setdefault(slot, {})
                mine[base_name(name)] = mine.get(base_name(name), 0) + sum(entry.rows for entry in entries)
        return _Costs(old, wanted, queries, held, _shares(old, before.slots.loads))

    def at_once(self) -> float:
        """The rows that are sent or written if all groups move together."""
        scattered = (slot for slot in range(self.old.slots) if self._ranges(slot) > MOST_RANGES)
        sent = sum(sum(self.held.get(slot, {}).values()) for slot in scattered)
        return sent + sum(self.derived(group) for group in range(len(self.old.groups)))

    def derived(self, group: int) -> float:
        """The rows of a group that go to a slot with another plan."""
        sender, receiver = self.old.groups[group], self.wanted.groups[group]
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
        for group, owner in enumerate(self.old.groups):
            if owner != slot:
                continue
            if self.wanted.groups[group] != target:
                ranges, target = ranges + 1, self.wanted.groups[group]
            if ranges >= MOST_RANGES:  # what stays behind is one more
                return
            if target != slot:
                yield group

    def _ranges(self, slot: int) -> int:
        return len(ranges_of_groups(slot, self.old.groups, self.wanted.groups))


def _shares(old: Routing, loads: Sequence[float]) -> tuple[float, ...]:
    """The part of its slot's load that each group has; equal parts where nothing is known."""
    known = list(loads) if len(loads) == len(old.groups) else [0.0] * len(old.groups)
    own, count = [0.0] * old.slots, [0] * old.slots
    for slot, load in zip(old.groups, known, strict=True):
        own[slot] += load
        count[slot] += 1
    return tuple(
        load / own[slot] if own[slot] else 1 / count[slot] for slot, load in zip(old.groups, known, strict=True)
    )
