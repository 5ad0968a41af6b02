"""A query that watches itself: an observer and a controller at the edge of a runtime.

A runtime shows it what it feeds and when a batch is over, and carries out what it decides: nothing else is asked of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from midstream.adaptation.alarm import Alarm
from midstream.adaptation.controller import Controller, Decision
from midstream.adaptation.drift import Drift
from midstream.adaptation.observer import Observer
from midstream.adaptation.policy import Policy
from midstream.adaptation.sampling_pace import Attention
from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import longest_validity
from midstream.algebra.plan import Window, walk_plan
from midstream.algebra.statistics import Statistics
from midstream.algebra.time import ticks
from midstream.errors import MigrationError
from midstream.migration.auto import Auto
from midstream.migration.execution import SingleBox
from midstream.migration.protocol import Strategy
from midstream.migration.registry import STRATEGIES
from midstream.operators.elements import Elements, Ticks
from midstream.optimizer.plans import Plan

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
    """Watches one running query and keeps it on a good plan."""

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        functions: Mapping[str, UserFunction] | None = None,
        clock: Callable[[], float] | None = None,
        observer: Observer | None = None,
        spread: bool = False,
        remembered: int = REMEMBERED,
    ) -> None:
        self.policy = policy
        self.clock = clock or (lambda: 0.0)
        self.observer = observer or Observer(plan.query, functions, clock, ALERT)
        self.alarm = Alarm()
        self.controller = Controller(policy, _longest(plan), spread)
        cheapest = Auto(STRATEGIES, "cheapest", policy.silence * self.controller.window)
        self.ways: tuple[str | Strategy, ...] = (cheapest, *WAYS[1:])
        self.drift = Drift(self.observer.wanted.classes)
        self.history: deque[Decision] = deque(maxlen=remembered)
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
        if decision.action in ("migrate", "rollback"):
            decision = self._carry_out(query, decision)
        self.remember(decision)
        return decision

    def end_batch(self, plan: Plan, watched: Callable[[Statistics], Statistics] | None) -> Decision | None:
        """Decides about the plan that runs, if it is time to; not while there is nothing to watch, in a migration.

        `watched` adds to statistics what the plan's operators did.
        """
        self.observer.end_batch()
        self.batches += 1
        if watched is None:
            return None
        if plan is not self.running and plan.logical != self.running.logical:
            self.controller.migrated(self.clock(), self.observer.latest or 0, self.running, plan)
            self.running = plan
        if self.batches < self.policy.warm_up or self.batches % self.policy.check_every:
            return None
        passed = self.observer.passed_ticks - self.checked_at
        relinked = self.controller.links_changed
        if passed <= 0 or not (self.observer.fresh or relinked):
            return None
        self.checked_at = self.observer.passed_ticks
        jumped, statistics = self.observer.jumped, self.observer.snapshot()
        changed = self.drift.noticed(statistics, jumped) or relinked
        if not changed and not self.controller.busy(statistics.moment):
            self.observer.pace.note_sample(True)
            return None
        statistics = watched(statistics)
        work = sum(o.probed + o.inserted for o in statistics.operators)
        decision = self.controller.consider(self.clock(), statistics, plan, passed, work, changed)
        following = bool(self.controller.candidates)
        self.observer.pace.note_sample(not changed and not following)
        self.observer.pace.follow(following, len(self.observer.sources))
        return decision

    def called_off(self, plan: Plan, reason: str) -> None:
        """Learns that the query has not gone over to a plan, and shall not try to again."""
        self.refuted[plan.text] = reason
        self.controller.called_off()

    def _carry_out(self, query: AdaptiveQuery, decision: Decision) -> Decision:
        if decision.target.text in self.refuted:
            return refused(decision, [self.refuted[decision.target.text]])
        refusals = []
        for strategy in self.ways:
            try:
                query.migrate(decision.target, strategy, trigger=decision.reason, verify=self.verify)
            except MigrationError as error:
                refusals.append(f"{getattr(strategy, 'name', strategy)}: {error.message}")
                continue
            return decision
        return refused(decision, refusals)

    def correct(self, before: Decision, after: Decision) -> None:
        """Keeps what has become of a decision instead of it."""
        found = [after if decision is before else decision for decision in self.history]
        self.history = deque(found, maxlen=self.history.maxlen)

    def remember(self, decision: Decision) -> None:
        """Keeps what was done, and of a run of equal decisions to stay only the last."""
        if decision.action == "stay" and self.history and self.history[-1].action == "stay":
            self.history.pop()
        self.history.append(decision)


def refused(decision: Decision, refusals: Sequence[str]) -> Decision:
    """The decision to stay after all, because no strategy can do what was decided."""
    reason = f"{decision.reason} But no strategy can do it ({'; '.join(refusals)}). Staying."
    return replace(decision, action="stay", reason=reason)


def _longest(plan: Plan) -> int:
    spans = [longest_validity(n.spec) for n in walk_plan(plan.query) if isinstance(n, Window)]
    bounded = [span for span in spans if span is not None]
    return max(bounded, default=1000)
