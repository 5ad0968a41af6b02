"""Which groups move where, and by which protocol: decisions with a forecast and a reason.

`paper_request` is D-CAPE's policy: from the machine with most to the one with least memory, half the difference, and
the sender chooses the groups. `BalanceController` weighs measured time and bytes of state together, deals many groups
between many machines at once, and asks for unevenness that lasts, for a gain that pays for the move, and for rest
between moves: while groups are under way, what is measured is not what will be. Afterwards it compares the result with
its forecast, and asks for more where it has been wrong.

Pure: measurements come in, a decision comes out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from midstream.algebra.quantities import plural
from midstream.distribution.balancing import GAIN, PATIENCE, balanced, skew, slot_loads
from midstream.distribution.move_costs import MoveCost, Moved, Prices, costs_text, in_all, predict_all
from midstream.distribution.protocols.manager import MoveRequest

Action = Literal["stay", "move", "wait"]
"""What is decided; `wait`: the move pays, and another change goes first."""


def paper_request(memory: Mapping[str, float], protocol: str, least_share: float = 0.1) -> MoveRequest | None:
    """Half the difference from the fullest machine to the emptiest; None if that is a small share of the mean.

    >>> paper_request({"a": 100.0, "b": 20.0, "c": 60.0}, "mslb")
    MoveRequest(protocol='mslb', sender='a', receiver='b', amount=40.0, groups=())
    """
    sender, receiver = max(memory, key=lambda m: (memory[m], m)), min(memory, key=lambda m: (memory[m], m))
    amount = (memory[sender] - memory[receiver]) / 2
    mean = sum(memory.values()) / len(memory)
    if sender == receiver or amount <= least_share * mean:
        return None
    return MoveRequest(protocol, sender, receiver, amount)


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """What was measured of a group: processor seconds per second, rows and bytes held, rows arriving per second."""

    owner: str
    seconds: float
    rows: float = 0.0
    bytes: float = 0.0
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class BalancePolicy:
    """When groups move.

    The fullest machine must have `skewed` times the mean in `patience` looks on end; after the move it may keep at most
    `gain` of that. What is saved within `horizon` windows must be `margin` times the cost. `memory_share` is how much
    bytes of state count beside time. Of a group's load `remembered` is kept from look to look. A group rests for `rest`
    looks after it has moved.
    """

    skewed: float = 1.3
    patience: int = PATIENCE
    gain: float = GAIN
    margin: float = 1.5
    horizon: float = 10.0
    memory_share: float = 0.25
    remembered: float = 0.5
    rest: int = 6
    tolerance: float = 0.25
    prices: Prices = field(default_factory=Prices)


@dataclass(frozen=True, slots=True)
class Forecast:
    """How full the fullest machine is beside the mean, now and when the moves are over, and what they cost and save."""

    skew: float
    expected_skew: float
    cost: float
    saving: float


@dataclass(frozen=True, slots=True)
class BalanceDecision:
    """What was decided, and why, in one paragraph."""

    action: Action
    requests: tuple[MoveRequest, ...]
    costs: tuple[MoveCost, ...]
    forecast: Forecast
    reason: str
    compared: tuple[MoveCost, ...] = ()
    """What each protocol that can do all moves is predicted to cost in all, the cheapest first."""

    def as_dict(self) -> dict[str, Any]:
        """The decision as plain values."""
        moves = [
            {"sender": r.sender, "receiver": r.receiver, "groups": list(r.groups), **cost.as_dict()}
            for r, cost in zip(self.requests, self.costs, strict=True)
        ]
        f = self.forecast
        figures = {"skew": f.skew, "expected_skew": f.expected_skew, "cost": f.cost, "saving": f.saving}
        compared = {"protocols": {cost.protocol: cost.total for cost in self.compared}} if self.compared else {}
        return {"action": self.action, "moves": moves, **figures, **compared, "reason": self.reason}


@dataclass(slots=True)
class BalanceController:
    """Decides for the groups of one key; `window` is the plan's memory in seconds.

    Moves that go `together` all go by the protocol that is cheapest for all of them.
    """

    window: float
    policy: BalancePolicy = field(default_factory=BalancePolicy)
    overfull: int = 0
    resting: dict[int, int] = field(default_factory=dict)
    expected: float | None = None
    mistrust: float = 1.0
    past: list[GroupLoad] = field(default_factory=list)
    together: bool = False

    def to_json(self) -> dict[str, Any]:
        """What a manifest says."""
        resting = {str(group): looks for group, looks in self.resting.items()}
        known = {"overfull": self.overfull, "expected": self.expected, "mistrust": self.mistrust}
        return {**known, "resting": resting}

    def recall(self, record: Mapping[str, Any]) -> None:
        """Goes on from what a manifest says, if it says something."""
        if record:
            self.overfull, self.expected, self.mistrust = (record[k] for k in ("overfull", "expected", "mistrust"))
            self.resting = {int(group): looks for group, looks in record["resting"].items()}

    def start_anew(self) -> None:
        """Forgets the loads that it has seen."""
        self.overfull, self.past = 0, []

    def consider(
        self,
        groups: Sequence[GroupLoad],
        machines: Sequence[str],
        protocols: Sequence[str],
        moving: frozenset[int] = frozenset(),
        queued: Mapping[str, float] | None = None,
        recomputed: float = 0.0,
        height: int = 2,
        fixed: Collection[int] = (),
        carried: float = 1.0,
        doubled: bool = False,
        awaited: str = "",
    ) -> BalanceDecision:
        """Decides after a look; nothing new is begun while groups are `moving` or something is `awaited`.

        Groups that are `fixed` stay.

        `queued` is for how many seconds each machine is busy with what waits in its queue; `recomputed` how many rows
        per row moved the receiver would have to recompute if states are shipped. `carried` is the part of moving state
        that must be shipped. `doubled` says that protocols which send rows twice do so with those of all groups.
        """
        self._rest()
        groups = self._smoothed(groups)
        loads = self._loads(groups)
        places = {name: i for i, name in enumerate(machines)}
        routing = [places[group.owner] for group in groups]
        before = skew(routing, loads, len(machines))
        self._review(before, moving)
        self.overfull = self.overfull + 1 if before >= self.policy.skewed else 0
        dealt = balanced(routing, loads, len(machines), {*self.resting, *fixed})
        after = skew(dealt, loads, len(machines))
        pairs = _pairs(routing, dealt)
        moved = self._moved(groups, machines, routing, pairs, queued or {}, recomputed, carried, doubled)
        choices = [predict_all(protocols, each, self.window, height, self.policy.prices) for each in moved]
        totals = in_all(choices)
        if self.together and totals:
            choices = [[cost for cost in each if cost.protocol == totals[0].protocol] for each in choices]
        costs = tuple(each[0] for each in choices if each)
        requests = tuple(
            MoveRequest(each[0].protocol, machines[old], machines[new], groups=tuple(chosen))
            for ((old, new), chosen), each in zip(pairs.items(), choices, strict=True)
            if each
        )
        saving = self._saving(groups, routing, dealt, len(machines))
        forecast = Forecast(before, after, sum(cost.total for cost in costs), saving)
        why = awaited or self._against(forecast, bool(requests), len(moving))
        if why is not None:
            return BalanceDecision("stay", (), (), forecast, f"{self._facts(forecast)} {why} Staying.")
        self.overfull, self.expected = 0, after
        self.resting.update({group: self.policy.rest for request in requests for group in request.groups})
        compared = f" {costs_text(totals)}" if self.together and len(totals) > 1 else ""
        reason = f"{self._facts(forecast)} {_moves(requests, costs)}{compared}"
        return BalanceDecision("move", requests, costs, forecast, reason, tuple(totals))

    def _loads(self, groups: Sequence[GroupLoad]) -> list[float]:
        """Each group's share of all time, and of all bytes as far as these count."""
        time, held = sum(g.seconds for g in groups) or 1.0, sum(g.bytes for g in groups) or 1.0
        share = self.policy.memory_share if any(g.bytes for g in groups) else 0.0
        return [(1 - share) * g.seconds / time + share * g.bytes / held for g in groups]

    def _smoothed(self, groups: Sequence[GroupLoad]) -> list[GroupLoad]:
        """The groups with what they took lately: a single look may catch a machine at odds with itself."""
        kept = self.policy.remembered if len(self.past) == len(groups) else 0.0
        past = self.past if kept else groups
        self.past = [
            replace(now, seconds=kept * old.seconds + (1 - kept) * now.seconds)
            for old, now in zip(past, groups, strict=True)
        ]
        return self.past

    def _rest(self) -> None:
        self.resting = {group: looks - 1 for group, looks in self.resting.items() if looks > 1}

    def _review(self, now: float, moving: frozenset[int]) -> None:
        """Once the last moves are over, compares what came of them with the forecast."""
        if self.expected is None or moving or self.resting:
            return
        wrong = now > self.expected * (1 + self.policy.tolerance)
        self.mistrust = min(4.0, self.mistrust * 2) if wrong else max(1.0, self.mistrust / 2)
        self.expected = None

    def _moved(
        self,
        groups: Sequence[GroupLoad],
        machines: Sequence[str],
        routing: Sequence[int],
        pairs: Mapping[tuple[int, int], Sequence[int]],
        queued: Mapping[str, float],
        recomputed: float,
        carried: float,
        doubled: bool,
    ) -> list[Moved]:
        """What goes from one machine to another, by pairs of them."""
        busy = slot_loads(routing, [g.seconds for g in groups], len(machines))
        count, every = sum(map(len, pairs.values())), sum(g.rate for g in groups)
        found = []
        for (old, _), chosen in pairs.items():
            rows, held = (sum(getattr(groups[g], name) for g in chosen) * carried for name in ("rows", "bytes"))
            rate = every * len(chosen) / count if doubled else sum(groups[g].rate for g in chosen)
            overload, waiting = max(0.0, busy[old] - 1.0), queued.get(machines[old], 0.0)
            found.append(Moved(rows, held, rate, recomputed * rows, overload, waiting))
        return found

    def _saving(self, groups: Sequence[GroupLoad], routing: Sequence[int], dealt: Sequence[int], count: int) -> float:
        """What the fullest machine has to do less, over the horizon."""
        seconds = [g.seconds for g in groups]
        relief = max(slot_loads(routing, seconds, count)) - max(slot_loads(dealt, seconds, count))
        return relief * self.policy.horizon * self.window

    def _facts(self, forecast: Forecast) -> str:
        return f"The fullest machine has {forecast.skew:.2f} times the mean."

    def _against(self, forecast: Forecast, movable: bool, moving: int) -> str | None:
        """What speaks against moving now."""
        policy = self.policy
        if moving:
            return f"{plural(moving, 'group is', 'groups are')} under way; what that changes must show first."
        if forecast.skew < policy.skewed:
            return f"Less than {policy.skewed:g} times is not worth a move."
        needed = int(policy.patience * self.mistrust)
        if self.overfull < needed:
            looks = plural(self.overfull, "look")
            return f"It has been so in {looks} on end; waiting for {needed}, in case it does not last."
        if not movable:
            return "No group that may move would even it out."
        if forecast.expected_skew > policy.gain * forecast.skew:
            return (
                f"The best known dealing of groups would leave it {forecast.expected_skew:.2f} times the mean; a group "
                "cannot be divided."
            )
        if forecast.saving < policy.margin * self.mistrust * forecast.cost:
            return (
                f"Moving would cost {forecast.cost:.3g} s and save {forecast.saving:.3g} s within {policy.horizon:g} "
                f"windows, less than {policy.margin * self.mistrust:g} times the cost."
            )
        return None


def _pairs(routing: Sequence[int], dealt: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    """The groups that go from one machine to another, by both."""
    pairs: dict[tuple[int, int], list[int]] = {}
    for group, (old, new) in enumerate(zip(routing, dealt, strict=True)):
        if old != new:
            pairs.setdefault((old, new), []).append(group)
    return dict(sorted(pairs.items()))


def _moves(requests: Sequence[MoveRequest], costs: Sequence[MoveCost]) -> str:
    parts = [
        f"{plural(len(r.groups), 'group')} from {r.sender} to {r.receiver} by {r.protocol} ({cost.length:.3g} s)"
        for r, cost in zip(requests, costs, strict=True)
    ]
    return f"Moving {', '.join(parts)}."
