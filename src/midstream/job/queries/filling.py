"""Windows of a new query that are filled over several batches, while another query goes on answering.

Rows that others keep are immutable segments; the manifest names what of them the new query has yet to be given. With
each batch the next of them go through the query's plan, about as many rows as are wanted, of few segments: of one
window after the other, and the newest first, for nobody needs those that have ended before it is their turn. A snapshot
depends only on what is valid in it, and operators do not depend on the order in which rows come that are still valid:
after the last of them the query holds what it would hold if all had come at once. Rows that only the source of a stream
still has are read again, some at a time (`backfill.py`), and are then among those that the query has yet to get.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from zlib import crc32

from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.packs import ALL_HASHES, SegmentEntry, entries_in, within
from midstream.checkpoint.query_windows import BySlot, FilledPortion, WindowFilling
from midstream.checkpoint.records import Slots
from midstream.distribution.balancing import MEMORY
from midstream.job.task.works import ArrivalFilter, Derived
from midstream.migration.moving_state_paced import LEAST_WORK, SHARE

Kept = Mapping[int, BySlot]
"""Segments by fragment, or by window, and slot."""

Ranges = dict[int, dict[int, list[SegmentEntry]]]
"""Parts of segments, by fragment and slot."""


LONGEST = 1.6
"""How many times as long as usual a batch is to take that fills windows, about; twice is too long."""

FASTER, SLOWER = 1.25, 0.25
"""By how much more and how much less is given than with the batch before, at most: one batch tells little."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is moved before a batch: so many rows of each query, or all; queries that are `idle` wait.

    `seconds` is what slots worked for the last batch, and `usual` the median of the last ones, as manifests know them.
    """

    rows: int | None = None
    idle: Collection[str] = ()
    seconds: float = 0.0
    usual: float = 0.0

    @staticmethod
    def of(before: Manifest | None, idle: Collection[str], everything: bool = False) -> Pace:
        """A share of what batches have brought lately, or `everything`."""
        if everything or before is None:
            return Pace(None, idle)
        # Of loads a part is remembered from batch to batch, so they add up to several batches' rows.
        lately = sum(before.slots.loads) * (1 - MEMORY)
        # What slots worked, not what they waited for: other processes hold a batch up too.
        spent = [float(row["seconds"].get("processor", 0.0)) for row in before.outputs.recent] or [0.0]
        return Pace(max(LEAST_WORK, round(SHARE * lately)), idle, spent[-1], median(spent))

    def among(self, queries: int) -> Pace:
        """The pace of each of so many queries that are filled at once."""
        return self if self.rows is None or queries < 2 else replace(self, rows=self.rows // queries)

    def portion(self, last: FilledPortion | None) -> FilledPortion | None:
        """What is given with the next batch, after what was given with the last; None: everything.

        So many rows that the batch takes `LONGEST` times what is usual, as the last one tells: they bring results and
        state of their own, which no count of rows foresees. However long batches are, some are given.
        """
        if self.rows is None:
            return None
        if last is None:
            return FilledPortion(max(LEAST_WORK, self.rows // 8), self.usual)
        spent, wanted = self.seconds - last.usual, (LONGEST - 1) * last.usual
        factor = FASTER if spent * FASTER <= wanted else max(SLOWER, wanted / spent)
        return replace(last, rows=max(LEAST_WORK, round(last.rows * factor)))


@dataclass(frozen=True, slots=True)
class Lying:
    """Where rows lie that a window starts with.

    They are `in_place` if they lie in the slots in which they would arrive. Otherwise each slot reads all of them, and
    takes those that arrive in it by columns of the `key`, or all if the stream comes `everywhere`. Without a key it
    cannot be told where rows arrive once partition groups have moved.
    """

    held: BySlot
    in_place: bool
    key: tuple[str, ...] | None
    everywhere: bool

    def read(self, slots: Slots, moved: bool = False) -> tuple[BySlot, ArrivalFilter | None]:
        """What each slot reads, and which of the rows it takes; groups may have `moved` since."""
        if self.in_place and not moved:
            return self.held, None
        copies = list(self.held.values())[:1] if self.everywhere else list(self.held.values())
        # Groups may have been dealt to more slots than the last batch had.
        count = max(slots.count, *(slot + 1 for slot in slots.routing))
        everything = {slot: [entry for entries in copies for entry in entries] for slot in range(count)}
        return everything, None if self.everywhere else ArrivalFilter(self.key or (), tuple(slots.routing))


def left(filling: WindowFilling, rest: Ranges, frontier: int) -> WindowFilling:
    """What a manifest says of it at a frontier: no windows once all of them are full."""
    full = not rest and not filling.unread and all(frontier >= window.until for window in filling.windows)
    return WindowFilling() if full else filling


def next_given(
    filling: WindowFilling, query: str, kept: Kept, pace: Pace, slots: Slots, frontier: int
) -> tuple[WindowFilling, list[Derived], Ranges]:
    """What of the kept rows goes through a query at a frontier with the next batch, and what is left then; it has
    begun since.

    Nothing does while rows of a group belong to several slots.
    """
    begun = filling if filling.dealt else replace(filling, dealt=_dealing(slots))
    kept = {number: filling.windows[number].needed(held, frontier) for number, held in kept.items()}
    if slots.shared or slots.doubled is not None:
        return begun, [], _within(kept, 0, ALL_HASHES)
    portion = pace.portion(filling.given) if filling.movable else None
    if portion is not None and filling.rate is not None:
        portion = replace(portion, rows=min(portion.rows, filling.rate))
    begun = replace(begun, given=portion)
    sending, rest = parted(kept, None if portion is None else portion.rows)
    moved, found = _dealing(slots) != begun.dealt, []
    for number, window in enumerate(filling.windows):
        lying = Lying(sending.get(number, {}), window.in_place, window.key, window.everywhere)
        read = lying.read(slots, moved)
        found.append(Derived(query, window.alias, window.of, window.columns, *read, window.time))
    return begun, found, rest


def _dealing(slots: Slots) -> str:
    """What tells one dealing of partition groups from another."""
    return f"{slots.count} slots, {crc32(str(list(slots.routing)).encode())}"


def parted(kept: Kept, rows: int | None) -> tuple[Ranges, Ranges]:
    """About so many rows of some segments (None: all), and what is left then.

    Of each slot the same share comes, from one fragment and one segment after the other, the newest first: few are
    opened for each batch.
    """
    total = sum(entry.rows for entry in entries_in(kept))
    if rows is None or total <= rows:
        return _within(kept, 0, ALL_HASHES), {}
    sending: Ranges = {}
    rest: Ranges = {}
    for slot in {slot for slots in kept.values() for slot in slots}:
        mine = {number: sorted(slots[slot], key=_age) for number, slots in sorted(kept.items()) if slot in slots}
        wanted = -(-rows * sum(entry.rows for entries in mine.values() for entry in entries) // total)
        for number, entries in mine.items():
            taken, left = _taken(entries, wanted)
            wanted -= sum(entry.rows for entry in taken)
            for found, parts in ((sending, taken), (rest, left)):
                if parts:
                    found.setdefault(number, {})[slot] = parts
    return sending, rest


def _age(entry: SegmentEntry) -> int:
    return -entry.latest_to


def _taken(entries: Sequence[SegmentEntry], rows: int) -> tuple[list[SegmentEntry], list[SegmentEntry]]:
    """The first of some segments, about so many rows, and the others; one of them may be in both, in part."""
    for place, entry in enumerate(entries):
        if rows <= 0:
            return list(entries[:place]), list(entries[place:])
        if entry.rows > rows:
            until = entry.hash_from + (entry.hash_to - entry.hash_from) * rows // entry.rows
            given, rest = entry.part(entry.hash_from, until), entry.part(until, entry.hash_to)
            return [*entries[:place], given], [rest, *entries[place + 1 :]]
        rows -= entry.rows
    return list(entries), []


def _within(kept: Kept, since: int, until: int) -> Ranges:
    found: Ranges = {}
    for number, slots in kept.items():
        for slot, entries in slots.items():
            if parts := within(entries, since, until):
                found.setdefault(number, {})[slot] = parts
    return found
