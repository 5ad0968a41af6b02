"""Adaptive queries of a job, as the driver watches them.

Slots report what they saw of a batch; the driver puts it together into one observer, as if all rows had passed one
place, and lets the controller decide before the batch is committed. What is known and what was decided is part of the
batch's manifest, and a decided migration begins with the next batch by what the manifest says: a batch that is repeated
starts from the last manifest again, whatever this process had made of it in the meantime.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from midstream.adaptation.adaptive import WAYS, Adaptive, refused
from midstream.adaptation.controller import Decision
from midstream.adaptation.observer import Observer
from midstream.adaptation.policy import Policy
from midstream.adaptation.sampling import LOOK_AT, put_together
from midstream.adaptation.sampling_pace import Attention
from midstream.adaptation.snapshot import keep, restore
from midstream.algebra.statistics import Statistics
from midstream.errors import MidstreamError
from midstream.job.operator_totals import OperatorTotals
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.both_at_once import held_up
from midstream.job.slots.links import link_seconds
from midstream.job.task.reports import Report
from midstream.job.task.samples import SampleRequest
from midstream.job.task.sides import base_name
from midstream.job.watched import sources_of, summary_of
from midstream.optimizer.plans import Plan, plan_query

if TYPE_CHECKING:
    from midstream.job.batch import Batch

log = logging.getLogger(__name__)

ATTENTION = Attention(apart=(4, 8), rows_per_look=25_000, following=4, most_sampled=3072)
"""Looks are rare, and frequent when something has changed; what is remembered goes into every manifest."""

NEVER = -1
ROWS_OF_ALL_SLOTS = 8192
DECISIONS = 32
"""How many decisions manifests remember."""

Way = Callable[..., None]
"""Raises a MigrationError if a query cannot go over to a plan by a strategy; `alone`: in one slot."""


@dataclass(slots=True)
class Wishes:
    """What was decided and begins with the next batch: for the query, and by slots for themselves."""

    whole: dict[str, Any] | None = None
    by_slot: dict[int, dict[str, Any]] = field(default_factory=dict)


class Watcher:
    """Watches one query."""

    def __init__(self, query: RunningQuery, policy: Policy) -> None:
        self.name = query.name
        self.policy = policy
        self.relation = query.plan.query
        self.emit_every = query.emit_every
        self.functions = query.functions
        self.now = 0.0
        """When the batch that is looked at began, in seconds since 1970."""
        self.as_of: int | None = NEVER
        """The batch up to which it has seen everything; None: before the first one."""
        self.current = query.plan
        """The plan that runs, as the session has it: plans are known by their texts."""
        self._begin(query.plan)
        self.sources = sources_of(query, self.adaptive.observer)
        self.slots: dict[int, SlotWatcher] = {}
        """The watchers of slots that decide for themselves."""

    def _begin(self, plan: Plan) -> None:
        observer = Observer(self.relation, self.functions, attention=ATTENTION)
        self.adaptive = Adaptive(
            plan, self.policy, clock=lambda: self.now, observer=observer, spread=True, remembered=DECISIONS
        )
        self.wishes = Wishes()
        self.decided: Decision | None = None
        self.operators = OperatorTotals()
        self.summary: dict[str, Any] = {}

    def plan_of(self, text: str) -> Plan:
        """A plan of the query by its text."""
        if text == self.current.text:
            return self.current
        return plan_query(self.relation, text or None, self.emit_every)

    def go_on(self, batch_id: int | None, kept: Mapping[str, Any] | None, plan: Plan) -> None:
        """Knows what the manifest of a batch says, and nothing else."""
        self.current, self.slots = plan, {}
        self._begin(plan)
        self.as_of = batch_id
        if not kept:
            return
        self.wishes.by_slot = {int(slot): wish for slot, wish in kept.get("slot_wishes", {}).items()}
        try:
            self._recall(kept)
        except (KeyError, TypeError, ValueError, MidstreamError) as error:
            # Of another version, or of another query of that name: nothing is lost but what can be seen again.
            log.warning("what was known of query %s is not used: %s %s", self.name, type(error).__name__, error)
            self._begin(plan)

    def _recall(self, kept: Mapping[str, Any]) -> None:
        restore(self.adaptive, kept, self.plan_of)
        self.wishes.whole, self.summary = kept["wish"], kept["observed"]
        self.operators.recall(kept)

    def request(self, batch_id: int, slots: int) -> SampleRequest | None:
        """What slots are to look at in a batch, if anything."""
        observer = self.adaptive.observer
        if not observer.pace.due and not any(slot.adaptive.observer.pace.due for slot in self.slots.values()):
            return None
        most = min(LOOK_AT, max(128, ROWS_OF_ALL_SLOTS // slots))
        return SampleRequest(self.name, observer.wanted, self.functions, self.sources, batch_id, most)

    def see(self, batch: Batch, way: Way, verifying: bool = False) -> None:
        """Sees a batch that was run, and decides; nothing is decided while the query or a copy of it migrates.

        Nor is it while groups move that keep the query from it.
        """
        query, reports, self.now = self._query(batch), self._reports(batch), batch.started
        only_watches = self._only_watches(query)
        migrating = verifying or (query.migration is not None and not query.migration.done)
        migrating = migrating or bool(held_up(batch.slots.doubling, query))
        self._count(reports)
        self._absorb(reports)
        topology = self.adaptive.controller.topology
        if topology is not None:
            self.operators.linked += link_seconds(reports, self.name, topology)
        if query.migration is not None:
            self.operators.forget(self.adaptive.observer.passed_ticks)
        else:
            self._add_operators(query, batch)
        self.wishes.whole, self.decided = None, None
        if query.migration is not None and query.migration.cancelling:
            self.adaptive.controller.called_off()
        after, sampled = query.after_batch, self.adaptive.observer.pace.due
        self.current = after.plan
        self.adaptive.controller.fits = self._fits(after, way)
        decision = self.adaptive.end_batch(after.plan, None if migrating or only_watches else self._watched)
        if decision is not None:
            if decision.action in ("migrate", "rollback"):
                decision = self._planned(decision, after, way)
            self.adaptive.remember(decision)
            self.decided = decision
        if sampled and (decision is None or migrating):
            self.summary = self.account()
        self.as_of = batch.batch_id
        if self.has_slots:
            self._let_slots_see(batch, way, verifying)

    def _let_slots_see(self, batch: Batch, way: Way, verifying: bool) -> None:
        """Lets each slot decide by what it has seen; what it had learned is not kept over a restart."""
        self.slots = {slot: self.slots.get(slot) or SlotWatcher(self, batch, slot) for slot in range(batch.slots.count)}
        for watcher in self.slots.values():
            watcher.see(batch, way, verifying)
            if watcher.decided is not None:
                self.decided = watcher.decided
                self.adaptive.remember(watcher.decided)
        wishes = {slot: w.wishes.whole for slot, w in self.slots.items() if w.wishes.whole is not None}
        self.wishes.by_slot = wishes if self.wishes.whole is None else {}

    @property
    def has_slots(self) -> bool:
        """Whether each slot decides for itself about plans of the same stages."""
        return self.policy.per_slot

    def _only_watches(self, query: RunningQuery) -> bool:
        """Whether it decides nothing, because each slot does; slots that run by one plan change stages together."""
        return self.policy.per_slot and (len(query.staged.fragments) == 1 or bool(query.local))

    def _fits(self, query: RunningQuery, way: Way) -> Callable[[Plan], bool] | None:
        """Says about which plans it decides; None: about all."""
        return None

    def _add_operators(self, query: RunningQuery, batch: Batch) -> None:
        self.operators.add(self.name, [r for r in batch.reports if r.slot not in query.local])

    def _query(self, batch: Batch) -> RunningQuery:
        """The query by the plan that is decided about."""
        return batch.queries[self.name]

    def _reports(self, batch: Batch) -> list[Report]:
        """What slots report of what it watches."""
        return batch.reports

    def account(self) -> dict[str, Any]:
        """What is known now, as plain values."""
        return summary_of(self.observed)

    @property
    def observed(self) -> Statistics:
        """What is known now."""
        # Reading must not clear the `fresh` flag.
        observer = self.adaptive.observer
        news = observer.fresh, observer.jumped
        statistics = observer.snapshot()
        observer.fresh, observer.jumped = news
        return self._with_operators(statistics)

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """What was decided lately, oldest first."""
        return [decision.as_dict() for decision in self.adaptive.history]

    def kept(self) -> dict[str, Any]:
        """All of it for a manifest."""
        by_slot = self.wishes.by_slot
        return {
            **keep(self.adaptive),
            "mode": self.policy.mode,
            "wish": self.wishes.whole,
            **({"slot_wishes": {str(s): wish for s, wish in by_slot.items()}} if by_slot else {}),
            "decided": None if self.decided is None else self.decided.as_dict(),
            "observed": self.summary,
            **self.operators.to_json(),
        }

    def _count(self, reports: list[Report]) -> None:
        """Counts the rows that came to slots: what Spark has left out before is no work for any plan."""
        for alias, (stream, _) in self.sources.items():
            rows = sum(
                r.streams.rows.get(stream, 0) - r.streams.late.get(stream, 0) - r.streams.unusable.get(stream, 0)
                for r in reports
                if r.stage == 0
            )
            latest = [r.streams.latest[stream] for r in reports if stream in r.streams.latest]
            if latest:
                self.adaptive.observer.count(alias, rows, max(latest))

    def _absorb(self, reports: list[Report]) -> None:
        for alias in self.sources:
            place = self.name, alias
            samples = [report.samples[place] for report in reports if place in report.samples]
            # A slot that could not sample would leave a gap in what the others say.
            if samples and len(samples) == sum(1 for r in reports if r.stage == 0 and self._has_rows(r, alias)):
                self.adaptive.observer.absorb(alias, put_together(samples))

    def _has_rows(self, report: Report, alias: str) -> bool:
        return self.sources[alias][0] in report.streams.latest

    def _watched(self, statistics: Statistics) -> Statistics:
        """Statistics with what the operators did since the last time."""
        watched = self._with_operators(statistics)
        self.summary = summary_of(watched)
        self.operators.restart(self.adaptive.observer.passed_ticks)
        return watched

    def _with_operators(self, statistics: Statistics) -> Statistics:
        now = self.adaptive.observer.passed_ticks
        linked = None if self.adaptive.controller.topology is None else self.operators.linked_per_tick(now)
        return replace(statistics, operators=self.operators.statistics(now), linked=linked)

    def _planned(self, decision: Decision, query: RunningQuery, way: Way) -> Decision:
        """The decision, with a wish for the next batch; the decision to stay if nothing can carry it out."""
        if self.has_slots and _can(partial(way, alone=True), query, decision.target):
            reason = f"{decision.reason} But each slot decides about plans of the same stages by itself. Staying."
            return replace(decision, action="stay", reason=reason)
        refusals = []
        for strategy in WAYS:
            try:
                way(query, decision.target, strategy)
            except MidstreamError as error:
                refusals.append(f"{strategy}: {error.message}")
                continue
            self.wishes.whole = {
                "from": decision.plan.text,
                "plan": decision.target.text,
                "strategy": strategy,
                "reason": decision.reason,
            }
            return decision
        return refused(decision, refusals)


class SlotWatcher(Watcher):
    """Watches what one slot sees of a query, and decides for that slot."""

    def __init__(self, whole: Watcher, batch: Batch, slot: int) -> None:
        self.slot = slot
        super().__init__(batch.queries[whole.name].in_slot(slot), whole.policy)

    @property
    def has_slots(self) -> bool:
        return False

    def _only_watches(self, query: RunningQuery) -> bool:
        return False

    def _query(self, batch: Batch) -> RunningQuery:
        return batch.queries[self.name].in_slot(self.slot)

    def _reports(self, batch: Batch) -> list[Report]:
        return [report for report in batch.reports if report.slot == self.slot]

    def _fits(self, query: RunningQuery, way: Way) -> Callable[[Plan], bool] | None:
        return lambda plan: _can(way, query, plan)

    def _add_operators(self, query: RunningQuery, batch: Batch) -> None:
        """Of later stages it counts what follows from the rows that this slot has given, in whichever slots."""
        reports = [report for report in batch.reports if report.stage > 0 or report.slot == self.slot]
        given = {slot: 0 for slot in range(batch.slots.count)}
        for report in (report for report in batch.reports if report.stage == 0 and report.slot in given):
            given[report.slot] += sum(p.rows_out for (n, _), p in report.fragments.items() if base_name(n) == self.name)
        self.operators.add(self.name, reports, given[self.slot] / max(1, sum(given.values())))

    def see(self, batch: Batch, way: Way, verifying: bool = False) -> None:
        super().see(batch, partial(way, alone=True), verifying)
        if self.decided is not None:
            self.decided = replace(self.decided, reason=f"In slot {self.slot}: {self.decided.reason}")
        if (wish := self.wishes.whole) is not None:
            wish["reason"] = f"In slot {self.slot}: {wish['reason']}"


def _can(way: Way, query: RunningQuery, plan: Plan) -> bool:
    try:
        way(query, plan, WAYS[0])
    except MidstreamError:
        return False
    return True
