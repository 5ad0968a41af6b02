"""Which plan a query would go over to: what plans cost by what is known of the streams, and what a migration costs.

A plan is expected to stay the best for as long as such changes have lasted lately. After a migration the work that the
new plan does, and the time that its rows take on links, are held against what was predicted of both plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from midstream.adaptation.decider import (
    Candidate,
    Caution,
    DeciderMemory,
    DecisionOutcome,
    DecisionVerdict,
    DecisionWatch,
    Now,
    Standing,
    Worth,
    decide,
    made,
)
from midstream.adaptation.migration_cost import migration_cost
from midstream.adaptation.policy import Policy
from midstream.algebra.statistics import Statistics
from midstream.algebra.time import amount, length, rate, work
from midstream.html import escaped, section
from midstream.optimizer.cost import Constants
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.plans import Plan, best_plan, ranked_plans
from midstream.optimizer.sites.links import changes, links_from_json, links_to_json
from midstream.optimizer.sites.topology import Topology

PAST_REGIMES = 6
RANKED = 60
"""How many plans are looked through for one that fits."""

NEAR = 1.05
"""Plans that cost at most so many times what the best does are as good as it."""

CHANGES = ("migrate", "rollback")
"""The actions by which a query goes over to another plan."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided at an instant of application time, and why, in one paragraph."""

    COLUMNS: ClassVar = ("moment", "action", "plan", "target", "reason")

    moment: int
    action: str
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
        figures = {name: getattr(self, name) for name in ("cost", "target_cost", "migration_cost", "evidence")}
        plans = {"plan": self.plan.text, "target": self.target.text}
        return {"moment": self.moment, "action": self.action, **plans, **figures, "reason": self.reason}

    @staticmethod
    def of(record: Mapping[str, Any], plan_of: Callable[[str], Plan]) -> Decision:
        """A decision from its plain values."""
        values = {f: record[f] for f in Decision.__dataclass_fields__ if f in record}
        return Decision(**{**values, "plan": plan_of(record["plan"]), "target": plan_of(record["target"])})

    def stayed(self, why: str) -> Decision:
        """The decision to stay after all."""
        return replace(self, action="stay", reason=f"{self.reason} {why} Staying.")


