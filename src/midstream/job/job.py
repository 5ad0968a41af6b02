"""The driver of a job: called with the rows of each batch, it commits a manifest or fails by name.

It moves state, runs steps, commits and calls sinks, as the job's state says. A manifest that exists means that the
batch was done: then only its sinks are called again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any

from midstream.adaptation.policy import mode_of
from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.statistics import Statistics
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.outputs import outputs_of, require_present
from midstream.checkpoint.records import Asked, Fault
from midstream.checkpoint.source_batches import counted, source_batch
from midstream.checkpoint.store import CheckpointStore
from midstream.distribution.routing import Routing
from midstream.errors import MigrationError
from midstream.job.adaptivity import Watchers
from midstream.job.attempts import Attempts
from midstream.job.batch import Batch, entry_of
from midstream.job.cluster import Cluster, Rows
from midstream.job.commits import Commits
from midstream.job.declared import told_of_streams
from midstream.job.delivery import Deliveries, identity_after
from midstream.job.doubled_moves import moves_doubled, require_rest, settle_doubled
from midstream.job.fingerprints import Shapes
from midstream.job.finished import require_unfinished
from midstream.job.local_plans import require_slots_of
from midstream.job.migrating import (
    Wish,
    begin_in_slots,
    begin_migration,
    begin_verified,
    cancel_migration,
    require_untried,
)
from midstream.job.migration_choice import legal_strategy
from midstream.job.moving_migrations import Filled
from midstream.job.needed import needed_columns
from midstream.job.outcome import Outcome, Terms
from midstream.job.progress import progress_of, told_in_a_line
from midstream.job.reaching import Reaches
from midstream.job.relocation import Settled, current_routing, settle, still_wanted
from midstream.job.replacing import with_archive
from midstream.job.requests import Requests
from midstream.job.rerouting import Rerouter
from midstream.job.running_query import RunningQuery
from midstream.job.slot_decisions import SlotDecisions
from midstream.job.state import JobState
from midstream.job.task.layout import Layout
from midstream.job.task.memory import Memory
from midstream.job.turns import Turns
from midstream.optimizer.plans import Plan, plan_query

log = logging.getLogger(__name__)

Progress = Callable[[dict[str, Any]], None]


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
    shapes: Shapes = field(default_factory=Shapes)
    deciding: SlotDecisions | None = None
    deliveries: Deliveries = field(default_factory=Deliveries)
    listeners: list[Progress] = field(default_factory=list)
    before_batch: list[Callable[[int], None]] = field(default_factory=list)
    last_event: dict[str, Any] | None = None
    turns: Turns = field(default_factory=Turns)
    rerouter: Rerouter = field(default_factory=Rerouter)
    requests: Requests = field(init=False)

    def __post_init__(self) -> None:
        self.requests = Requests(self.files, self.gate)

    @property
    def store(self) -> CheckpointStore:
        """The checkpoint's manifests."""
        return self.commits.store

    @property
    def files(self) -> Files:
        """The checkpoint's files."""
        return self.commits.files

    @property
    def gate(self) -> RLock:
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
        self.state.open(manifest, self.store.uri, slots, bits)

    def resume(self, name: str) -> Fault:
        """Has a query that is in quarantine go on with the next batch; the rows in between are left out for it."""
        with self.gate:
            return self.state.faults.resume(name)

    def forget_queries(self) -> None:
        """Forgets the queries that were planned, to plan them anew; their sinks stay."""
        self.state.forget_queries()
        self.watchers.by_query.clear()

    def on_batch(self, rows: Rows, number: int) -> None:
        """What the source calls for each batch."""
        with self.turns.batch(number):
            try:
                self._on_batch(rows, number)
            except BaseException as error:
                self.requests.failed(error)
                raise

    def _on_batch(self, rows: Rows, number: int) -> None:
        query_id = self.cluster.source_id()
        require_unfinished(self.manifest, self.store.uri)
        before = self._before(number, query_id)
        if number <= source_batch(self.manifest):
            self.repeat(number)
            return
        self.begin_decided()
        batch_id = 0 if before is None else before.batch_id + 1
        for prepare in self.before_batch:
            prepare(batch_id)
        # A copy by which a migration is verified has just been put into what the batch goes on from.
        self.run_batch(rows, query_id, batch_id, self._before(number, query_id), number)

    def _before(self, number: int, query_id: str) -> Manifest | None:
        newest = self.manifest
        if newest is not None and number == source_batch(newest) + 1 and self._goes_on_from(newest, query_id):
            return newest
        return self.store.before(number, query_id)

    def _goes_on_from(self, newest: Manifest, query_id: str) -> bool:
        return newest.query_id == query_id or self.cluster.continues(newest)

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

        A batch of our own, without rows, works with the given registers; listeners are not told of it. After the last
        one all streams have `ended`.
        """
        started = time.perf_counter()
        self.commits.require_whole()
        if self.deliveries.owed:
            self.repeat(source_batch(self.manifest))
        rowless = registers is not None
        clock = None if rowless else self.cluster.clock(number)
        read = {} if rowless else self.cluster.files_read(number)

        def make(sifted: frozenset[str]) -> Batch:
            batch = self._batch(query_id, batch_id, before, clock, sifted)
            batch.registers_now, batch.files_read = registers, read
            return batch

        batch = Attempts(self.cluster, self.state, make).run(rows)
        ran = time.perf_counter()
        manifest = self._commit(batch, self._offsets(number, before), number, ended)
        committed = time.perf_counter()
        self.call_sinks(before, manifest)
        if not rowless:
            self._tell(batch, started, ran, committed)

    def _offsets(self, number: int, before: Manifest | None) -> str:
        if number > source_batch(before):
            return self.cluster.offsets(number)
        return "" if before is None else before.offsets

    def repeat(self, number: int) -> None:
        """Calls the sinks again for a batch of the source that is done, and for those of our own that followed it."""
        self.deliveries.owed = True
        for before, manifest in self.store.done(number):
            self.cluster.require_same(manifest)
            self.call_sinks(before, manifest)
        self.deliveries.owed = False

    def call_sinks(self, before: Manifest | None, manifest: Manifest) -> None:
        """Gives sinks what a manifest has released since the one before it."""
        self.deliveries.call(before, manifest, self._released)

    def _released(self, manifest: Manifest, name: str, since: int) -> Any:
        query = self.state.query_of_results(name)
        return None if query is None else self.cluster.released(manifest, name, query.plan, since)

    def no_rows(self) -> Rows:
        """A batch without rows."""
        assert self.arriving is not None
        return self.cluster.no_rows(self.arriving)

    def _batch(
        self,
        query_id: str,
        batch_id: int,
        before: Manifest | None,
        clock: int | None = None,
        sifted: frozenset[str] = frozenset(),
    ) -> Batch:
        assert self.arriving is not None
        state = self.state
        self.watchers.settle(before, self.queries)
        old = current_routing(before, state.slots, state.group_bits)
        move, upgrade = self.cluster.move, None if state.by_group else state.group_bits
        doubles = moves_doubled(before, state.wanted)
        better = None if doubles else self.rerouter.better(self.queries, state.routes, state.sort_bits)
        spreading = state.spread.beginning(before, self.queries, state.faults.stopped, old, state.wanted, better)

        def settling(since: Manifest | None, wanted: Routing | None, placed: Mapping[str, Filled] | None) -> Settled:
            uri, queries = self.store.uri, self.queries
            return settle(uri, batch_id, since, queries, old, wanted, move, self.memory, upgrade, better, placed)

        settled = settle_doubled(batch_id, spreading.start, self.queries, old, state.wanted, settling)
        settled.before, spread = spreading.after(settled.before, settled.queries, settled.routing)
        return Batch(
            self.store.uri,
            query_id,
            batch_id,
            settled.before,
            {
                name: replace(query, share=False) if name in sifted else query
                for name, query in settled.queries.items()
                if name not in state.faults.stopped
            },
            self.streams,
            self.arriving,
            settled.routing.slots,
            self.memory,
            scheduling=state.settings.scheduling,
            shapes=self.shapes,
            looks=self.watchers.requests(batch_id, settled.routing.slots),
            watched=frozenset(self.watchers.by_query),
            ended=_together(state.cancelled, settled.ended),
            moved=spreading.told(settled.moved, batch_id, settled.routing, spread),
            reaches=Reaches.of(self.streams.values(), before, clock),
            sifted=sifted,
            group_bits=state.group_bits,
            by_group=state.by_group or settled.upgraded,
            routes=dict(state.routes if better is None else better.routes),
            recut={} if better is None else better.queries,
            spread=spread,
            doubling=settled.doubling,
            copies={} if settled.doubling is None else settled.doubling.copies,
        )

    def _commit(self, batch: Batch, offsets: str, number: int, ended: bool) -> Manifest:
        state = self.state
        if self.deciding is not None:
            state.wanted = self.deciding.after(batch, state.wanted is not None, state.spread) or state.wanted
        terms = Terms(
            replace(
                state.settings,
                identity=identity_after(batch.before),
                declared=told_of_streams(batch.before, self.needed()),
                arrival={name: route.key for name, route in batch.routes.items()},
                scheduling=batch.scheduling,
                finished=ended,
            ),
            Asked(self.requests.told(batch.before, batch.batch_id), dict(state.dropped)),
            still_wanted(state.wanted, Routing(tuple(batch.routing), batch.slots)),
            counted(batch.before, number),
            self.watchers.after(batch, self.check_migration),
            None if self.deciding is None else tuple(self.deciding.decisions),
            {} if self.deciding is None else self.deciding.to_json(),
            state.spread.to_json(batch.spread),
        )
        entries = {name: entry_of(query) for name, query in self.queries.items()}
        made = state.faults.in_manifest(Outcome(batch).manifest(offsets, terms), batch.before, entries)
        made = state.verifications.in_manifest(self.files, made, {**self.queries, **batch.queries})
        made = with_archive(state.with_requested(made), batch.before, state.retiring)
        manifest = self.commits.begin(batch, made)
        state.committed(manifest, batch)
        self.deliveries.owed = True
        self.requests.committed()
        self.commits.end(manifest)
        return manifest

    def needed(self) -> list[tuple[StreamDeclaration, list[str]]]:
        """The streams, with their columns that are read."""
        return [(d, needed_columns(self.queries, d, self.watchers)) for d in self.streams.values()]

    def rebalance(self, routing: Sequence[int] | None, trigger: str = "asked for", protocol: str = "mslb") -> bool:
        """Deals groups to slots anew, beginning with the next batch that can; false if nothing would change."""
        with self.gate:
            return self.state.rebalance(routing, trigger, protocol)

    def rescale(self, slots: int, trigger: str = "asked for") -> bool:
        """Deals groups to another number of slots, beginning with the next batch that can; false if it is the same."""
        with self.gate:
            return self.state.rescale(slots, trigger)

    def adapt(self, name: str, mode: str) -> None:
        """Changes how a query adapts, from the next batch on, and remembers it; what it has seen is kept."""
        with self.gate:
            known = self.watchers.by_query.pop(name, None)
            self.state.modes[name] = mode_of(mode)
            policy = self.state.policy_for(name, None if known is None else known.policy)
            if policy is not None:
                self.watchers.watch(self.queries[name], policy)

    def drop(self, name: str) -> None:
        """Ends a query; the next manifest is without it."""
        with self.gate:
            self.state.drop(name)
            self.deliveries.sinks.pop(name, None)
            self.watchers.by_query.pop(name, None)

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
        wish = Wish(name, target, strategy, trigger, part, slots, verify)
        with self.gate:
            begin_migration(self.state, wish, self._observed)

    def _observed(self, name: str) -> Statistics | None:
        watcher = self.watchers.by_query.get(name)
        return None if watcher is None else watcher.observed

    def cancel_migration(self, name: str) -> None:
        """Goes back to the old plan with the next batch."""
        with self.gate:
            cancel_migration(self.state, name)

    def begin_decided(self) -> None:
        """Starts the migrations that watchers decided on after the last batch, as its manifest says."""
        self.watchers.settle(self.manifest, self.queries)
        begin_verified(self.state, self._observed)
        for name, wish in self.watchers.wishes(self.queries):
            if name in self.state.faults.stopped:
                continue
            query = self.queries[name]
            target = self.state.target(query, plan_query(query.plan.query, wish["plan"], query.emit_every))
            verify = self.watchers.by_query[name].adaptive.verify
            try:
                self.begin_migration(name, target, wish["strategy"], wish["reason"], verify=verify)
            except MigrationError as error:
                log.warning("query %s stays with its plan: %s", name, error)
        begin_in_slots(self.state, self.watchers.slot_wishes(self.queries), self._observed)

    def check_migration(self, query: RunningQuery, plan: Plan, strategy: str, alone: bool = False) -> None:
        """Raises a MigrationError if a query could not begin to go over to a plan with the next batch.

        `alone` asks about one slot by itself.
        """
        assert self.arriving is not None
        require_untried(self.state, query.name, plan)
        require_rest(self.state.manifest)
        target = self.state.target(query, plan)
        if alone:
            require_slots_of(query, target, [0], 1)
        legal_strategy(query, target, strategy)
        carried = {d.name: set(self.arriving.schemas[port].names) for port, d in self.streams.items()}
        for source in target.sources:
            prefix = f"{source.stream.alias}."
            if not {name.removeprefix(prefix) for name in source.schema.names} <= carried[source.stream.name]:
                raise MigrationError(f"the plan reads columns of {source.stream.name} that batches do not carry")

    def _tell(self, batch: Batch, started: float, ran: float, committed: float) -> None:
        event = progress_of(batch, self.manifest)
        self.commits.seconds = {
            "commit": committed - ran,
            "decide": self.watchers.seconds,
            "sinks": time.perf_counter() - committed,
            "batch": time.perf_counter() - started,
        }
        event["seconds"] |= self.commits.seconds
        self.last_event = event
        log.info("%s", told_in_a_line(event))
        for sentence in event["warnings"]:
            log.warning("%s", sentence)
        for listener in self.listeners:
            listener(event)


def _together(*records: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for some in records:
        for name, told in some.items():
            found.setdefault(name, []).extend(told)
    return found
