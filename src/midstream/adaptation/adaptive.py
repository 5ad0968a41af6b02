"""A query that watches itself: what is known of its streams, and what is decided about its plan.

A runtime shows it what it feeds and when a batch is over, and carries out what it decides: nothing else is asked of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from midstream.adaptation.drift import Alarm, Drift
from midstream.adaptation.observer import Observer
from midstream.adaptation.plan_changes import CHANGES, Decision, PlanDecider, PlanMemory
from midstream.adaptation.policy import Policy
from midstream.adaptation.sampling_pace import Attention
from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import longest_validity
from midstream.algebra.plan import Window, walk_plan
from midstream.algebra.statistics import Estimate, Statistics
from midstream.algebra.time import ticks
from midstream.codec import read, written
from midstream.errors import MigrationError
from midstream.migration.auto import Auto
from midstream.migration.execution import SingleBox
from midstream.migration.protocol import Strategy
from midstream.migration.registry import STRATEGIES
from midstream.operators.elements import Elements, Ticks
from midstream.optimizer.plans import Plan, plan_query

REMEMBERED = 1000
"""How many decisions are kept."""

WAYS = ("auto", "moving_state", "genmig")
"""Strategies to try, in order; those that refuse are passed over."""

ALERT = Attention(following=4, enough=512, resting=4)
"""Looks may become rare, because the running plan's work, seen in every batch, gives the alarm."""


class AdaptiveQuery(Protocol):
    """What a runtime's query must offer."""

    plan: Plan
    execution: Any

    @property
    def migrating_to(self) -> Plan | None:
        """The plan that it goes over to, or is being verified with."""

    def migrate(
        self, plan: Plan, strategy: str | Strategy = ..., *, trigger: str = ..., verify: int | None = ...
    ) -> None:
        """Starts to go over to another plan."""


class Adaptive:
    """What is known of one running query's streams, and decides about its plan."""

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        functions: Mapping[str, UserFunction] | None = None,
        clock: Callable[[], float] | None = None,
        observer: Observer | None = None,
        spread: bool = False,
        planned: Callable[[str], Plan] | None = None,
    ) -> None:
        self.policy = policy
        self.clock = clock or (lambda: 0.0)
        self.observer = observer or Observer(plan.query, functions, clock, ALERT)
        self.alarm = Alarm()
        self.decider = PlanDecider(policy, _longest(plan), planned or partial(plan_query, plan.query), spread)
        self.drift = Drift(self.observer.wanted.classes)
        self.history: deque[Decision] = deque(maxlen=REMEMBERED)
        self.checked_at = 0
        self.batches = 0
        self.running: Plan = plan
        self.refuted: dict[str, str] = {}
        """Plans that are not to be tried again, and why."""
        self.verify = None if policy.verify is None else ticks(policy.verify, plan.query.domain)

    @property
    def statistics(self) -> Statistics:
        """What is known now."""
        return self.observer.snapshot()

    def take(self, alias: str, elements: Elements, times: Ticks) -> None:
        """Sees what a source is fed with."""
        if self.policy.mode != "off":
            self.observer.take(alias, elements, times)

    def after_batch(self, query: AdaptiveQuery) -> Decision | None:
        """Looks at a batch that is over, decides if it is time to, and asks the query to migrate if that is decided."""
        if self.policy.mode == "off":
            return None
        settled = isinstance(query.execution, SingleBox) and query.migrating_to is None
        box = query.execution.box if settled else None
        if box is not None and self.alarm.rings(box, self.observer.batch_rows):
            self.observer.sample_at_once()
        watched = partial(self.observer.watched, box) if box is not None else None
        decision = self.end_batch(query.plan, watched)
        if decision is None:
            return None
        if decision.action in CHANGES:
            decision = self._carry_out(query, decision)
        if decision.action == "stay" and self.history and self.history[-1].action == "stay":
            self.history.pop()  # of a run of decisions to stay only the last is kept
        self.history.append(decision)
        return decision

    def end_batch(self, plan: Plan, watched: Callable[[Statistics], Statistics] | None) -> Decision | None:
        """Decides about the plan that runs, if it is time to; not while there is nothing to watch, in a migration.

        `watched` adds to statistics what the plan's operators did.
        """
        observer, decider = self.observer, self.decider
        observer.end_batch()
        self.batches += 1
        if watched is None:
            return None
        if plan is not self.running and plan.logical != self.running.logical:
            decider.migrated(self.clock(), observer.latest or 0, self.running, plan)
            self.running = plan
        if self.batches < self.policy.warm_up or self.batches % self.policy.check_every:
            return None
        passed, relinked = observer.passed_ticks - self.checked_at, decider.links_changed
        if passed <= 0 or not (observer.fresh or relinked):
            return None
        self.checked_at = observer.passed_ticks
        jumped, statistics = observer.jumped, observer.snapshot()
        changed = self.drift.noticed(statistics, jumped) or relinked
        if not changed and not decider.busy(statistics.moment):
            observer.pace.note_sample(True)
            return None
        statistics = watched(statistics)
        done = sum(o.probed + o.inserted for o in statistics.operators)
        decision = decider.consider(self.clock(), statistics, plan, passed, done, changed)
        observer.pace.note_sample(not changed and not decider.following)
        observer.pace.follow(decider.following, len(observer.sources))
        return decision

    def called_off(self, plan: Plan, reason: str) -> None:
        """Learns that the query has not gone over to a plan, and shall not try to again."""
        self.refuted[plan.text] = reason
        self.decider.called_off()

    def _carry_out(self, query: AdaptiveQuery, decision: Decision) -> Decision:
        if decision.target.text in self.refuted:
            return refused(decision, [self.refuted[decision.target.text]])
        refusals = []
        cheapest = Auto(STRATEGIES, "cheapest", self.policy.silence * self.decider.window)
        for strategy in (cheapest, *WAYS[1:]):
            try:
                query.migrate(decision.target, strategy, trigger=decision.reason, verify=self.verify)
            except MigrationError as error:
                refusals.append(f"{getattr(strategy, 'name', strategy)}: {error.message}")
                continue
            return decision
        return refused(decision, refusals)

    def kept(self) -> dict[str, Any]:
        """All that a process must know to go on as if nothing had happened."""
        return {
            "observer": self.observer.kept(),
            "plans": written(self.decider.memory),
            "drift": [written(self.drift.reference, dict[str, Estimate]), self.drift.unweighed],
            "looks": [self.checked_at, self.batches],
            "running": self.running.text,
        }

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Goes on, fresh, from what another has kept."""
        self.observer.go_on(kept["observer"])
        self.decider.memory = read(PlanMemory, kept["plans"])
        self.drift.reference, self.drift.unweighed = read(dict[str, Estimate], kept["drift"][0]), kept["drift"][1]
        self.checked_at, self.batches = kept["looks"]
        self.running = self.decider.plan_of(kept["running"])


def refused(decision: Decision, refusals: Sequence[str]) -> Decision:
    """The decision to stay after all, because no strategy can do what was decided."""
    return decision.stayed(f"But no strategy can do it ({'; '.join(refusals)}).")


def _longest(plan: Plan) -> int:
    spans = [longest_validity(n.spec) for n in walk_plan(plan.query) if isinstance(n, Window)]
    bounded = [span for span in spans if span is not None]
    return max(bounded, default=1000)