@dataclass(frozen=True, slots=True)
class Regimes:
    """For how long the same plan has been the best: now, and in the past."""

    best: str | None = None
    since: int = 0
    lasted: tuple[int, ...] = ()

    def noted(self, moment: int, best: str, clearly: bool) -> Regimes:
        """Learns which plan is the best now; `clearly`: by more than noise."""
        if self.best is None:
            return Regimes(best, moment)
        if best == self.best or not clearly:
            return self
        return Regimes(best, moment, (*self.lasted, moment - self.since)[-PAST_REGIMES:])

    def expected(self, moment: int, otherwise: float) -> float:
        """How much longer it may be the best: as long as regimes lasted lately, or as long as this one has already."""
        if len(self.lasted) < PAST_REGIMES // 2:
            return otherwise
        usual = float(sorted(self.lasted)[len(self.lasted) // 2])
        return min(otherwise, max(usual, float(moment - self.since)))


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """What is remembered about a query's plans, which are known by their texts.

    `weighed` are the links by which plans were last weighed, and `news` is what was new about them: it stays part of
    reasons until it has led to something.
    """

    changes: DeciderMemory = field(default_factory=DeciderMemory)
    regimes: Regimes = field(default_factory=Regimes)
    weighed: Any = None
    news: str = ""


@dataclass(frozen=True, slots=True)
class PlanLook:
    """What is known when plans are weighed: what each would cost, and `mistrust` of what was predicted before."""

    plan: Plan
    estimator: Estimator
    statistics: Statistics
    policy: Policy
    mistrust: Mapping[str, float]

    def cost(self, plan: Plan) -> float:
        """What a plan costs per tick."""
        return self.estimator.per_tick(plan.logical) * self.mistrust.get(plan.text, 1.0)

    def best(self, fits: Callable[[Plan], bool] | None) -> Plan:
        """The best plan that fits, or the running one."""
        running, estimator = self.plan, self.estimator
        best = best_plan(running.query, running.emission, estimator)
        if fits is None or best.logical == running.logical or fits(best):
            return best
        ranked = ranked_plans(running.query, running.emission, estimator, RANKED)[1:]
        return next((other for other in ranked if other.logical == running.logical or fits(other)), running)

    def candidates(self, best: Plan, tracked: Iterable[Plan], lasting: float) -> list[Candidate[Plan]]:
        """The best plan and those that were better lately, of which only those count that are nearly as good as it."""
        cost, cheapest = self.cost(self.plan), self.cost(best)
        plans = {plan.logical: plan for plan in (best, *tracked) if plan.logical != self.plan.logical}
        return [self._candidate(plan, cost, NEAR * cheapest, lasting) for plan in plans.values()]

    def _candidate(self, target: Plan, cost: float, near: float, lasting: float) -> Candidate[Plan]:
        better, domain, least = self.cost(target), self.plan.query.domain, self.policy.least_gain
        gain = cost * (1 - least) - better
        if better > near:
            return Candidate(target.text, "migrate", target, gain, against="Another plan is better.", rank=-1.0)
        price, saving = migration_cost(self.plan.logical, target.logical, self.estimator), (cost - better) * lasting
        against = ""
        if gain < 0:
            small = f"A plan that is less than {least:.0%} better is not worth a change."
            against = small if better < cost else "No known plan is better."
        fact = (
            f"The running plan {self.plan.text} costs {work(cost, domain)}; the best known, {target.text}, would cost "
            f"{rate(better, domain)}, and a migration {amount(price)} rows of work once."
        )
        last = length(lasting, domain)
        done = f"It would save {amount(saving)} in the {last} for which that is expected to last."
        worth = Worth(price, saving, last, amount)
        return Candidate(target.text, "migrate", target, gain, fact, done, against, worth)

    def came(self, before: Plan, measured_work: float | None, passed: int) -> dict[str, DecisionOutcome]:
        """What came of the migration from another plan: the work, and the seconds on links, in `passed` ticks."""
        now, old = self.estimator.cost(self.plan.logical), self.estimator.cost(before.logical)
        if measured_work is None or now.work <= 0:
            return {}
        whole = self.estimator.per_tick(self.plan.logical) / max(self.estimator.constants.second, 1e-12)
        each = {
            "work": (measured_work, now.work, old.work, now.work),
            "links": (self.statistics.linked or 0.0, now.linked, old.linked, whole),
        }
        return {what: DecisionOutcome(*(figure * passed for figure in figures)) for what, figures in each.items()}


_WRONG = {
    "work": "its work is {:.2f} times what was predicted, and more",
    "links": "its rows take {:.2f} times as long on links as predicted, and longer",
}


@dataclass(slots=True)
class PlanDecider:
    """Decides for one query; `window` is its longest window in ticks, `spread` says that its rows lie in slots.

    `planned` makes a plan from its text, `topology` says where slots are. Only plans that `fits` accepts are weighed
    against the running one. `plans` are those that were met, by their texts.
    """

    policy: Policy
    window: int
    planned: Callable[[str], Plan]
    spread: bool = False
    topology: Topology | None = None
    fits: Callable[[Plan], bool] | None = None
    memory: PlanMemory = field(default_factory=PlanMemory)
    plans: dict[str, Plan] = field(default_factory=dict)

    def plan_of(self, text: str) -> Plan:
        """A plan by its text."""
        return self.plans.get(text) or self.plans.setdefault(text, self.planned(text))

    @property
    def caution(self) -> Caution:
        """How sure of a migration one has to be."""
        p, window = self.policy, float(self.window)
        return Caution(
            p.patience, p.margin, p.evidence, p.per_hour, 0.0, window, p.watch * window, p.tolerance, p.least_gain
        )

    @property
    def links_changed(self) -> bool:
        """Whether links are others than those by which plans were last weighed."""
        known = self.memory.weighed
        return self.topology is not None and known is not None and links_from_json(known) != self.topology.links

    @property
    def following(self) -> bool:
        """Whether a plan has been better lately."""
        return bool(self.memory.changes.standing)

    def busy(self, moment: int) -> bool:
        """Whether it is following something: a plan that has been better, or one that is new."""
        return self.following or any(moment >= watch.settled for watch in self.memory.changes.watches.values())

    def migrated(self, clock: float, moment: int, before: Plan, after: Plan) -> None:
        """Learns that a migration has been made."""
        self.plans |= {before.text: before, after.text: after}
        kept, now = replace(self.memory.changes, watches={}), Now(moment, clock=clock)
        changed = made(kept, now, self.caution, Candidate(after.text, "migrate", after, 0.0, undo=before.text))
        self.memory = replace(self.memory, changes=changed, news="")

    def called_off(self) -> None:
        """Notes that a migration was cancelled: evidence for a change has to accumulate again."""
        self.memory = replace(self.memory, changes=self.memory.changes.forgotten())

    def consider(
        self,
        clock: float,
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
        look = PlanLook(plan, estimator, statistics, self.policy, self.memory.changes.mistrust)
        self._note_links()
        weighing = changed or self.following
        best, candidates = self._weighed(look) if weighing else (plan, [])

        def came(name: str, watch: DecisionWatch) -> Mapping[str, DecisionOutcome]:
            return look.came(self.plan_of(watch.undo), measured_work, passed)

        now = Now(statistics.moment, passed, clock)
        remembered, verdict = decide(self.memory.changes, now, candidates, self.caution, came)
        self.memory = replace(self.memory, changes=remembered)
        if verdict.action == "back":
            return self._back(replace(look, mistrust=remembered.mistrust), verdict)
        return self._decided(look, best, verdict) if weighing else None

    def _weighed(self, look: PlanLook) -> tuple[Plan, list[Candidate[Plan]]]:
        """The best plan, and the candidates."""
        best, moment, regimes = look.best(self.fits), look.statistics.moment, self.memory.regimes
        limit = 0.0 if regimes.best is None else look.cost(self.plan_of(regimes.best)) * (1 - self.policy.least_gain)
        regimes = regimes.noted(moment, best.text, look.cost(best) < limit)
        self.plans[best.text], self.memory = best, replace(self.memory, regimes=regimes)
        tracked = [self.plan_of(text) for text in self.memory.changes.standing]
        return best, look.candidates(best, tracked, regimes.expected(moment, self.policy.horizon * self.window))

    def _note_links(self) -> None:
        if self.topology is None:
            return
        links, news = self.topology.links, self.memory.news
        if self.links_changed:
            told = "; ".join(changes(links_from_json(self.memory.weighed), links))
            news = f"{told[:1].upper()}{told[1:]}. "
        self.memory = replace(self.memory, weighed=links_to_json(links), news=news)

    def _decided(self, look: PlanLook, best: Plan, verdict: DecisionVerdict[Plan]) -> Decision:
        """The verdict as a decision; if nothing is as good as the running plan, that it stays for this reason."""
        plan, moment, cost, news = look.plan, look.statistics.moment, look.cost(look.plan), self.memory.news
        found = verdict.candidate
        if found is None or found.rank < 0:
            self.memory = replace(self.memory, news="")
            why = f"The running plan {plan.text} is the best known: it costs {work(cost, plan.query.domain)}. Staying."
            return Decision(moment, "stay", plan, plan, cost, cost, 0.0, 0.0, f"{news}{why}")
        action, reason = verdict.action, f"{news}{verdict.reason}"
        if action != "stay":
            action = "migrate" if self.policy.mode == "auto" else "suggest"
            reason += " Migrating." if action == "migrate" else " Suggesting a migration."
        gained = self.memory.changes.standing.get(found.name, Standing()).gained
        return Decision(
            moment, action, plan, found.change, cost, look.cost(found.change), found.worth.price, gained, reason
        )

    def _back(self, look: PlanLook, verdict: DecisionVerdict[Plan]) -> Decision:
        """The decision to go back to the plan of before."""
        assert verdict.watch is not None
        plan, before, came = look.plan, self.plan_of(verdict.watch.undo), verdict.watch.came[verdict.wrong]
        price = migration_cost(plan.logical, before.logical, look.estimator)
        what = _WRONG[verdict.wrong].format(came.measured / max(came.expected, 1e-12))
        reason = (
            f"Since the migration to {plan.text} {what} than {before.text} would do. "
            f"Going back, and from now on counting {look.mistrust[plan.text]:.2f} times its predicted cost."
        )
        action = "rollback" if self.policy.mode == "auto" else "suggest"
        return Decision(
            look.statistics.moment, action, plan, before, look.cost(plan), look.cost(before), price, 0.0, reason
        )
