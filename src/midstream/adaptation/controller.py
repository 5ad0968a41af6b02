"""The decision: stay, suggest, migrate, or go back.

For every plan that has been better lately, the gain over the running plan is added up, and taken back when it turns
into a loss: a cumulative sum that restarts at zero (CUSUM). Noise does not get past the least gain, a change that
does not last gives back what it added, and a plan that keeps being better soon has gained what a migration costs. So
what is lost by staying is at most about what migrating would have cost.

Pure: time, statistics and measured work come in, a decision comes out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from midstream.adaptation.migration_cost import migration_cost
from midstream.adaptation.policy import Policy
from midstream.algebra.plan import Relation
from midstream.algebra.quantities import amount, length, plural, rate, work
from midstream.algebra.statistics import Statistics
from midstream.html import escaped, section
from midstream.optimizer.cost import Constants
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.plans import Plan, best_plan, ranked_plans
from midstream.optimizer.sites.links import Links, changes
from midstream.optimizer.sites.topology import Topology

Action = Literal["stay", "suggest", "migrate", "rollback", "wait"]
"""What is decided; `wait`: the change pays, and another one goes first."""

HOUR = 3600.0
PAST_REGIMES = 6
TRACKED = 6
"""How many plans gather evidence at a time."""

RANKED = 60
"""How many plans are looked through for one that fits."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided at an instant of application time, and why, in one paragraph."""

    COLUMNS: ClassVar = ("moment", "action", "plan", "target", "reason")

    moment: int
    action: Action
    plan: Plan
    target: Plan
    cost: float
    target_cost: float
    migration_cost: float
    evidence: float
    reason: str

    def _repr_html_(self) -> str:
        plans = "" if self.plan == self.target else self.plan.change_to(self.target)._repr_html_()
        return section(self.action, f"<p>{escaped(self.reason)}</p>", plans)

    def as_dict(self) -> dict[str, Any]:
        """The decision as plain values."""
        plans = {"plan": self.plan.text, "target": self.target.text}
        costs = {"cost": self.cost, "target_cost": self.target_cost, "migration_cost": self.migration_cost}
        return {
            "moment": self.moment,
            "action": self.action,
            **plans,
            **costs,
            "evidence": self.evidence,
            "reason": self.reason,
        }


def sentence(parts: Sequence[str]) -> str:
    """Some statements as one sentence.

    >>> sentence(["the link from eu to us went from 1 ms, 1 MB/s to nothing"])
    'The link from eu to us went from 1 ms, 1 MB/s to nothing.'
    """
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


@dataclass(slots=True)
class Candidate:
    """A plan that has been better lately: by how much in all, and in how many looks on end."""

    plan: Plan
    gained: float = 0.0
    looks: int = 0


@dataclass(slots=True)
class Watch:
    """A migration that has just been made: what the new plan does against what was predicted."""

    before: Plan
    until: int
    settled: int
    measured: float = 0.0
    predicted: float = 0.0
    old_predicted: float = 0.0
    ticks: int = 0
    linked: float = 0.0
    linked_predicted: float = 0.0
    old_linked: float = 0.0
    """Seconds on links: measured, predicted, and predicted of the plan before."""

    @property
    def longer(self) -> float:
        """By how many seconds a tick rows took longer on links than predicted, if the old plan's would not have."""
        return max(0.0, self.linked - max(self.linked_predicted, self.old_linked)) / max(1, self.ticks)


