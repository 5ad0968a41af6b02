"""Flows and events without any cluster, files or clock: reports are made up, and manifests kept in a list."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.job.test_chain import STAGES, THREE, tables

from midstream.api import ask
from midstream.checkpoint.manifest import Manifest
from midstream.errors import InputError, MidstreamError
from midstream.job import actions, events
from midstream.job.actions import Action, CallSinks, Collect, Commit, Decide, MoveState, RunSteps
from midstream.job.circumstances import Incoming, Position
from midstream.job.flow import Circumstances, Notes, batch_flow
from midstream.job.migrations.migrating import MigrationAsked
from midstream.job.plans.local_plans import resumed
from midstream.job.queries.running_query import Cutting, RunningQuery
from midstream.job.state import JobState
from midstream.job.task.exchange import GROUPS, Layout
from midstream.job.task.reports import FragmentReport, Report, RowsByGroup, StreamCounts, Traffic
from midstream.language import parse
from midstream.optimizer.plans import plan_query

CATALOG = ask(THREE, tables(rows=3, last=9)).catalog
TEXTS = {"q": THREE, "stages": STAGES}
STREAMS = dict(enumerate(CATALOG.streams.values()))


@dataclass
class Bare:
    """A job of nothing but its state; `failing` is the query that cannot work with a value of the next batch."""

    slots: int = 2
    state: JobState = field(init=False)
    newest: Manifest | None = None
    failing: str | None = None
    asked: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = self.opened(self.newest)

    def opened(self, manifest: Manifest | None) -> JobState:
        """The state of a job that goes on from a manifest."""
        state, _ = JobState(self.slots).after(events.Opened(manifest, "memory"))
        for name, cql in TEXTS.items():
            entry = None if manifest is None else manifest.queries.get(name)
            if manifest is None or entry is not None:
                state, _ = state.after(
                    events.QueryAdded(self._running(state, name, cql, None if entry is None else entry.plan))
                )
        return state

    def _running(self, state: JobState, name: str, cql: str, plan: str | None) -> RunningQuery:
        planned = plan_query(parse(cql, CATALOG), plan or None)
        cutting = Cutting(state.routes, state.manifest is not None, state.group_bits)
        made = RunningQuery.of(name, cql, planned, {}, cutting)
        if state.manifest is None:
            return made

        def by_plan(text: str) -> RunningQuery:
            return state.target(made, plan_query(planned.query, text))

        return resumed(made, state.manifest.account(name).plans, by_plan)

    def apply(self, event: Any) -> JobState:
        """The state after an event; the one before is left as it was, refused or not."""
        before = self.state
        kept = copy.deepcopy((before.cancelled, before.faults, before.added, before.retiring)), dict(before.queries)
        try:
            self.state, _ = before.after(event)
        finally:
            assert kept == ((before.cancelled, before.faults, before.added, before.retiring), before.queries)
        return self.state

    def batch(self) -> None:
        """A batch, with made-up reports."""
        number = 0 if self.newest is None else self.newest.batch_id + 1
        layout = Layout.of({port: stream.columns for port, stream in STREAMS.items()})
        at = Circumstances(Position("memory", "test", number, self.state.manifest), Incoming(STREAMS, layout))
        flow, answer = batch_flow(self.state, at, Notes(number)), None
        self.asked = []
        while True:
            try:
                asked = flow.send(answer)
            except StopIteration:
                self.failing = None
                return
            self.asked.append(asked)
            answer = self._answer(asked) if isinstance(asked, Action) else self.apply(asked)

    def _answer(self, action: Action) -> Any:
        match action:
            case RunSteps(batch):
                names = {name for name in batch.queries if self.failing == name}
                reports = [
                    self._report(batch, stage, slot)
                    for stage in range(batch.stages)
                    for slot in range(batch.slots.count)
                ]
                if names:
                    reports[0].error, reports[0].blamed = InputError("no number"), tuple(batch.queries)
                return reports, 0.0
            case MoveState(move):
                return [Report(stage, slot) for stage in range(move.stages) for slot in range(move.new.slots)], 0.0
            case Decide():
                return actions.Decided()
            case actions.CompareResults(manifest, _):
                return manifest, {}
            case Commit(_, manifest):
                self.newest = Manifest.from_bytes(manifest.to_bytes())
                return manifest
        return None

    def _report(self, batch: Any, stage: int, slot: int) -> Report:
        report = Report(
            stage,
            slot,
            streams=StreamCounts({"A": 1}, {"A": 10 * batch.batch_id}),
            traffic=Traffic(RowsByGroup([0] * slot + [1])),
        )
        for part in batch.lanes:
            for fragment in part.query.staged.fragments:
                if fragment.stage == stage:
                    report.fragments[part.name, fragment.number] = FragmentReport(migrated=True)
        return report


def described(state: JobState) -> dict[str, Any]:
    """What a state says that a manifest restores."""
    return {
        "slots": (state.slots, state.wanted, state.routing),
        "routes": state.routes,
        "scheduling": state.settings.scheduling,
        "added and dropped": (state.added, state.texts, state.modes),
        "stopped": state.faults.stopped,
        "plans": {n: (q.plan.text, q.migration and q.migration.progress) for n, q in state.queries.items()},
        "pending": (state.cancelled, state.retiring, state.faults.news),
    }


PLANS = ("((A B) C)", "(A (B C))", "((A C) B)")
HAPPENING = st.one_of(
    st.just("batch"),
    st.just("batch"),
    st.just("restart"),
    st.tuples(st.just("fail"), st.sampled_from(list(TEXTS))),
    st.tuples(st.just("migrate"), st.sampled_from(PLANS), st.sampled_from(["genmig", "moving_state", "auto"])),
    st.builds(events.MigrationCancelled, st.sampled_from(list(TEXTS))),
    st.builds(events.QueryResumed, st.sampled_from(list(TEXTS))),
    st.builds(events.Rescaled, st.integers(0, 4)),
    st.builds(lambda step: events.Rebalanced([g * step % 2 for g in range(GROUPS)]), st.integers(1, 5)),
    st.builds(events.Scheduled, st.sampled_from(["dfs", "bfs", "chain"])),
    st.builds(lambda mode: events.AdaptivityChanged("q", mode), st.sampled_from(["off", "suggest"])),
    st.builds(lambda: events.AddingRecorded("q", {"cql": THREE})),
)


def happen(job: Bare, event: Any) -> None:
    """Something happens; what is refused is refused."""
    match event:
        case "batch":
            job.batch()
        case "restart":
            job.state = job.opened(job.newest)
        case ("fail", name):
            job.failing = name
        case ("migrate", plan, strategy):
            query = job.state.queries["q"]
            target = job.state.target(query, plan_query(query.plan.query, plan))
            job.apply(MigrationAsked("q", target, strategy, "a test"))
        case _:
            job.apply(event)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(HAPPENING, max_size=16))
def test_any_sequence_of_events_leaves_a_state_that_restores_to_itself(happening):
    job = Bare()
    for event in [*happening, "batch"]:
        try:
            happen(job, event)
        except MidstreamError:
            continue
        if event == "batch":
            assert described(job.opened(job.newest)) == described(job.state)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(HAPPENING, max_size=10))
def test_a_batch_takes_its_actions_in_order_and_commits_once(happening):
    job = Bare()
    for event in [*happening, "batch"]:
        try:
            happen(job, event)
        except MidstreamError:
            continue
    kinds = [type(asked) for asked in job.asked]
    end = [Decide, actions.CompareResults, Commit, events.Committed, Collect, CallSinks]
    assert kinds[-len(end) :] == end
    assert set(kinds[: -len(end)]) <= {MoveState, RunSteps, events.QueryStopped} and RunSteps in kinds


def test_a_query_that_fails_is_stopped_and_the_batch_is_run_without_it():
    job = Bare()
    job.batch()
    job.failing = "q"
    job.batch()
    stopped = [asked for asked in job.asked if isinstance(asked, events.QueryStopped)]
    assert [event.query for event in stopped] == ["q"]
    last = [asked.batch for asked in job.asked if isinstance(asked, RunSteps)][-1]
    assert set(last.queries) == {"stages"} and set(job.state.faults.stopped) == {"q"}
    assert job.newest is not None and job.newest.account("q").fault is not None


def test_a_query_that_fails_before_its_migration_has_begun_stays_with_its_plan():
    job = Bare()
    happen(job, ("migrate", "(A (B C))", "genmig"))
    job.failing = "q"
    job.batch()
    assert job.newest is not None and job.newest.account("q").plans.migration is None
    assert [event["status"] for event in job.newest.account("q").history] == ["cancelled", "quarantined"]
