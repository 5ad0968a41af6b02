"""Which groups would move where, and by which protocol, to even out what slots have to do.

Measured time and bytes of state count together. Many groups are dealt between many slots at once; what rests or is
fixed stays. A move pays that leaves the fullest slot enough less to do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.adaptation.decider import Candidate, Caution, Worth
from midstream.algebra.time import plural
from midstream.distribution.balancing import GAIN, PATIENCE, balanced, skew, slot_loads
from midstream.distribution.move_costs import MoveCost, Moved, Prices, costs_text, in_all, predict_all

NAME = "groups"


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """What was measured of a group: processor seconds per second, rows and bytes held, rows arriving per second."""

    owner: int
    seconds: float
    rows: float = 0.0
    bytes: float = 0.0
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class BalancePolicy:
    """When groups move: the fullest slot must have `skewed` times the mean, and keeps at most `gain` of that.

    What is saved within `horizon` windows must pay. `memory_share` is how much bytes of state count beside time.
    """

    skewed: float = 1.3
    gain: float = GAIN
    horizon: float = 10.0
    memory_share: float = 0.25
    prices: Prices = field(default_factory=Prices)
    caution: Caution = Caution(PATIENCE)


@dataclass(frozen=True, slots=True)
class MoveTerms:
    """How groups could move: by the protocols that are right; a window has so many seconds.

    `carried` is the part of moving state that must be shipped. `doubled` says that protocols which send rows twice do
    so with those of all groups. Slots are busy for `queued` seconds with what waits for them.
    """

    protocols: Sequence[str]
    window: float
    carried: float = 1.0
    doubled: bool = False
    queued: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupMoves:
    """The slots of all groups if they move, with what goes between each two slots, and what that takes and gives."""

    places: tuple[int, ...]
    pairs: Mapping[tuple[int, int], tuple[int, ...]]
    moved: tuple[Moved, ...]
    costs: tuple[MoveCost, ...]
    """What the protocols that can do all of it are predicted to cost, the cheapest first."""
    skew: float
    expected_skew: float
    cost: float
    saving: float

    @property
    def protocol(self) -> str:
        """The cheapest protocol."""
        return self.costs[0].protocol if self.costs else ""

    def as_dict(self, size: int = 0) -> dict[str, Any]:
        """The same as plain values; with moves if there are so many groups in a class, by their numbers in it."""
        figures = {name: getattr(self, name) for name in ("skew", "expected_skew", "cost", "saving")}
        moves = [
            {"sender": str(old), "receiver": str(new), "groups": [g % size for g in groups], "protocol": self.protocol}
            for (old, new), groups in (self.pairs if size else {}).items()
        ]
        compared = {"protocols": {cost.protocol: cost.total for cost in self.costs}} if size else {}
        return {"moves": moves, **figures, **compared}


def group_moves(
    groups: Sequence[GroupLoad],
    slots: int,
    terms: MoveTerms,
    policy: BalancePolicy,
    fixed: Collection[int] = (),
    under_way: str = "",
) -> Candidate[GroupMoves]:
    """The move that would even slots out best; nothing is begun while something is `under_way`."""
    loads, routing = _loads(groups, policy.memory_share), [group.owner for group in groups]
    dealt = balanced(routing, loads, slots, fixed)
    before, after = (skew(places, loads, slots) for places in (routing, dealt))
    pairs = _pairs(routing, dealt)
    moved = tuple(_moved(groups, slots, pairs, terms))
    costs = in_all([predict_all(terms.protocols, each, terms.window, policy.prices) for each in moved])
    seconds = [group.seconds for group in groups]
    relief = max(slot_loads(routing, seconds, slots)) - max(slot_loads(dealt, seconds, slots))
    saving, cost = relief * policy.horizon * terms.window, costs[0].total if costs else 0.0
    moves = GroupMoves(tuple(dealt), pairs, moved, tuple(costs), before, after, cost, saving)
    return Candidate(
        NAME,
        "move",
        moves,
        before - policy.skewed,
        f"The fullest slot has {before:.2f} times the mean.",
        _done(moves),
        under_way or _against(moves, policy),
        Worth(cost, saving, f"{policy.horizon:g} windows"),
        before=before,
        expected=after,
        rests=tuple(str(group) for chosen in pairs.values() for group in chosen),
    )


def _against(moves: GroupMoves, policy: BalancePolicy) -> str:
    if moves.skew < policy.skewed:
        return f"Less than {policy.skewed:g} times is not worth a move."
    if not moves.pairs or not moves.costs:
        return "No group that may move would even it out."
    if moves.expected_skew > policy.gain * moves.skew:
        return (
            f"The best known dealing of groups would leave it {moves.expected_skew:.2f} times the mean; a group cannot "
            "be divided."
        )
    return ""


def _done(moves: GroupMoves) -> str:
    if not moves.costs:
        return ""
    each = (f"{plural(len(g), 'group')} from {old} to {new}" for (old, new), g in moves.pairs.items())
    compared = f" {costs_text(moves.costs)}" if len(moves.costs) > 1 else ""
    return f"Moving {', '.join(each)} by {moves.protocol} ({moves.costs[0].length:.3g} s).{compared}"


def _loads(groups: Sequence[GroupLoad], memory_share: float) -> list[float]:
    """Each group's share of all time, and of all bytes as far as these count."""
    time, held = sum(g.seconds for g in groups) or 1.0, sum(g.bytes for g in groups) or 1.0
    share = memory_share if any(g.bytes for g in groups) else 0.0
    return [(1 - share) * g.seconds / time + share * g.bytes / held for g in groups]


def _pairs(routing: Sequence[int], dealt: Sequence[int]) -> dict[tuple[int, int], tuple[int, ...]]:
    """The groups that go from one slot to another, by both."""
    pairs: dict[tuple[int, int], tuple[int, ...]] = {}
    for group, pair in enumerate(zip(routing, dealt, strict=True)):
        if pair[0] != pair[1]:
            pairs[pair] = (*pairs.get(pair, ()), group)
    return dict(sorted(pairs.items()))


def _moved(
    groups: Sequence[GroupLoad], slots: int, pairs: Mapping[tuple[int, int], Sequence[int]], terms: MoveTerms
) -> list[Moved]:
    """What goes from one slot to another, by pairs of them."""
    busy = slot_loads([g.owner for g in groups], [g.seconds for g in groups], slots)
    count, every = sum(map(len, pairs.values())), sum(g.rate for g in groups)
    found = []
    for (old, _), chosen in pairs.items():
        rows, held = (sum(getattr(groups[g], name) for g in chosen) * terms.carried for name in ("rows", "bytes"))
        rate = every * len(chosen) / count if terms.doubled else sum(groups[g].rate for g in chosen)
        found.append(Moved(rows, held, rate, max(0.0, busy[old] - 1.0), terms.queued.get(old, 0.0)))
    return found