@dataclass(slots=True)
class Regimes:
    """For how long the same plan has been the best: now, and in the past."""

    best: Plan | None = None
    since: int = 0
    lasted: deque[int] = field(default_factory=lambda: deque(maxlen=PAST_REGIMES))

    def note(self, moment: int, best: Plan, clearly: bool) -> None:
        """Learns which plan is the best now; `clearly`: by more than noise."""
        if self.best is None:
            self.best, self.since = best, moment
        elif best.logical != self.best.logical and clearly:
            self.lasted.append(moment - self.since)
            self.best, self.since = best, moment

    def expected(self, moment: int, otherwise: float) -> float:
        """How much longer it may be the best: as long as regimes lasted lately, or as long as this one has already."""
        if len(self.lasted) < PAST_REGIMES // 2:
            return otherwise
        usual = float(sorted(self.lasted)[len(self.lasted) // 2])
        return min(otherwise, max(usual, float(moment - self.since)))


@dataclass(slots=True)
class Controller:
    """Decides for one query; `window` is its longest window in ticks, `spread` says that its rows lie in slots.

    `topology` says where these are, `weighed` are the links by which plans were last weighed, and `news` what was new
    about them: it stays part of the reasons until it has led to something. Only plans that `fits` accepts are weighed
    against the running one.
    """

    policy: Policy
    window: int
    spread: bool = False
    topology: Topology | None = None
    weighed: Links | None = None
    news: str = ""
    candidates: dict[Relation, Candidate] = field(default_factory=dict)
    migrated_at: deque[float] = field(default_factory=deque)
    corrections: dict[Relation, float] = field(default_factory=dict)
    watching: Watch | None = None
    regimes: Regimes = field(default_factory=Regimes)
    fits: Callable[[Plan], bool] | None = None

    def consider(
        self,
        now: float,
        statistics: Statistics,
        plan: Plan,
        passed: int,
        measured_work: float | None = None,
        changed: bool = True,
    ) -> Decision | None:
        """Decides, after `passed` ticks in which the running plan did the measured work per tick.

        Nothing is weighed if nothing has `changed` and no plan is gathering evidence.
        """
        prices = (self.policy.constants or Constants()).by_tick(plan.query.domain)
        estimator = Estimator(statistics, plan.emission, prices, self.spread, self.topology)
        self._note_links()
        back = self._watch(estimator, statistics, plan, passed, measured_work)
        if back is not None or not (changed or self.candidates):
            return back
        best = self._best(estimator, plan)
        cost = self._cost(estimator, plan)
        self._note_regime(estimator, best, statistics.moment)
        self._gather(estimator, plan, best, cost, passed)
        chosen = self._strongest(estimator, best)
        return self._decide(now, estimator, plan, chosen, cost, statistics.moment)

    def _best(self, estimator: Estimator, plan: Plan) -> Plan:
        """The best plan that fits, or the running one."""
        best, fits = best_plan(plan.query, plan.emission, estimator), self.fits
        if fits is None or best.logical == plan.logical or fits(best):
            return best
        ranked = ranked_plans(plan.query, plan.emission, estimator, RANKED)[1:]
        return next((other for other in ranked if other.logical == plan.logical or fits(other)), plan)

    @property
    def links_changed(self) -> bool:
        """Whether links are others than those by which plans were last weighed."""
        return self.topology is not None and self.weighed is not None and self.weighed != self.topology.links

    def _note_links(self) -> None:
        if self.topology is None:
            return
        if self.weighed is not None and self.links_changed:
            self.news = f"{sentence(changes(self.weighed, self.topology.links))} "
        self.weighed = dict(self.topology.links)

    def busy(self, moment: int) -> bool:
        """Whether it is following something: a plan that has been better, or one that is new."""
        return bool(self.candidates) or (self.watching is not None and moment >= self.watching.settled)

    def migrated(self, now: float, moment: int, before: Plan, after: Plan) -> None:
        """Learns that a migration has been made."""
        self.migrated_at.append(now)
        self.candidates.clear()
        self.news = ""
        settled = moment + self.window
        self.watching = Watch(before, settled + int(self.policy.watch * self.window), settled)

    def called_off(self) -> None:
        """Notes that a migration was cancelled: evidence for a change has to accumulate again."""
        self.candidates.clear()

    def _cost(self, estimator: Estimator, plan: Plan) -> float:
        return estimator.per_tick(plan.logical) * self.corrections.get(plan.logical, 1.0)

    def _note_regime(self, estimator: Estimator, best: Plan, moment: int) -> None:
        before = self.regimes.best
        limit = 0.0 if before is None else self._cost(estimator, before) * (1 - self.policy.least_gain)
        self.regimes.note(moment, best, self._cost(estimator, best) < limit)

    def _gather(self, estimator: Estimator, plan: Plan, best: Plan, cost: float, passed: int) -> None:
        if best.logical != plan.logical:
            self.candidates.setdefault(best.logical, Candidate(best))
        for logical, candidate in list(self.candidates.items()):
            gain = cost * (1 - self.policy.least_gain) - self._cost(estimator, candidate.plan)
            candidate.gained = max(0.0, candidate.gained + gain * passed)
            candidate.looks = candidate.looks + 1 if gain > 0 else 0
            if candidate.gained == 0.0:
                del self.candidates[logical]
        if len(self.candidates) > TRACKED:
            strongest = sorted(self.candidates.items(), key=lambda item: -item[1].gained)[:TRACKED]
            self.candidates = dict(strongest)

    def _strongest(self, estimator: Estimator, best: Plan) -> Candidate:
        """The best plan; or one with evidence already that is nearly as good."""
        cheapest = self._cost(estimator, best)
        near = [c for c in self.candidates.values() if self._cost(estimator, c.plan) <= 1.05 * cheapest]
        return max(near, key=lambda c: c.gained, default=Candidate(best))

    def _decide(
        self, now: float, estimator: Estimator, plan: Plan, candidate: Candidate, cost: float, moment: int
    ) -> Decision:
        policy, target, domain = self.policy, candidate.plan, plan.query.domain
        better = self._cost(estimator, target)
        price = migration_cost(plan.logical, target.logical, estimator)
        lasting = self.regimes.expected(moment, policy.horizon * self.window)
        saving = (cost - better) * lasting
        facts = (
            f"The running plan {plan.text} costs {work(cost, domain)}; the best known, {target.text}, would cost "
            f"{rate(better, domain)}, and a migration {amount(price)} rows of work once."
        )
        while self.migrated_at and now - self.migrated_at[0] > HOUR:
            self.migrated_at.popleft()
        action: Action = "stay"
        if target.logical == plan.logical:
            why = f"The running plan {plan.text} is the best known: it costs {work(cost, domain)}. Staying."
            news, self.news = self.news, ""
            return Decision(moment, action, plan, plan, cost, cost, 0.0, 0.0, f"{news}{why}")
        if better > cost * (1 - policy.least_gain):
            why = (
                f"A plan that is less than {policy.least_gain:.0%} better is not worth a change. Staying."
                if better < cost
                else "No known plan is better. Staying."
            )
        elif saving < policy.margin * price:
            why = (
                f"In the {length(lasting, domain)} for which that is expected to last it would save {amount(saving)}, "
                f"less than {policy.margin:g} times the migration's cost. Staying."
            )
        elif candidate.gained < policy.evidence * price or candidate.looks < policy.patience:
            looks, patience = plural(candidate.looks, "look"), plural(policy.patience, "look")
            why = (
                f"It has been better by {amount(candidate.gained)} so far, in {looks}; waiting for "
                f"{amount(policy.evidence * price)} and {patience}, in case it does not last. Staying."
            )
        elif len(self.migrated_at) >= policy.per_hour:
            enough = plural(policy.per_hour, "migration")
            why = f"It would pay, but {enough} in the last hour are all that may be. Staying."
        else:
            action = "migrate" if policy.mode == "auto" else "suggest"
            doing = "Migrating" if action == "migrate" else "Suggesting a migration"
            why = (
                f"It has been better by {amount(candidate.gained)} already and would save {amount(saving)} in the "
                f"{length(lasting, domain)} for which that is expected to last. {doing}."
            )
        reason = f"{self.news}{facts} {why}"
        return Decision(moment, action, plan, target, cost, better, price, candidate.gained, reason)

    def _watch(
        self, estimator: Estimator, statistics: Statistics, plan: Plan, passed: int, measured: float | None
    ) -> Decision | None:
        """Follows a new plan; a decision only if it goes back."""
        watch, moment = self.watching, statistics.moment
        if watch is None or measured is None or moment < watch.settled:
            return None
        now, before = estimator.cost(plan.logical), estimator.cost(watch.before.logical)
        watch.measured += measured * passed
        watch.predicted += now.work * passed
        watch.old_predicted += before.work * passed
        watch.linked += (statistics.linked or 0.0) * passed
        watch.linked_predicted += now.linked * passed
        watch.old_linked += before.linked * passed
        watch.ticks += passed
        if moment < watch.until or watch.predicted <= 0:
            return None
        self.watching = None
        off, what = self._off(estimator, watch, plan)
        if not what:
            return None
        self.corrections[plan.logical] = off
        cost, old = self._cost(estimator, plan), self._cost(estimator, watch.before)
        price = migration_cost(plan.logical, watch.before.logical, estimator)
        action: Action = "rollback" if self.policy.mode == "auto" else "suggest"
        reason = (
            f"Since the migration to {plan.text} {what} than {watch.before.text} would do. "
            f"Going back, and from now on counting {off:.2f} times its predicted cost."
        )
        return Decision(moment, action, plan, watch.before, cost, old, price, 0.0, reason)

    def _off(self, estimator: Estimator, watch: Watch, plan: Plan) -> tuple[float, str]:
        """How far a watched plan is off its prediction, and in what; nothing if it is as good as was thought."""
        off = watch.measured / watch.predicted
        if off > 1 + self.policy.tolerance and watch.measured > watch.old_predicted:
            return off, f"its work is {off:.2f} times what was predicted, and more"
        cost, longer = estimator.per_tick(plan.logical), estimator.constants.second * watch.longer
        late = watch.linked > (1 + self.policy.tolerance) * watch.linked_predicted
        if late and longer > self.policy.least_gain * cost:
            ratio = watch.linked / max(watch.linked_predicted, 1e-12)
            return 1 + longer / cost, f"its rows take {ratio:.2f} times as long on links as predicted, and longer"
        return off, ""
