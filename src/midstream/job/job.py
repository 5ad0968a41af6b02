"""A running job: called with the rows of each batch, it commits a manifest or fails by name.

It carries out what flows and events ask for: moves state, runs steps, commits and calls sinks. A manifest that exists
means that the batch was done: then only its sinks are called again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.statistics import Statistics
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest, source_batch
from midstream.checkpoint.metrics import done_at
from midstream.checkpoint.outputs import outputs_of, require_present
from midstream.checkpoint.process import this_process
from midstream.checkpoint.records import Fault
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import MigrationError
from midstream.job.actions import (
    Action,
    CallSinks,
    Collect,
    Commit,
    CompareResults,
    Decide,
    Flow,
    MoveState,
    ReadAgain,
    RemoveSinks,
    Reprice,
    RetireSinks,
    RunSteps,
    Unwatch,
    Watch,
)
from midstream.job.batch import RunOptions
from midstream.job.circumstances import Incoming, Position, require_unfinished
from midstream.job.cluster import Cluster, Rows
from midstream.job.commits import Commits, Turns
from midstream.job.events import (
    AdaptivityChanged,
    MigrationCancelled,
    Opened,
    QueryResumed,
    Rebalanced,
    Rescaled,
    SettingsChanged,
    VerifiedMigrationsBegun,
)
from midstream.job.flow import Circumstances, Notes, batch_flow, decided
from midstream.job.gate import Gate
from midstream.job.migrations.migrating import MigrationAsked
from midstream.job.migrations.verifying import tell_of_kept_texts
from midstream.job.outputs.delivery import Deliveries
from midstream.job.outputs.progress import Announcements
from midstream.job.queries.completeness import tell_of_started
from midstream.job.queries.fingerprints import Fingerprints
from midstream.job.queries.running_query import RunningQuery
from midstream.job.requests import Requests
from midstream.job.slots.rerouting import Rerouter
from midstream.job.slots.slot_decisions import SlotDecisions
from midstream.job.state import Event, JobState
from midstream.job.task.exchange import Layout
from midstream.job.task.memory import Memory
from midstream.job.task.results import result_table
from midstream.job.watchers import Watchers, needed_columns

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Job:
    """Runs batches one after the other on a checkpoint.

    `streams` arrive laid out as `arriving`. `deciding` has groups move, and slots come and go, by themselves.
    """

    cluster: Cluster
    commits: Commits
    state: JobState
    memory: Memory = field(default_factory=Memory)
    streams: dict[int, StreamDeclaration] = field(default_factory=dict)
    arriving: Layout | None = None
    watchers: Watchers = field(default_factory=Watchers)
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    deciding: SlotDecisions | None = None
    deliveries: Deliveries = field(default_factory=Deliveries)
    announcements: Announcements = field(default_factory=Announcements)
    before_batch: list[Callable[[int], None]] = field(default_factory=list)
    turns: Turns = field(default_factory=Turns)
    rerouter: Rerouter = field(default_factory=Rerouter)
    requests: Requests = field(init=False)

    def __post_init__(self) -> None:
        self.requests = Requests(self.files, self.gate)
        self.watchers.constants = self.cluster.constants

    @property
    def store(self) -> CheckpointStore:
        """The checkpoint's manifests."""
        return self.commits.store

    @property
    def files(self) -> Files:
        """The checkpoint's files."""
        return self.commits.files

    @property
    def gate(self) -> Gate:
        """Held while a batch is under way."""
        return self.turns.gate

    @property
    def manifest(self) -> Manifest | None:
        """The newest manifest."""
        return self.state.manifest

    @property
    def queries(self) -> dict[str, RunningQuery]:
        """The queries, as they run."""
        return self.state.queries

    def open(self, slots: int | None = None, bits: int | None = None) -> None:
        """Reads the newest manifest, and goes on with what it says."""
        manifest, self.commits.under_way = self.store.latest(), None
        if manifest is not None:
            require_present(self.files, outputs_of(self.files, manifest))
        self.commits.time.begin_after(None if manifest is None else done_at(manifest))
        self.apply(Opened(manifest, self.store.uri, slots, bits))

    def apply(self, event: Event) -> JobState:
        """Changes the state by an event, and does what follows; what is refused changes nothing. Gives the state."""
        with self.gate:
            self.state, actions = self.state.after(event)
            for action in actions:
                self._carry_out(action, None)
            return self.state

    def perform(self, flow: Flow[T], rows: Rows = None, begun: dict[type, float] | None = None) -> T:
        """Carries out what a flow asks for; gives what it ends with, and when actions have `begun`, by their kinds."""
        answer = None
        while True:
            try:
                asked = flow.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if begun is not None:
                begun.setdefault(type(asked), this_process().monotonic())
            answer = self._carry_out(asked, rows) if isinstance(asked, Action) else self.apply(asked)

    def _carry_out(self, action: Action, rows: Rows) -> Any:
        """Does what is asked for; gives the answer."""
        match action:
            case RunSteps(batch):
                return _timed(partial(self.cluster.run, batch, rows))
            case MoveState(move):
                return _timed(partial(self.cluster.move, move))
            case ReadAgain():
                return action.carried_out(self.files, self.cluster.rereading(action.source.stream.name))
            case Decide(batch):
                self._carry_out(Reprice(self.state.settings.costs), None)  # it may cost something else now
                if self.deciding is not None:
                    self.cluster.wait_for_files()  # what it took to write them is among the load of slots
                return decided(self.state, self.watchers, self.deciding, batch)
            case CompareResults(manifest, queries):
                if not (verifications := self.state.verifications).by_query:
                    return manifest, {}
                return verifications.in_manifest(self.files, manifest, queries, self.cluster.wait_for_files)
            case Commit(batch, manifest):
                made = self.commits.begin(batch, manifest, self.cluster.wait_for_files)
                if batch.begins:
                    tell_of_started(made)
                if self.state.verifications.by_query:
                    tell_of_kept_texts(made)
                return made
            case Collect(manifest):
                if self.requests.news:
                    self.requests.committed()
                self.commits.end(manifest)
            case CallSinks(manifest):
                self.deliver(manifest)
            case Watch(name, policy):
                self.watchers.watch(self.queries[name], policy)
            case Unwatch(name):
                self.watchers.unwatch(name)
            case Reprice(costs):
                self.watchers.reprice(self.cluster.constants, costs)
            case RemoveSinks(name):
                self.deliveries.remove(name, self.manifest)
            case RetireSinks(name, manifest):
                self.deliveries.replaced(name, self.files, manifest)
        return None

    def resume(self, name: str) -> Fault:
        """Resumes a query in quarantine with the next batch; the rows in between are left out for it."""
        with self.gate:
            before = self.state.faults.stopped
            self.apply(QueryResumed(name))
            return before[name]

    def on_batch(self, rows: Rows, number: int) -> None:
        """What the source calls for each batch."""
        with self.turns.batch(number):
            try:
                self._on_batch(rows, number)
            except BaseException as error:
                self.requests.failed(error)
                self.record_error(error)
                raise

    def record_error(self, error: BaseException) -> None:
        """Writes down what ends the run."""
        self.commits.record_error(error, None if self.manifest is None else self.manifest.batch_id)

    def _on_batch(self, rows: Rows, number: int) -> None:
        query_id = self.cluster.source_id()
        require_unfinished(self.manifest, self.store.uri)
        before = self._before(number, query_id)
        if number <= source_batch(self.manifest):
            return self.repeat(number)
        self.begin_decided()
        batch_id = 0 if before is None else before.batch_id + 1
        for prepare in [*self.before_batch]:
            prepare(batch_id)
        # A copy by which a migration is verified has just been put into what the batch goes on from.
        self.run_batch(rows, query_id, batch_id, self._before(number, query_id), number)

    def _before(self, number: int, query_id: str) -> Manifest | None:
        newest, follows = self.manifest, number == source_batch(self.manifest) + 1
        if newest is None or not follows or not (newest.query_id == query_id or self.cluster.continues(newest)):
            return self.store.before(number, query_id)
        return newest

    def run_batch(
        self,
        rows: Rows,
        query_id: str,
        batch_id: int,
        before: Manifest | None,
        number: int,
        registers: Mapping[str, int] | None = None,
        ended: bool = False,
    ) -> None:
        """Runs a batch, commits it and calls its sinks; `number` is the source's.

        A batch of our own, without rows, works with the given registers. After the last one all streams have `ended`.
        """
        started = this_process().monotonic()
        self.commits.require_whole()
        self.deliver(self.manifest)
        begun: dict[type, float] = {}
        at = self.circumstances(query_id, batch_id, before, number, registers)
        notes = self.notes(before, batch_id, number, self._offsets(number, before), ended)
        self.perform(batch_flow(self.state, at, notes), rows, begun)
        self._announce(started, begun[Decide], begun[CallSinks])

    def circumstances(
        self,
        query_id: str,
        batch_id: int,
        before: Manifest | None,
        number: int,
        registers: Mapping[str, int] | None = None,
    ) -> Circumstances:
        """What the next batch is made of besides the job's state; one of our own has registers."""
        assert self.arriving is not None
        if registers is not None:
            self.watchers.restore(before, self.queries)
        samples, watched = self.watchers.requests(batch_id, self.state.slots), frozenset(self.watchers.by_query)
        files = None if registers is not None else self.cluster.files_read(number)
        return Circumstances(
            Position(self.store.uri, query_id, batch_id, before),
            Incoming(self.streams, self.arriving, files, registers, read=self._read_of(self.arriving)),
            RunOptions(self.memory, samples=samples, watched=watched),
            None if registers is not None else self.commits.time.at_most(self.cluster.clock(number)),
            this_process().now(),
            self.fingerprints,
            self.rerouter,
        )

    def notes(self, before: Manifest | None, batch_id: int, number: int, offsets: str, ended: bool = False) -> Notes:
        """What the next manifest says besides the job's state and the reports of its batch."""
        requests = [replace(record, batch=batch_id) for record in self.requests.news.values()]
        return Notes(number, offsets, self.needed(), requests, ended)

    def _offsets(self, number: int, before: Manifest | None) -> str:
        known = "" if before is None else before.offsets
        return self.cluster.offsets(number) if number > source_batch(before) else known

    def repeat(self, number: int) -> None:
        """Checks that a batch of the source that is done is repeated as it was, and gives sinks what they are due."""
        for _, manifest in self.store.done(number):
            self.cluster.require_same(manifest)
        self.deliver(self.manifest)

    def deliver(self, manifest: Manifest | None) -> None:
        """Gives sinks what a manifest has released and they have not had."""
        if self.deliveries.sinks or not self.deliveries.has_none:
            self.deliveries.deliver(self.files, manifest, self._released, self.commits.check_lease, self.commits.epoch)

    def _released(self, manifest: Manifest, name: str, since: int) -> tuple[Any, pa.Schema]:
        plan = self.queries[name].plan
        return self.cluster.released(manifest, name, plan, since), result_table(plan, None).schema

    def no_rows(self) -> Rows:
        """A batch without rows."""
        assert self.arriving is not None
        return self.cluster.no_rows(self.arriving)

    def needed(self) -> list[tuple[StreamDeclaration, list[str]]]:
        """The streams, with their columns that are read."""
        return needed_columns(self.queries, self.streams.values(), self.watchers)

    def _read_of(self, arriving: Layout) -> dict[str, list[str]]:
        """The columns that are read of streams that arrive with more."""
        come = {d.name: arriving.schemas[port].names for port, d in self.streams.items()}
        return {d.name: columns for d, columns in self.needed() if columns != come[d.name]}

    def rebalance(self, routing: Sequence[int] | None, protocol: str = "mslb", key_class: str = "") -> bool:
        """Deals groups to slots anew, beginning with the next batch that can; false if nothing would change."""
        return self._changes_slots(Rebalanced(routing, "asked for", protocol, key_class))

    def rescale(self, slots: int, trigger: str = "asked for") -> bool:
        """Deals groups to another number of slots, beginning with the next batch that can; false if it is the same."""
        return self._changes_slots(Rescaled(slots, trigger))

    def _changes_slots(self, event: Rebalanced | Rescaled) -> bool:
        with self.gate:
            before, now = self.state, self.apply(event)
            return now.wanted is not before.wanted or now.spread.groups != before.spread.groups

    def adapt(self, name: str, mode: str) -> None:
        """Changes how a query adapts, from the next batch on, and remembers it; what it has seen is kept."""
        known = self.watchers.by_query.get(name)
        self.apply(AdaptivityChanged(name, mode, None if known is None else known.policy))

    def begin_migration(
        self,
        name: str,
        target: RunningQuery,
        strategy: str,
        trigger: str,
        part: str = "auto",
        slots: Sequence[int] | None = None,
        verify: int | None = None,
    ) -> None:
        """Starts a migration with the next batch, of all slots or of some.

        With `verify` a copy of the query migrates, which follows once both have been the same for so many ticks.
        """
        observed = self._observed([name]).get(name)
        self.apply(MigrationAsked(name, target, strategy, trigger, part, slots, verify, observed))

    def _observed(self, names: Iterable[str]) -> dict[str, Statistics]:
        """What is known of the streams of those queries that are watched."""
        return {name: self.watchers.by_query[name].observed for name in names if name in self.watchers.by_query}

    def cancel_migration(self, name: str) -> None:
        """Goes back to the old plan with the next batch."""
        self.apply(MigrationCancelled(name))

    def begin_decided(self) -> None:
        """Starts the migrations that watchers decided on after the last batch, as its manifest says."""
        self.watchers.restore(self.manifest, self.queries)
        if (links := self.watchers.measured(self.state.settings.links)) is not None:
            self.apply(SettingsChanged({"links": links}))
        if verified := self.state.verifications.by_query:
            self.apply(VerifiedMigrationsBegun(self._observed(verified)))
        for asked in list(self.watchers.wishes(self.state)):
            try:
                self.apply(asked)
            except MigrationError as error:
                where = "" if asked.slots is None else f"slot {asked.slots[0]} of "
                log.warning("%squery %s stays with its plan: %s", where, asked.query, error)

    def _announce(self, started: float, ran: float, committed: float) -> None:
        self.commits.seconds = {
            "commit": committed - ran,
            "decide": self.watchers.seconds,
            "sinks": this_process().monotonic() - committed,
            "batch": this_process().monotonic() - started,
        }
        progress = self.commits.progress
        self.announcements.announce({**progress, "seconds": progress["seconds"] | self.commits.seconds})


def _timed(action: Callable[[], T]) -> tuple[T, float]:
    """What an action gives, and the seconds it took."""
    started = this_process().monotonic()
    return action(), this_process().monotonic() - started
