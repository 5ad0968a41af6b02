"""Adaptive queries of a job, as the driver watches them.

Slots report what they saw of a batch; the driver puts it together into one observer, as if all rows had passed one
place, and decides before the batch is committed. What is known and what was decided is part of the batch's manifest,
and a decided migration begins with the next batch by what the manifest says: a batch that is repeated starts from the
last manifest again, whatever this process had made of it in the meantime.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from midstream.adaptation.adaptive import WAYS, Adaptive, refused
from midstream.adaptation.observer import Observer
from midstream.adaptation.plan_changes import CHANGES, Decision
from midstream.adaptation.policy import Policy
from midstream.adaptation.sampling import LOOK_AT, put_together
from midstream.adaptation.sampling_pace import Attention
from midstream.adaptation.summary import operators_summary, statistics_summary
from midstream.algebra.statistics import Statistics
from midstream.checkpoint.names import query_of
from midstream.errors import MidstreamError
from midstream.job.operator_totals import OperatorTotals
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.sites import link_seconds
from midstream.job.task.reports import Report, SampledSource, SampleRequest
from midstream.optimizer.cost import Constants
from midstream.optimizer.plans import Plan, plan_query

if TYPE_CHECKING:
    from midstream.job.batch import Batch

log = logging.getLogger(__name__)

ATTENTION = Attention(apart=(6, 8), rows_per_look=25_000, following=4, most_sampled=3072)
"""Looks are rare, and frequent when something has changed; what is remembered goes into every manifest."""

NEVER = -1
ROWS_OF_ALL_SLOTS = 8192
OF_SEVERAL = LOOK_AT // 2
"""How many rows one of several slots looks at, at most: two have about a whole sample together."""

DECISIONS = 32
"""How many decisions manifests remember."""

Way = Callable[..., None]
"""Raises a MigrationError if a query cannot go over to a plan by a strategy; `alone`: in one slot."""

Record = dict[str, Any]


class Watcher:
    """Watches one query, or what one slot sees of it."""

    def __init__(self, query: RunningQuery, policy: Policy, slot: int | None = None) -> None:
        self.query, self.policy, self.slot = query, policy, slot
        self.as_of: int | None = NEVER
        """The batch up to which it has seen everything; None: before the first one."""
        self.now = 0.0
        """When the batch that is looked at began, in seconds since 1970."""
        self._begin(query.plan)
        self.sources = _sources_of(query, self.adaptive.observer)

    def reprice(self, before: Constants, now: Constants) -> None:
        """Weighs plans by other constants than those of the cluster, if it was by those."""
        if self.policy.constants == before:
            self.policy = replace(self.policy, constants=now)
            self.adaptive.policy = self.adaptive.decider.policy = self.policy
            for own in self.slots.values():
                own.reprice(before, now)

    def _begin(self, plan: Plan) -> None:
        query = self.query
        observer = Observer(query.plan.query, query.functions, attention=ATTENTION)
        planned = partial(_planned, query)
        self.adaptive = Adaptive(
            plan, self.policy, clock=lambda: self.now, observer=observer, spread=True, planned=planned
        )
        self.adaptive.decider.plans[plan.text] = plan
        self.operators = OperatorTotals()
        self.decisions: list[Record] = []
        """What was decided lately, oldest first."""
        self.decided: Record | None = None
        """What was decided after the last batch."""
        self.wish: Record | None = None
        """What the query is to go over to with the next batch, as it was decided, if something."""
        self.summary: Record = {}
        self.slots: dict[int, Watcher] = {}
        """The watchers of slots that decide for themselves; what they had learned is not kept over a restart."""
        self.slot_wishes: dict[int, Record] = {}
        """What slots are to go over to with the next batch."""

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.query.name

    def go_on(self, batch_id: int | None, kept: Mapping[str, Any] | None, plan: Plan) -> None:
        """Knows what the manifest of a batch says, and nothing else."""
        self._begin(plan)
        self.as_of = batch_id
        if not kept:
            return
        try:
            self.adaptive.go_on(kept)
            self.decisions, self.wish, self.summary = list(kept["decisions"]), kept["wish"], kept["observed"]
            self.slot_wishes = {int(slot): wish for slot, wish in kept["slot_wishes"].items()}
            self.operators.recall(kept)
        except (KeyError, TypeError, ValueError, MidstreamError) as error:
            # Of another version, or of another query of that name: nothing is lost but what can be seen again.
            log.warning("what was known of query %s is not used: %s %s", self.name, type(error).__name__, error)
            self._begin(plan)

    def kept(self) -> Record:
        """All of it for a manifest."""
        return {
            **self.adaptive.kept(),
            "mode": self.policy.mode,
            "decisions": self.decisions,
            "decided": self.decided,
            "wish": self.wish,
            "slot_wishes": {str(slot): wish for slot, wish in self.slot_wishes.items()},
            "observed": self.summary,
            **self.operators.to_json(),
        }

    def request(self, batch_id: int, slots: int) -> SampleRequest | None:
        """What slots are to look at in a batch, if anything."""
        if not any(watcher.adaptive.observer.pace.due for watcher in (self, *self.slots.values())):
            return None
        most = LOOK_AT if slots == 1 else min(OF_SEVERAL, max(128, ROWS_OF_ALL_SLOTS // slots))
        wanted = self.adaptive.observer.wanted
        return SampleRequest(self.name, wanted, self.query.functions, self.sources, batch_id, most)

    def see(self, batch: Batch, way: Way, verifying: bool = False) -> None:
        """Sees a batch that was run, and decides; nothing is decided while the query or a copy of it migrates."""
        whole, observer, self.now = batch.queries[self.name], self.adaptive.observer, batch.started
        query = whole if self.slot is None else whole.in_slot(self.slot)
        reports = [report for report in batch.reports if self.slot in (None, report.slot)]
        migrating = verifying or (query.migration is not None and not query.migration.done)
        self._count(reports)
        self._absorb(reports)
        self._add_operators(query, batch, reports)
        if query.migration is not None and query.migration.cancelling:
            self.adaptive.decider.called_off()
        after, sampled = query.after_batch, observer.pace.due
        self.adaptive.decider.plans[after.plan.text] = after.plan
        alone = partial(way, alone=True)
        self.adaptive.decider.fits = None if self.slot is None else lambda plan: _can(alone, after, plan)
        watches = migrating or self._leaves_it_to_slots(query)
        decision = self.adaptive.end_batch(after.plan, None if watches else self._watched)
        self.decided = self.wish = None
        if decision is not None:
            self._remember(*self._with_strategy(decision, after, way if self.slot is None else alone))
        if sampled and (decision is None or migrating):
            self.summary = _summary_of(self.observed)
        self.as_of = batch.batch_id
        if self.slot is None and self.policy.per_slot:
            self._let_slots_see(batch, way, verifying)

    def _let_slots_see(self, batch: Batch, way: Way, verifying: bool) -> None:
        """Lets each slot decide by what it has seen."""
        whole, self.slot_wishes = batch.queries[self.name], {}
        known = {slot: self.slots.get(slot) for slot in range(batch.slots.count)}
        self.slots = {s: own or Watcher(whole.in_slot(s), self.policy, s) for s, own in known.items()}
        for slot, own in self.slots.items():
            own.see(batch, way, verifying)
            if own.decided is not None:
                self._remember(own.decided)
            if own.wish is not None and self.wish is None:
                self.slot_wishes[slot] = own.wish

    def _leaves_it_to_slots(self, query: RunningQuery) -> bool:
        """Whether it decides nothing, because each slot does; slots that run by one plan change stages together."""
        return self.slot is None and self.policy.per_slot and (len(query.staged.fragments) == 1 or bool(query.local))

    def _with_strategy(self, decision: Decision, query: RunningQuery, way: Way) -> tuple[Record, str]:
        """A decision with the strategy by which it can be carried out; the decision to stay if there is none."""
        strategy, refusals = "", []
        if decision.action in CHANGES and self._can_be_left_to_slots(decision, query, way):
            decision = decision.stayed("But each slot decides about plans of the same stages by itself.")
        for name in WAYS if decision.action in CHANGES else ():
            try:
                way(query, decision.target, name)
            except MidstreamError as error:
                refusals.append(f"{name}: {error.message}")
                continue
            strategy = name
            break
        if refusals and not strategy:
            decision = refused(decision, refusals)
        where = "" if self.slot is None else f"In slot {self.slot}: "
        return {**decision.as_dict(), "reason": f"{where}{decision.reason}"}, strategy

    def _can_be_left_to_slots(self, decision: Decision, query: RunningQuery, way: Way) -> bool:
        return self.slot is None and self.policy.per_slot and _can(partial(way, alone=True), query, decision.target)

    def _remember(self, decided: Record, strategy: str = "") -> None:
        """Keeps what was decided, and of a run of decisions to stay only the last; with a strategy it is a wish."""
        self.decided, self.wish = decided, {**decided, "strategy": strategy} if strategy else self.wish
        if decided["action"] == "stay" and self.decisions and self.decisions[-1]["action"] == "stay":
            self.decisions.pop()
        self.decisions = [*self.decisions, decided][-DECISIONS:]

    @property
    def observed(self) -> Statistics:
        """What is known now."""
        # Reading must not clear the `fresh` flag.
        observer = self.adaptive.observer
        news = observer.fresh, observer.jumped
        statistics = observer.snapshot()
        observer.fresh, observer.jumped = news
        return self._with_operators(statistics)

    def _count(self, reports: list[Report]) -> None:
        """Counts the rows that came to slots: what Spark has left out before is no work for any plan."""
        for alias, (stream, *_) in self.sources.items():
            rows = sum(
                r.streams.rows.get(stream, 0) - r.streams.late.get(stream, 0) - r.streams.unusable.get(stream, 0)
                for r in reports
                if r.stage == 0
            )
            latest = [r.streams.latest[stream] for r in reports if stream in r.streams.latest]
            if latest:
                self.adaptive.observer.count(alias, rows, max(latest))

    def _absorb(self, reports: list[Report]) -> None:
        for alias, (stream, *_) in self.sources.items():
            place = self.name, alias
            samples = [report.samples[place] for report in reports if place in report.samples]
            # A slot that could not sample would leave a gap in what the others say.
            if samples and len(samples) == sum(1 for r in reports if r.stage == 0 and stream in r.streams.latest):
                self.adaptive.observer.absorb(alias, put_together(samples))

    def _add_operators(self, query: RunningQuery, batch: Batch, reports: list[Report]) -> None:
        """Adds what operators did; of later stages a slot counts what follows from the rows that it has given."""
        topology, now = self.adaptive.decider.topology, self.adaptive.observer.passed_ticks
        if topology is not None:
            self.operators.linked += link_seconds(reports, self.name, topology)
        if query.migration is not None:
            self.operators.forget(now)
        elif self.slot is None:
            self.operators.add(self.name, [r for r in batch.reports if r.slot not in query.local])
        else:
            given = dict.fromkeys(range(batch.slots.count), 0)
            for r in (r for r in batch.reports if r.stage == 0 and r.slot in given):
                given[r.slot] += sum(p.rows_out for (n, _), p in r.fragments.items() if query_of(n) == self.name)
            mine = [report for report in batch.reports if report.stage > 0 or report.slot == self.slot]
            self.operators.add(self.name, mine, given[self.slot] / max(1, sum(given.values())))

    def _watched(self, statistics: Statistics) -> Statistics:
        """Statistics with what the operators did since the last time."""
        watched = self._with_operators(statistics)
        self.summary = _summary_of(watched)
        self.operators.restart(self.adaptive.observer.passed_ticks)
        return watched

    def _with_operators(self, statistics: Statistics) -> Statistics:
        now = self.adaptive.observer.passed_ticks
        linked = None if self.adaptive.decider.topology is None else self.operators.linked_per_tick(now)
        return replace(statistics, operators=self.operators.statistics(now), linked=linked)


def _planned(query: RunningQuery, text: str) -> Plan:
    return plan_query(query.plan.query, text or None, query.emit_every)


def _can(way: Way, query: RunningQuery, plan: Plan) -> bool:
    try:
        way(query, plan, WAYS[0])
    except MidstreamError:
        return False
    return True


def _sources_of(query: RunningQuery, observer: Observer) -> dict[str, SampledSource]:
    found = {}
    for source in query.sources:
        alias, seen = source.stream.alias, observer.wanted.columns(source.stream.alias)
        read = [name.removeprefix(f"{alias}.") for name in sorted(seen | set(source.schema.names))]
        found[alias] = SampledSource(source.stream.name, tuple(read), tuple(sorted(seen)))
    return found


def _summary_of(statistics: Statistics) -> Record:
    """What is known, as plain values."""
    return {**statistics_summary(statistics), "operators": operators_summary(statistics), "moment": statistics.moment}
