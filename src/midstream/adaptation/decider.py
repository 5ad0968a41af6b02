"""One decider for everything that a job changes by itself: plans, slots of groups, groups that slots share, slots.

After each look, rules say what could be changed: candidates, each with what it would gain now, what it would save while
that lasts, what it costs, and what speaks against it (`plan_changes`, `group_moves`, `hot_groups`, `slot_numbers`). Of
every candidate the gain is added up, and taken back when it turns into a loss: a cumulative sum that restarts at zero
(CUSUM). Noise does not get past the least gain, a change that does not last gives back what it added, and a candidate
that keeps being better soon has gained what it costs. So what is lost by staying is at most about what changing would
have cost.

After a change, what came of it is held against the forecast. Where it is clearly worse, the change is undone if it can
be, and one has to be surer of the next.

Pure: what was measured and remembered come in, a verdict and what to remember come out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from operator import add
from typing import Any, Generic, TypeVar

from midstream.algebra.time import plural

Change = TypeVar("Change")

HOUR = 3600.0
LONG = 8
"""How many times as long as others a change rests that was undone."""

SUREST = 4.0
"""By how much, at most, one has to be surer after a wrong forecast."""

TRACKED = 6
"""How many candidates gather evidence at a time."""


@dataclass(frozen=True, slots=True)
class Caution:
    """How sure of a change one has to be.

    It must have been better in `patience` looks on end, by `evidence` times its price in all, and must save `margin`
    times its price. There are at most `per_hour` in an hour. What has changed rests for `rest`. Once a change has
    `settled` it is watched for as long as `watched` says; then it may be worse than its forecast by `tolerance`, and
    worse than what was before by `least` of the whole.
    """

    patience: int = 3
    margin: float = 1.5
    evidence: float = 0.0
    per_hour: int | None = None
    rest: float = 6.0
    settled: float = 6.0
    watched: float = 0.0
    tolerance: float = 0.25
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Worth:
    """What a change costs, and what it would save in the time for which it is expected to last, in some `unit`."""

    price: float = 0.0
    saving: float = math.inf
    lasting: str = ""
    unit: Callable[[float], str] = "{:.3g} s".format


FREE = Worth()


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Change]):
    """A change that could be made; by its `name` it is the same from look to look, and in manifests.

    `gain` is what it would be better by now, per unit of time, beyond the least that is worth a change. `against` says
    what speaks against it whatever the evidence, `done` what a reason says if it is made. Of candidates that may be
    made, that of the highest `rank` is, and of equal ones that with most evidence. `before` and `expected` are what is
    measured now and would be then, `undo` is what it could go back to; with neither it is not watched. After it the
    names in `rests` rest, and are watched no more.
    """

    name: str
    action: str
    change: Change
    gain: float
    fact: str = ""
    done: str = ""
    against: str = ""
    worth: Worth = FREE
    rank: float = 0.0
    before: float = 0.0
    expected: float | None = None
    undo: str = ""
    rests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionOutcome:
    """What is measured of a change, what was expected, and what would be otherwise, as parts of a `whole`; or sums."""

    measured: float
    expected: float
    otherwise: float = 0.0
    whole: float = 0.0

    def __add__(self, other: DecisionOutcome) -> DecisionOutcome:
        return DecisionOutcome(*map(add, astuple(self), astuple(other)))

    @property
    def off(self) -> float:
        """How many times the forecast it is, as far as it is more than would be otherwise."""
        worse = self.measured - max(self.expected, self.otherwise)
        return 1 + max(0.0, worse) / max(self.whole or self.expected, 1e-12)

    def wrong(self, caution: Caution) -> bool:
        """Whether it is clearly worse than the forecast, and than what would be otherwise."""
        return self.measured > (1 + caution.tolerance) * self.expected and self.off - 1 > caution.least


@dataclass(frozen=True, slots=True)
class DecisionWatch:
    """A change that was made: what was measured before, was expected, and came of it in all since it has settled."""

    settled: float
    until: float
    before: float = 0.0
    expected: float = 0.0
    undo: str = ""
    """What it goes back to; empty if it cannot."""
    came: Mapping[str, DecisionOutcome] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """A candidate that has been better lately: by how much in all, and in how many looks on end."""

    gained: float = 0.0
    looks: int = 0


@dataclass(frozen=True, slots=True)
class DeciderMemory:
    """What is remembered between two looks about changes of one kind, by the names of candidates.

    `mistrust` is how many times the forecast a change has come out lately, `resting` until when something stays, and
    `made` when changes were made in the last hour.
    """

    standing: Mapping[str, Standing] = field(default_factory=dict)
    resting: Mapping[str, float] = field(default_factory=dict)
    watches: Mapping[str, DecisionWatch] = field(default_factory=dict)
    mistrust: Mapping[str, float] = field(default_factory=dict)
    made: tuple[float, ...] = ()

    def sure(self, name: str) -> float:
        """By how much surer of a change one has to be because forecasts were wrong."""
        return min(SUREST, self.mistrust.get(name, 1.0))

    def forgotten(self) -> DeciderMemory:
        """Without the evidence for changes: it has to be gathered again."""
        return replace(self, standing={})


@dataclass(frozen=True, slots=True)
class Now:
    """When it is: a `moment` of the time by which changes rest, `passed` since the last look, the clock in seconds."""

    moment: float
    passed: float = 1.0
    clock: float = 0.0


@dataclass(frozen=True, slots=True)
class DecisionVerdict(Generic[Change]):
    """What is decided, and why; `back`: the change of a `name` is undone, because of what its `watch` found `wrong`."""

    action: str
    reason: str
    candidate: Candidate[Change] | None = None
    name: str = ""
    watch: DecisionWatch | None = None
    wrong: str = ""


Outcomes = Callable[[str, DecisionWatch], Mapping[str, DecisionOutcome]]
"""What came of a change since the last look, by what was measured."""


def decide(
    memory: DeciderMemory,
    now: Now,
    candidates: Sequence[Candidate[Change]],
    caution: Caution,
    outcomes: Outcomes = lambda name, watch: {},
    nothing: str = "",
) -> tuple[DeciderMemory, DecisionVerdict[Change]]:
    """Decides after a look; `nothing` is the reason to stay if there are no candidates."""
    memory, undone = _reviewed(memory, now, caution, outcomes)
    if undone is not None:
        return memory, undone
    memory = _gathered(memory, now, candidates)
    known = memory.standing
    ordered = sorted(candidates, key=lambda c: (-c.rank, -known.get(c.name, Standing()).gained))
    reasons = [_against(memory, now, candidate, caution) for candidate in ordered]
    for candidate, why in zip(ordered, reasons, strict=True):
        if not why:
            return memory, DecisionVerdict(candidate.action, f"{candidate.fact} {candidate.done}".strip(), candidate)
    if not ordered:
        return memory, DecisionVerdict("stay", nothing)
    return memory, DecisionVerdict("stay", f"{ordered[0].fact} {reasons[0]} Staying.".strip(), ordered[0])


def _reviewed(
    memory: DeciderMemory, now: Now, caution: Caution, outcomes: Outcomes
) -> tuple[DeciderMemory, DecisionVerdict[Any] | None]:
    """Adds to what came of changes; a verdict if one of them is undone."""
    resting = {name: until for name, until in memory.resting.items() if until > now.moment}
    memory = replace(memory, resting=resting, made=tuple(t for t in memory.made if now.clock - t <= HOUR))
    for name, watch in memory.watches.items():
        if now.moment < watch.settled:
            continue
        found = outcomes(name, watch)
        came = {what: watch.came[what] + more if what in watch.came else more for what, more in found.items()}
        if not found or now.moment < watch.until:
            memory = replace(memory, watches={**memory.watches, name: replace(watch, came={**watch.came, **came})})
            continue
        memory = replace(memory, watches={n: w for n, w in memory.watches.items() if n != name})
        wrong = {what: outcome.off for what, outcome in came.items() if outcome.wrong(caution)}
        trust = max(wrong.values(), default=max(1.0, memory.mistrust.get(name, 1.0) / 2))
        others = {other: kept for other, kept in memory.mistrust.items() if other != name}
        memory = replace(memory, mistrust=others if trust == 1.0 else {**others, name: trust})
        if wrong and watch.undo:
            rests = {**memory.resting, name: now.moment + LONG * caution.rest}
            watch = replace(watch, came=came)
            return replace(memory, resting=rests), DecisionVerdict("back", "", None, name, watch, next(iter(wrong)))
    return memory, None


def _gathered(memory: DeciderMemory, now: Now, candidates: Iterable[Candidate[Change]]) -> DeciderMemory:
    """Adds the gains of candidates up; those without any are forgotten."""
    found = {}
    for candidate in candidates:
        before = memory.standing.get(candidate.name, Standing())
        gained = max(0.0, before.gained + candidate.gain * now.passed)
        if gained:
            found[candidate.name] = Standing(gained, before.looks + 1 if candidate.gain > 0 else 0)
    strongest = sorted(found.items(), key=lambda item: -item[1].gained)[:TRACKED]
    return replace(memory, standing=dict(strongest))


def _against(memory: DeciderMemory, now: Now, candidate: Candidate[Change], caution: Caution) -> str:
    """What speaks against a change now; empty if nothing does."""
    standing, sure = memory.standing.get(candidate.name, Standing()), memory.sure(candidate.name)
    worth, unit, margin = candidate.worth, candidate.worth.unit, sure * caution.margin
    if candidate.against:
        return candidate.against
    if worth.saving < margin * worth.price:
        return (
            f"In the {worth.lasting} for which that is expected to last it would save {unit(worth.saving)}, "
            f"less than {margin:g} times its cost, {unit(worth.price)}."
        )
    if candidate.name in memory.resting:
        return f"It has changed lately and rests for {memory.resting[candidate.name] - now.moment:g} more batches."
    patience, needed = math.ceil(sure * caution.patience), caution.evidence * worth.price
    if standing.looks < patience or standing.gained < needed:
        looks = plural(standing.looks, "look")
        so_far = f"by {unit(standing.gained)} so far, in {looks}" if needed else f"in {looks} on end"
        wanted = f"{unit(needed)} and {plural(patience, 'look')}" if needed else f"{patience}"
        return f"It has been better {so_far}; waiting for {wanted}, in case it does not last."
    if caution.per_hour is not None and len(memory.made) >= caution.per_hour:
        return f"It would pay, but {plural(caution.per_hour, 'change')} in the last hour are all that may be."
    return ""


def made(memory: DeciderMemory, now: Now, caution: Caution, candidate: Candidate[Change]) -> DeciderMemory:
    """What is remembered once a candidate's change is made: evidence for others is gathered anew."""
    settled = now.moment + caution.settled
    watches = {name: watch for name, watch in memory.watches.items() if name not in candidate.rests}
    if candidate.expected is not None or candidate.undo:
        until, expected = settled + caution.watched, candidate.expected or 0.0
        watches[candidate.name] = DecisionWatch(settled, until, candidate.before, expected, candidate.undo)
    return replace(
        memory,
        standing={},
        resting={**memory.resting, **{name: now.moment + caution.rest for name in candidate.rests}},
        watches=watches,
        made=(*memory.made, now.clock),
    )
