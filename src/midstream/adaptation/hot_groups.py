"""Which partition groups several slots would share, because a key of theirs is hotter than a slot.

A group cannot be divided by reassigning groups: if it has more to do than a slot's fair share, the slot that has it is
the fullest, whatever else it has. Such a group is spread if every query can have a stream of it spread, and if the
fullest slot then has enough less to do. It is brought home once it has cooled well below what made it hot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from midstream.adaptation.decider import Candidate, Caution
from midstream.distribution.balancing import GAIN, PATIENCE, balanced, skew, slot_loads

SPREAD, HOME = "spread", "bring_home"


@dataclass(frozen=True, slots=True)
class HotPolicy:
    """When groups are spread.

    A group is hot that has `hot` times a slot's fair share, and has cooled once it has less than `cool` times that. It
    is spread over so many slots that each has at most `part` of a fair share of it. The fullest slot may at most keep
    `gain` of what it has.
    """

    hot: float = 1.1
    cool: float = 0.7
    part: float = 0.5
    gain: float = GAIN
    caution: Caution = Caution(PATIENCE)


@dataclass(frozen=True, slots=True)
class HotGroup:
    """What was measured of a group: its share of all work, and of which streams its rows are.

    `slots` are those that share it, and `key` says which key it is hot by, if that is known. What comes through an
    exchange has a `key_class`, and rows by its keys instead of by streams.
    """

    group: int
    share: float
    rows: Mapping[str, int]
    slots: tuple[int, ...] = ()
    key: str = ""
    key_class: str = ""
    words: str = ""

    def __str__(self) -> str:
        return f"Group {self.group}{f' {self.words}' if self.words else ''}{f', with {self.key},' if self.key else ''}"


@dataclass(frozen=True, slots=True)
class Sharing:
    """A group of which a stream, or what comes by a key, is spread over so many slots; with none it comes home."""

    hot: HotGroup
    stream: str = ""
    ways: int = 1

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        by = {"by": self.hot.key_class} if self.hot.key_class else {}
        return {"group": self.hot.group, "stream": self.stream, "ways": self.ways, **by}


@dataclass(frozen=True, slots=True)
class HotDealing:
    """The slots of groups, the groups' shares of the work, and how full the fullest slot is beside the mean."""

    routing: Sequence[int]
    loads: Sequence[float]
    slots: int
    skew: float

    @property
    def fullest_alone(self) -> float:
        """How full the fullest slot is beside the mean if groups are dealt evenly, as far as that goes."""
        return min(self.skew, skew(balanced(self.routing, self.loads, self.slots), self.loads, self.slots))

    def fullest(self, group: int, part: float, ways: int) -> float:
        """How full the fullest slot is beside the mean if `part` of a group is spread, and the rest is dealt evenly.

        What is not spread of it counts in every slot that shares it.
        """
        each = self.loads[group] * (part / ways + (1 - part))
        loads, places = [*self.loads, *[each] * ways], [*self.routing, *range(ways)]
        loads[group] = 0.0
        after = slot_loads(balanced(places, loads, self.slots, range(len(self.loads), len(loads))), loads, self.slots)
        return max(after) * self.slots / (sum(self.loads) or 1.0)


Refusal = Callable[[HotGroup, str], str]
"""Says why a stream of a group cannot be spread; empty if it can."""


def hot_groups(
    groups: Mapping[int, HotGroup], dealing: HotDealing, policy: HotPolicy, refused: Refusal
) -> list[Candidate[Sharing]]:
    """The groups that could be spread or brought home; those that are spread are named by their places."""
    found = []
    for place, hot in groups.items():
        share = hot.share * dealing.slots
        if hot.slots:
            cooled = f"{hot} comes home: it has had less than {policy.cool:g} times a slot's fair share for a while."
            found.append(_home(place, hot, policy.cool - share, cooled, "" if share < policy.cool else "It is hot."))
        elif share >= policy.hot:
            found.append(_spread(place, hot, dealing, policy, refused))
    return found


def _home(place: int, hot: HotGroup, gain: float, done: str, against: str) -> Candidate[Sharing]:
    """A group that several slots share comes home."""
    name = str(place)
    return Candidate(
        f"home {name}", HOME, Sharing(hot), gain, f"{hot} is shared.", done, against, rank=gain, rests=(name,)
    )


def _spread(place: int, hot: HotGroup, dealing: HotDealing, policy: HotPolicy, refused: Refusal) -> Candidate[Sharing]:
    """A group that is hotter than a slot is spread by the first of its streams with which that can be, and pays."""
    share, alone, reasons = hot.share * dealing.slots, dealing.fullest_alone, []
    ways = min(dealing.slots, max(2, math.ceil(share / policy.part)))
    fact = f"{hot} has {share:.2f} times a slot's fair share."
    name = str(place)
    kept = Candidate(name, SPREAD, Sharing(hot), share - policy.hot, fact, rank=share, before=dealing.skew)
    for stream in sorted(hot.rows, key=lambda s: (-hot.rows[s], s)):
        if why := refused(hot, stream):
            reasons.append(why)
            continue
        expected = dealing.fullest(place, hot.rows[stream] / max(1, sum(hot.rows.values())), ways)
        if expected > policy.gain * alone:
            reasons.append(
                f"with {stream} spread over {ways} slots the fullest would have {expected:.2f} times the mean, not "
                f"much less than the {alone:.2f} that other groups can make it"
            )
            continue
        done = (
            f"The fullest slot has {dealing.skew:.2f} times the mean; with the rows of {stream} spread over {ways} "
            f"slots it would have {expected:.2f} times."
        )
        change = Sharing(hot, stream, ways)
        return replace(kept, change=change, done=done, expected=expected, undo=HOME, rests=(name,))
    return replace(kept, against=f"It stays in one slot: {'; '.join(reasons) or 'its rows come through an exchange'}.")
