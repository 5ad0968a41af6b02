"""Which partition groups are spread over several slots, because a key of theirs is hotter than a slot.

A group cannot be divided by reassigning groups: if it has more to do than a slot's fair share, the slot that has it is
the fullest, whatever else it has. Such a group is spread once this has lasted, if every query can have a stream of it
spread, and if the fullest slot then has enough less to do. It is brought home once it has cooled well below what made
it hot. Afterwards the result is compared with the forecast: where spreading did not help, the group comes home and
rests for long.

Pure: measurements come in, a decision comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from midstream.algebra.quantities import plural
from midstream.distribution.balancing import GAIN, PATIENCE, balanced, skew, slot_loads

Action = Literal["stay", "spread", "bring_home", "wait"]
"""What is decided; `wait`: sharing the group pays, and another change goes first."""


@dataclass(frozen=True, slots=True)
class HotPolicy:
    """When groups are spread.

    A group is hot that has `hot` times a slot's fair share in `patience` looks on end, and has cooled once it has less
    than `cool` times that. It is spread over so many slots that each has at most `part` of a fair share of it. The
    fullest slot may at most keep `gain` of what it has. After a change a group rests for `rest` looks; a forecast may
    be wrong by `tolerance`.
    """

    hot: float = 1.1
    cool: float = 0.7
    part: float = 0.5
    patience: int = PATIENCE
    gain: float = GAIN
    rest: int = 6
    tolerance: float = 0.25
    remembered: float = 0.5


@dataclass(frozen=True, slots=True)
class HotGroup:
    """What was measured of a group: its share of all work, and of which streams its rows are.

    `slots` are those that share it, and `key` says which key it is hot by, if that is known. What comes through an
    exchange has a `label`, and no rows of streams.
    """

    share: float
    rows: Mapping[str, int]
    slots: tuple[int, ...] = ()
    key: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class HotDecision:
    """What was decided about one group, and why; a forecast of how full the fullest slot is beside the mean."""

    action: Action
    reason: str
    skew: float
    expected_skew: float
    group: int | None = None
    stream: str = ""
    ways: int = 1
    key_class: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The decision as plain values."""
        figures = {"skew": round(self.skew, 3), "expected_skew": round(self.expected_skew, 3)}
        about = {"group": self.group, "stream": self.stream, "ways": self.ways} if self.group is not None else {}
        about |= {"by": self.key_class} if self.key_class else {}
        return {"kind": "keys", "action": self.action, **about, **figures, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Dealing:
    """The slots of groups, and the groups' shares of the work."""

    routing: Sequence[int]
    loads: Sequence[float]
    slots: int

    @property
    def fullest_alone(self) -> float:
        """How full the fullest slot is beside the mean if groups are dealt evenly, as far as that goes."""
        return skew(balanced(self.routing, self.loads, self.slots), self.loads, self.slots)

    def fullest(self, group: int, part: float, ways: int) -> float:
        """How full the fullest slot is beside the mean if `part` of a group is spread, and the rest is dealt evenly.

        What is not spread of it counts in every slot that shares it.
        """
        each = self.loads[group] * (part / ways + (1 - part))
        loads, places = [*self.loads, *[each] * ways], [*self.routing, *range(ways)]
        loads[group] = 0.0
        after = slot_loads(balanced(places, loads, self.slots, range(len(self.loads), len(loads))), loads, self.slots)
        return max(after) * self.slots / (sum(self.loads) or 1.0)


Refusal = Callable[[str], str]
"""Says why a stream cannot be spread; empty if it can."""


@dataclass(slots=True)
class HotController:
    """Decides after each look which group is spread or brought home, one at a time."""

    policy: HotPolicy = field(default_factory=HotPolicy)
    past: dict[int, float] = field(default_factory=dict)
    hot_for: dict[int, int] = field(default_factory=dict)
    cool_for: dict[int, int] = field(default_factory=dict)
    resting: dict[int, int] = field(default_factory=dict)
    watched: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Of groups that were spread: how full the fullest slot was before, and was to be after."""

    def consider(
        self,
        groups: Mapping[int, HotGroup],
        routing: Sequence[int],
        loads: Sequence[float],
        busy: Sequence[float],
        refused: Refusal,
    ) -> HotDecision:
        """Decides after a look at the groups that may be hot or are shared.

        `loads` are all groups' shares of the work, `busy` is how much each slot has worked.
        """
        policy, slots = self.policy, len(busy)
        self._look(groups, slots)
        skew = max(busy) * slots / (sum(busy) or 1.0)
        for group, known in sorted(groups.items()):
            if known.slots and (why := self._against_sharing(group, skew)):
                return self._brought_home(group, known, skew, why)
        hot = {g: self.past[g] * slots for g, known in groups.items() if not known.slots and g in self.hot_for}
        if not hot:
            return HotDecision("stay", "No group has more to do than a slot's fair share. Staying.", skew, skew)
        group = max(hot, key=lambda g: (hot[g], -g))
        fact = f"{_named(group, groups[group])} has {hot[group]:.2f} times a slot's fair share."
        if self.resting.get(group):
            return HotDecision("stay", f"{fact} It rests for {self.resting[group]} more batches. Staying.", skew, skew)
        if self.hot_for[group] < policy.patience:
            batches = plural(self.hot_for[group], "batch", "batches")
            waits = f"It has been so in {batches} on end; waiting for {policy.patience}."
            return HotDecision("stay", f"{fact} {waits} Staying.", skew, skew)
        return self._spread(group, groups[group], Dealing(routing, loads, slots), skew, fact, refused)

    def _look(self, groups: Mapping[int, HotGroup], slots: int) -> None:
        kept, policy = self.policy.remembered, self.policy
        self.past = {
            g: kept * self.past[g] + (1 - kept) * known.share if g in self.past else known.share
            for g, known in groups.items()
        }
        hot = [g for g, known in groups.items() if not known.slots and self.past[g] * slots >= policy.hot]
        cool = [g for g, known in groups.items() if known.slots and self.past[g] * slots < policy.cool]
        self.hot_for = {g: self.hot_for.get(g, 0) + 1 for g in hot}
        self.cool_for = {g: self.cool_for.get(g, 0) + 1 for g in cool}
        self.resting = {g: looks - 1 for g, looks in self.resting.items() if looks > 1}

    def _against_sharing(self, group: int, skew: float) -> str:
        """Why a group that is spread is to come home; empty if it is not."""
        if self.cool_for.get(group, 0) >= self.policy.patience:
            cooled = f"less than {self.policy.cool:g} times a slot's fair share"
            return f"it has had {cooled} in {plural(self.cool_for[group], 'batch', 'batches')} on end."
        if group in self.watched and group not in self.resting:
            before, expected = self.watched.pop(group)
            if skew > before and skew > expected * (1 + self.policy.tolerance):
                return (
                    f"the fullest slot was to have {expected:.2f} times the mean and has {skew:.2f} times; it had "
                    f"{before:.2f} times before."
                )
        return ""

    def _brought_home(self, group: int, known: HotGroup, skew: float, why: str) -> HotDecision:
        cooled = group in self.cool_for
        self.resting[group] = self.policy.rest * (1 if cooled else 8)
        self.watched.pop(group, None)
        return HotDecision("bring_home", f"{_named(group, known)} comes home: {why}", skew, skew, group)

    def _spread(
        self,
        group: int,
        known: HotGroup,
        dealing: Dealing,
        skew: float,
        fact: str,
        refused: Refusal,
    ) -> HotDecision:
        ways = min(dealing.slots, max(2, math.ceil(self.past[group] * dealing.slots / self.policy.part)))
        reasons, alone = [], min(skew, dealing.fullest_alone)
        for stream in sorted(known.rows, key=lambda s: (-known.rows[s], s)):
            if why := refused(stream):
                reasons.append(why)
                continue
            part = known.rows[stream] / max(1, sum(known.rows.values()))
            expected = dealing.fullest(group, part, ways)
            if expected > self.policy.gain * alone:
                reasons.append(
                    f"with {stream} spread over {ways} slots the fullest would have {expected:.2f} times the mean, "
                    f"not much less than the {alone:.2f} that other groups can make it"
                )
                continue
            self.resting[group], self.watched[group] = self.policy.rest, (skew, expected)
            self.hot_for.pop(group)
            reason = (
                f"{fact} The fullest slot has {skew:.2f} times the mean; with the rows of {stream} spread over {ways} "
                f"slots it would have {expected:.2f} times."
            )
            return HotDecision("spread", reason, skew, expected, group, stream, ways)
        why = "; ".join(reasons) or "its rows come through an exchange"
        return HotDecision("stay", f"{fact} It stays in one slot: {why}.", skew, skew, group)

    def to_json(self) -> dict[str, Any]:
        """What a manifest says."""
        names = ("past", "hot_for", "cool_for", "resting", "watched")
        return {name: {str(group): value for group, value in getattr(self, name).items()} for name in names}

    def start_anew(self) -> None:
        """Forgets the loads that it has seen."""
        self.hot_for, self.past = {}, {}

    def recall(self, record: Mapping[str, Mapping[str, Any]]) -> None:
        """Goes on from what a manifest says."""
        for name in ("past", "hot_for", "cool_for", "resting"):
            setattr(self, name, {int(group): value for group, value in record.get(name, {}).items()})
        self.watched = {int(group): (pair[0], pair[1]) for group, pair in record.get("watched", {}).items()}


def _named(group: int, known: HotGroup) -> str:
    return f"{known.label or f'Group {group}'}{f', with {known.key},' if known.key else ''}"
