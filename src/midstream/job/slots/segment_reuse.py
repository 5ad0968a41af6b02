"""Which segments of a state serve another plan, routing or number of slots where they lie, and which must be sent.

Where old and new plan place a state's rows by the same hash of the same key, a row changes its slot only with its
partition group. Slots that lose no group keep their segments. States are sorted by group, so a group is a range of each
segment, and another slot has it by naming that range: nothing is written. Only where this would cut segments into too
many ranges, or where a state is still sorted by its key alone, the rows themselves are sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from midstream.checkpoint.packs import SegmentEntry, joined, within
from midstream.distribution.fragments import Routing
from midstream.distribution.moves import Shipment
from midstream.job.task.exchange import bits_of

MOST_RANGES = 64
"""Into how many ranges a segment may be cut before its rows are rather sent."""


@dataclass(slots=True)
class SegmentReuse:
    """What new slots can use as it is, what old slots must send, and of what a slot keeps the part that stays."""

    kept: dict[int, list[SegmentEntry]] = field(default_factory=dict)
    sent: dict[int, Sequence[SegmentEntry]] = field(default_factory=dict)
    parted: dict[int, list[SegmentEntry]] = field(default_factory=dict)

    def into(self, slots: Collection[int] | None) -> SegmentReuse:
        """What of it is for some new slots; None stands for all."""
        if slots is None:
            return self
        kept, parted = ({s: e for s, e in part.items() if s in slots} for part in (self.kept, self.parted))
        return SegmentReuse(kept, self.sent, parted)


def reuse_of(
    shipment: Shipment, stored: Mapping[int, Sequence[SegmentEntry]], old: Routing, new: Routing
) -> SegmentReuse:
    """Parts the segments of a shipment's state by what becomes of them."""
    result = SegmentReuse()
    origin = shipment.origin
    if origin is None:
        return result
    named = {slot: [e for e in entries if (e.state, e.key) == origin.name] for slot, entries in stored.items()}
    usable = shipment.what == "state" and shipment.as_is
    if origin.placed.everywhere:  # every slot that has it has all of it: one of them is enough
        named = dict([(slot, entries) for slot, entries in sorted(named.items()) if entries][:1])
        if shipment.placed.everywhere and usable:
            mine = [replace(e, state=shipment.name, key=shipment.key) for es in named.values() for e in es]
            return SegmentReuse({slot: list(mine) for slot in shipment.placed.copied_to(new.slots)} if mine else {})
    if shipment.placed.everywhere:
        result.sent.update({slot: entries for slot, entries in named.items() if entries})
        return result
    shared = shipment.placed.shared_key(origin.placed) if usable else None
    lay, lie = old.table(origin.placed.key_class), new.table(shipment.placed.key_class)
    for slot, entries in named.items():
        if not entries:
            continue
        if usable and shipment.placed.anywhere and origin.placed.anywhere:
            ranges: list[Range] | None = [(slot % new.slots, 0, 2**64)]
        else:
            ranges = None if shared is None else _ranges(shipment, shared, slot, lay, lie)
        if ranges is None:
            result.sent[slot] = entries
            if shared is not None and slot in lie:
                result.parted[slot] = [replace(e, state=shipment.name, key=shipment.key) for e in entries]
            continue
        for target, hash_from, hash_to in ranges:
            parts = within(entries, hash_from, hash_to)
            mine = [replace(entry, state=shipment.name, key=shipment.key) for entry in parts]
            result.kept.setdefault(target, []).extend(mine)
    result.kept = {target: joined(mine) for target, mine in result.kept.items()}
    return result


Range = tuple[int, int, int]


def _ranges(
    shipment: Shipment, shared: tuple[str, ...], slot: int, old: Sequence[int], new: Sequence[int]
) -> list[Range] | None:
    """Which ranges of hashes go to which slots; None if the rows must be looked at."""
    whole = (0, 2**64)
    if not shared:
        return [(slot, *whole)]
    mine = _groups_of(slot, old, new)
    if mine and all(target == slot for _, target in mine):
        return [(slot, *whole)]
    if not mine or not shipment.grouped:
        return None
    ranges = list(_runs(mine, 64 - bits_of(len(old))))
    return ranges if len(ranges) <= MOST_RANGES else None


def ranges_of_groups(slot: int, old: Sequence[int], new: Sequence[int]) -> list[Range]:
    """Which ranges of hashes of a state that is sorted by group go from a slot to which slots."""
    return list(_runs(_groups_of(slot, old, new), 64 - bits_of(len(old))))


def _groups_of(slot: int, old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    """The groups of a slot, with the slots that they go to."""
    return [(group, new[group]) for group, owner in enumerate(old) if owner == slot]


def _runs(groups: Sequence[tuple[int, int]], width: int) -> Iterator[Range]:
    """Ranges of hashes that together are all of them, one for each run of a slot's groups that go to the same slot.

    A group is `2 ** width` hashes. Groups that the slot does not own have no rows in it, so a range may lie over them.
    """
    runs = [(target, next(run)[0]) for target, run in groupby(groups, key=lambda at: at[1])]
    starts = [0, *(first << width for _, first in runs[1:])]
    for (target, _), (start, end) in zip(runs, pairwise([*starts, 2**64]), strict=False):
        yield target, start, end
