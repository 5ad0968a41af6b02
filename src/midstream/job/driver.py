"""The driver's side of a session: called by Spark for each batch, it commits a manifest or fails by name.

A manifest that exists means that the batch was done: then only its sinks are called again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from midstream.adaptation.policy import Mode, Policy, mode_of, policy_of
from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.collect import collect
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import shorten
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.merging import adopt
from midstream.checkpoint.metrics import completed, remember
from midstream.checkpoint.outputs import outputs_of, require_present
from midstream.checkpoint.process import this_process
from midstream.checkpoint.records import Asked, Fault, Settings
from midstream.checkpoint.source_batches import counted, own_batches, source_batch
from midstream.checkpoint.store import FOR_A_REPLAY, CheckpointStore
from midstream.distribution.balancing import Watch
from midstream.distribution.fragments import Route
from midstream.distribution.routing import Routing
from midstream.errors import InputError, JobError, MidstreamError, MigrationError
from midstream.job.adaptivity import Watchers
from midstream.job.batch import Batch, entry_of
from midstream.job.cluster import Cluster, Rows
from midstream.job.compaction import Compactor
from midstream.job.declared import require_same_job, told_of_streams
from midstream.job.delivery import Sink, deliver, identity_after
from midstream.job.faults import Faults, at_fault, named, suspects
from midstream.job.fingerprints import Shapes
from midstream.job.finished import require_unfinished
from midstream.job.group_bits import chosen_bits, require_bits
from midstream.job.heartbeat import Heartbeat
from midstream.job.local_plans import follow, require_slots_of
from midstream.job.migration_account import Account
from midstream.job.migration_choice import decide, legal_strategy, require_cancellable
from midstream.job.outcome import Outcome, Terms
from midstream.job.progress import metrics_row, progress_of, told_in_a_line
from midstream.job.reaching import Reaches
from midstream.job.relocation import (
    ANOTHER_NUMBER,
    current_routing,
    require_slots,
    rerouted,
    settle,
    still_wanted,
    wanted_since,
)
from midstream.job.replacing import name_of_old, with_archive
from midstream.job.requests import Requests
from midstream.job.running_query import MigrationUnderWay, RunningQuery
from midstream.job.task.exchange import GROUP_BITS, bits_of, default_routing
from midstream.job.task.layout import Layout
from midstream.job.task.memory import Memory
from midstream.job.verifying import Verification, Verifications, copy_name, with_copy
from midstream.migration.protocol import Situation
from midstream.migration.verified import DIFFERS, FAILED, Stretch
from midstream.optimizer.plans import Plan, plan_query

log = logging.getLogger(__name__)

Progress = Callable[[dict[str, Any]], None]


class PutOff(JobError):
    """A batch has been put off because the session is being stopped; it is repeated when a session goes on."""


@dataclass(slots=True)
class Driver:
    """Runs batches one after the other on a checkpoint."""

    cluster: Cluster
    store: CheckpointStore
    slots: int
    retained: int
    memory: Memory = field(default_factory=Memory)
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    streams: dict[int, StreamDeclaration] = field(default_factory=dict)
    routes: dict[str, Route] = field(default_factory=dict)
    sinks: dict[str, list[Sink]] = field(default_factory=dict)
    sinks_called: int | None = None
    """The newest batch whose sinks were all called, as far as this process knows."""
    sinks_owed: bool = False
    """Whether the sinks of the newest batch have failed: they are called again before another batch."""
    committing: int | None = None
    """The batch whose commit has begun and not ended: if its manifest is there, what is known here is behind it."""
    listeners: list[Progress] = field(default_factory=list)
    before_batch: list[Callable[[int], None]] = field(default_factory=list)
    watchers: Watchers = field(default_factory=Watchers)
    arriving: Layout | None = None
    lease: Heartbeat | None = None
    manifest: Manifest | None = None
    last_event: dict[str, Any] | None = None
    metrics_retained: int = 100_000
    told_after: dict[str, float] = field(default_factory=dict)
    """What is known of the last batch only since its commit."""
    compactor: Compactor = field(init=False)
    retiring: set[str] = field(default_factory=set)
    """Queries that another takes the place of with the next batch, under the names their results keep."""
    added: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    """Queries that were added and dropped by request: what they are, and the texts they had."""
    adapted: dict[str, Mode] = field(default_factory=dict)
    """The modes of adaptivity that were asked for while the job ran, by query."""
    failure: BaseException | None = None
    in_batch: bool = False
    scheduling: str = "dfs"
    """Which operator runs when."""
    carry: str = "needed"
    job: str | None = None
    """What the job is called, if anything."""
    shapes: Shapes = field(default_factory=Shapes)
    halting: bool = False
    """Whether Spark's query is being stopped: a batch that waits at the gate gives up."""
    group_bits: int = GROUP_BITS
    """How many bits of a key's hash are its partition group, chosen when the checkpoint is made."""
    by_group: bool = True
    """Whether states are sorted by partition group; those of older checkpoints are once they have moved."""
    wanted: Routing | None = None
    """Slots that state is to be moved to before the next batch that can."""
    rebalancing: Watch | None = None
    """Notices slots that stay overfull, if groups are to move by themselves."""
    cancelled: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Migrations that were cancelled before they began, until a manifest tells of them."""
    gate: threading.RLock = field(default_factory=threading.RLock)
    """Held while a batch is under way."""

    faults: Faults = field(default_factory=Faults)
    """What queries do about values that stop them, and those that are in quarantine."""

    verifications: Verifications = field(default_factory=Verifications)
    """Queries of which a copy goes over to another plan while both are compared."""

    requests: Requests = field(init=False)

    def __post_init__(self) -> None:
        self.compactor = Compactor(self.files)
        self.requests = Requests(self.files, self.gate)

    @property
    def files(self) -> Files:
        """The checkpoint's files."""
        return self.store.files

    def open(self, wanted: int | None = None, bits: int | None = None) -> None:
        """Reads the newest manifest, and goes on with what it says; another number of slots comes with a batch.

        `bits` of partition groups are chosen by whoever makes a checkpoint, and asked for in vain later.
        """
        self.manifest, self.committing = self.store.latest(), None
        if self.manifest is None:
            self.group_bits = self.group_bits if bits is None else chosen_bits(bits)
            require_slots(self.slots, 2**self.group_bits)
            return
        require_present(self.files, outputs_of(self.files, self.manifest))
        now = current_routing(self.manifest, self.slots)
        self.slots, self.group_bits = now.slots, bits_of(len(now.groups))
        require_bits(bits, self.group_bits, self.store.uri)
        self.by_group = self.manifest.slots.sorted_by_group
        self.wanted = wanted_since(self.manifest)
        if wanted is not None and wanted != self.slots:
            require_slots(wanted, 2**self.group_bits)
            self.wanted = self._dealt_evenly(wanted, ANOTHER_NUMBER)
        settings = self.manifest.settings
        self.routes = {name: _route(key) for name, key in settings.arrival.items()}
        self.scheduling = settings.scheduling
        require_same_job(self.manifest, self.job, self.store.uri)
        self.job = settings.job or self.job
        self.added, self.dropped = added_to(self.manifest), dict(self.manifest.asked.dropped)
        known = self.manifest.accounts.items()
        self.adapted = {name: mode_of(account.mode) for name, account in known if account.mode is not None}
        self.faults.follow(self.manifest)
        self.verifications.follow(self.manifest)

    def resume(self, name: str) -> Fault:
        """Has a query that is in quarantine go on with the next batch; the rows in between are left out for it."""
        with self.gate:
            return self.faults.resume(name)

    def forget_queries(self) -> None:
        """Forgets the queries that were planned, to plan them anew; their sinks stay."""
        self.queries.clear()
        self.retiring.clear()
        self.watchers.by_query.clear()
        self.routes = {}

    def on_batch(self, rows: Rows, batch_id: int) -> None:
        """What Spark calls for each batch."""
        while not self.gate.acquire(timeout=0.1):
            if self.halting:
                raise PutOff(f"batch {batch_id} was put off: the session is being stopped")
        try:
            self.in_batch = True
            self._on_batch(rows, batch_id)
        except BaseException as error:
            self.failure = error
            self.requests.failed(error)
            raise
        finally:
            self.in_batch = False
            self.gate.release()

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
        self._require_whole()
        if self.sinks_owed:
            self.repeat(source_batch(self.manifest))
        rowless = registers is not None
        clock = None if rowless else self.cluster.clock(number)
        read = {} if rowless else self.cluster.files_read(number)

        def make(sifted: frozenset[str]) -> Batch:
            batch = self._batch(query_id, batch_id, before, clock, sifted)
            batch.registers_now, batch.files_read = registers, read
            return batch

        batch = self.attempt(make, rows)
        ran = time.perf_counter()
        self._commit(batch, self._offsets(number, before), number, ended)
        committed = time.perf_counter()
        assert self.manifest is not None
        self.call_sinks(before, self.manifest)
        self.sinks_owed = False
        if not rowless:
            self._tell(batch, started, ran, committed)

    def _offsets(self, number: int, before: Manifest | None) -> str:
        if number > source_batch(before):
            return self.cluster.offsets(number)
        return "" if before is None else before.offsets

    def repeat(self, number: int) -> None:
        """Calls the sinks again for a batch of the source that is done, and for those of our own that followed it."""
        self.sinks_owed = True
        for before, manifest in self.store.done(number):
            self.cluster.require_same(manifest)
            self.call_sinks(before, manifest)
        self.sinks_owed = False

    def no_rows(self) -> Rows:
        """A batch without rows."""
        assert self.arriving is not None
        return self.cluster.no_rows(self.arriving)

    def _before(self, number: int, query_id: str) -> Manifest | None:
        newest = self.manifest
        if newest is not None and number == source_batch(newest) + 1 and self._goes_on_from(newest, query_id):
            return newest
        return self.store.before(number, query_id)

    def _goes_on_from(self, newest: Manifest, query_id: str) -> bool:
        return newest.query_id == query_id or self.cluster.continues(newest)

    def attempt(self, make: Callable[[frozenset[str]], Batch], rows: Rows) -> Batch:
        """Runs a batch; queries that a value stops are left out of it, if the job may go on without them.

        `make` gives the batch, in which rows that cannot be used are set aside for some queries.
        """
        sifted: frozenset[str] = frozenset()
        while True:
            batch = make(sifted)
            try:
                self._run(batch, rows)
                return batch
            except InputError as error:
                failed = at_fault(suspects(batch.reports), error, partial(self._failure, batch, rows))
            sifted |= self._deal_with(failed, sifted, batch.batch_id)

    def _deal_with(self, failed: Mapping[str, MidstreamError], sifted: frozenset[str], batch_id: int) -> frozenset[str]:
        """Decides what becomes of queries that failed; gives those for which rows are set aside now."""
        for name, error in failed.items():
            if self.faults.policy(name) == "stop_job":
                raise named(name, error) if len(self.queries) > 1 else error
        tried = frozenset(n for n in failed if self.faults.policy(n) == "dead_letter" and n not in sifted)
        for name in failed.keys() - tried:
            migration = self.queries[name].migration
            if migration is not None and migration.begun is None:
                self.cancel_migration(name)
            self.faults.stop(name, batch_id, failed[name])
            log.warning("query %s is in quarantine since batch %d: %s", name, batch_id, failed[name])
        return tried

    def _failure(self, batch: Batch, rows: Rows, names: Collection[str]) -> MidstreamError | None:
        """What makes some queries of a batch fail by themselves, if anything does."""
        reports = self.cluster.run(batch.only(names), rows)
        suspects(reports)
        return next((report.error for report in reports if report.error is not None), None)

    def _run(self, batch: Batch, rows: Rows) -> None:
        started = time.perf_counter()
        reports = self.cluster.run(batch, rows)
        if not any(report.error for report in reports) and batch.reaches.widened(reports):
            reports = self.cluster.run(batch, rows)
        batch.take(reports, time.perf_counter() - started)

    def _batch(
        self,
        query_id: str,
        batch_id: int,
        before: Manifest | None,
        clock: int | None = None,
        sifted: frozenset[str] = frozenset(),
    ) -> Batch:
        assert self.arriving is not None
        self.watchers.settle(before, self.queries)
        old = current_routing(before, self.slots, self.group_bits)
        move, upgrade = self.cluster.move, None if self.by_group else self.group_bits
        settled = settle(self.store.uri, batch_id, before, self.queries, old, self.wanted, move, self.memory, upgrade)
        return Batch(
            self.store.uri,
            query_id,
            batch_id,
            settled.before,
            {
                name: replace(query, share=False) if name in sifted else query
                for name, query in settled.queries.items()
                if name not in self.faults.stopped
            },
            self.streams,
            self.arriving,
            settled.routing.slots,
            self.memory,
            scheduling=self.scheduling,
            shapes=self.shapes,
            looks=self.watchers.requests(batch_id, settled.routing.slots),
            watched=frozenset(self.watchers.by_query),
            ended=_together(self.cancelled, settled.ended),
            moved=settled.moved,
            reaches=Reaches.of(self.streams.values(), before, clock),
            sifted=sifted,
            group_bits=self.group_bits,
            by_group=self.by_group or settled.upgraded,
        )

    def _commit(self, batch: Batch, offsets: str, number: int, ended: bool) -> None:
        terms = Terms(
            Settings(
                self.job,
                identity_after(batch.before),
                told_of_streams(batch.before, self.needed()),
                {name: route.key for name, route in self.routes.items()},
                batch.scheduling,
                self.carry,
                ended,
            ),
            Asked(self.requests.told(batch.before, batch.batch_id), dict(self.dropped)),
            still_wanted(self.wanted, Routing(tuple(batch.routing), batch.slots)),
            counted(batch.before, number),
            self.watchers.after(batch, self.check_migration),
        )
        entries = {name: entry_of(query) for name, query in self.queries.items()}
        made = self.faults.in_manifest(Outcome(batch).manifest(offsets, terms), batch.before, entries)
        made = self.verifications.in_manifest(self.files, made, {**self.queries, **batch.queries})
        manifest = self._tidied(batch, self._with_requested(made))
        if self.lease is not None:
            manifest = replace(manifest, epoch=self.lease.epoch)
        self.check_lease()
        self.committing = manifest.batch_id
        self.store.commit(manifest)
        self.manifest, self.sinks_owed = manifest, True
        self._follow(manifest)
        self._retire(batch)
        self.slots = batch.slots
        self.queries.update({name: batch.queries[name].after_batch for name in batch.ended if name in self.queries})
        if batch.by_group and not self.by_group:
            self.by_group = True
            self.queries = {name: query.sorted_by_group(self.group_bits) for name, query in self.queries.items()}
        self.verifications.committed(manifest, self.queries)
        self.cancelled.clear()
        if self.wanted is not None and tuple(manifest.slots.routing) == self.wanted.groups:
            self.wanted = None
        if self.rebalancing is not None and self.wanted is None:
            dealt = self.rebalancing.after(manifest.slots.routing, manifest.slots.loads, self.slots)
            self.wanted = None if dealt is None else Routing(dealt, self.slots, "a slot with much more than others")
        self.requests.committed()
        self.faults.committed()
        self.store.retain(max(self.retained, FOR_A_REPLAY + own_batches(manifest)), self.check_lease)
        if self._collects(batch):
            collect(self.store, self.files, self.check_lease)
        self.compactor.begin(manifest)
        self.committing = None

    def _with_requested(self, manifest: Manifest) -> Manifest:
        """The manifest that remembers the queries that were added, and the adaptivity that was asked for."""
        known = manifest.accounts.items()
        accounts = {n: replace(a, added=self.added.get(n), mode=self.adapted.get(n)) for n, a in known}
        return replace(manifest, accounts=accounts)

    @property
    def torn(self) -> bool:
        """Whether a commit was interrupted after its manifest was there, so that the checkpoint must be read again."""
        return self.committing is not None and max(self.store.batch_ids(), default=-1) >= self.committing

    def _require_whole(self) -> None:
        if self.torn:
            raise JobError(
                f"the commit of batch {self.committing} was interrupted, and the session does not know all of it",
                hint="stop the session and start it again: it goes on from the checkpoint",
            )

    def needed(self) -> list[tuple[StreamDeclaration, list[str]]]:
        """The streams, with their columns that are read."""
        return [(d, needed_columns(self.queries, d, self.watchers)) for d in self.streams.values()]

    def check_lease(self) -> None:
        """Fails if somebody else drives the job by now."""
        if self.lease is not None:
            self.lease.check()

    def _collects(self, batch: Batch) -> bool:
        return batch.batch_id % self.retained == 0

    def _tidied(self, batch: Batch, manifest: Manifest) -> Manifest:
        """The manifest with small files merged, old ones in lists, and the batch in the metrics table."""
        # Before rubbish is collected nothing may be half made.
        manifest = with_archive(manifest, batch.before, self.retiring)
        manifest = adopt(manifest, self.compactor.take(wait=self._collects(batch)), this_process().now())
        row = metrics_row(progress_of(batch, manifest), this_process().now())
        completed_before = completed(manifest, self.told_after)
        self.told_after = {}
        return shorten(self.files, remember(self.files, completed_before, row, self.metrics_retained))

    def _retire(self, batch: Batch) -> None:
        """Forgets the queries that ran for the last time."""
        for name in self.retiring & (batch.queries.keys() | self.faults.stopped.keys()):
            self.queries.pop(name, None)
            self.faults.forget(name)
            self.retiring.discard(name)

    def _follow(self, manifest: Manifest) -> None:
        """Goes on with what the manifest says of migrations."""
        for name, query in list(self.queries.items()):
            if query.local:
                local = manifest.account(name).local_plans
                self.queries[name] = follow(query, local, manifest.slots.count, name in self.faults.stopped)
            if query.migration is None:
                continue
            told = manifest.migration.get(name)
            if told is None:
                self.queries[name] = query.after_batch
            else:
                query.migration.begun, query.migration.done = told["begun"], told["done"]
                query.migration.account = Account(**told["account"])

    def rebalance(self, routing: Sequence[int] | None, trigger: str = "asked for") -> bool:
        """Deals groups to slots anew, beginning with the next batch that can; false if nothing would change."""
        with self.gate:
            wanted = rerouted(self.routing, self.loads, routing, trigger)
            self.wanted = self.wanted if wanted is None else wanted
            return wanted is not None

    def rescale(self, slots: int, trigger: str = "asked for") -> bool:
        """Deals groups to another number of slots, beginning with the next batch that can; false if it is the same."""
        with self.gate:
            require_slots(slots, 2**self.group_bits)
            if slots == self.slots:
                return False
            self.wanted = self._dealt_evenly(slots, trigger)
            return True

    def _dealt_evenly(self, slots: int, trigger: str) -> Routing:
        return Routing(tuple(default_routing(slots, 2**self.group_bits)), slots, trigger)

    @property
    def routing(self) -> Routing:
        """How groups are dealt to slots now."""
        return current_routing(self.manifest, self.slots, self.group_bits)

    @property
    def loads(self) -> list[float]:
        """How much each group had to do lately; nothing before the first batch."""
        return [] if self.manifest is None else list(self.manifest.slots.loads)

    @property
    def sort_bits(self) -> int | None:
        """By how many bits of groups states are sorted; None if they are sorted by key alone."""
        return self.group_bits if self.by_group else None

    def adapt(self, name: str, mode: str) -> None:
        """Changes how a query adapts, from the next batch on, and remembers it; what it has seen is kept."""
        with self.gate:
            known = self.watchers.by_query.pop(name, None)
            self.adapted[name] = mode_of(mode)
            policy = self.policy_for(name, None if known is None else known.policy)
            if policy is not None:
                self.watchers.watch(self.queries[name], policy)

    def policy_for(self, name: str, policy: Policy | None) -> Policy | None:
        """How a query adapts: as its program says, unless another mode was asked for while the job ran."""
        mode = self.adapted.get(name)
        return policy if mode is None else policy_of(replace(policy or Policy(), mode=mode))

    def situation(self, query: RunningQuery) -> Situation:
        """Where a query stands, as migration strategies ask for it."""
        if self.manifest is None:
            return Situation(query.sources)
        latest, registers = self.manifest.streams.latest, self.manifest.streams.registers
        aliases = {source.stream.alias: source.stream.name for source in query.sources}
        stages = self.manifest.segments.get(query.name, {})
        ends: dict[str, int] = {}
        for entry in (e for slots in stages.values() for entries in slots.values() for e in entries):
            ends[entry.state] = max(ends.get(entry.state, BEGINNING), entry.latest_to)
        return Situation(
            query.sources,
            self.manifest.advanced_to.get(query.name, BEGINNING),
            {alias: latest[name] for alias, name in aliases.items() if name in latest},
            {alias: registers.get(name, BEGINNING) for alias, name in aliases.items()},
            max(ends.values(), default=BEGINNING),
            ends=ends,
        )

    def target(self, query: RunningQuery, plan: Plan) -> RunningQuery:
        """The query by another plan; streams arrive as they do."""
        target = RunningQuery.of(
            query.name,
            query.cql,
            plan,
            query.functions,
            self.routes,
            query.emit_every,
            settled=True,
            bits=self.sort_bits,
        )
        target.share = query.share
        return target

    def verify_migration(
        self, name: str, target: RunningQuery, strategy: str, trigger: str, part: str, verify: int
    ) -> None:
        """Starts a migration of a copy of a query; the query follows once both have been the same for so long."""
        with self.gate:
            query, before, copy = self.queries[name], self.manifest, copy_name(name)
            self._require_at_work(name)
            self._require_not_migrating(query)
            if query.local:
                raise MigrationError(f"query {name} runs by other plans in some slots, which is not verified")
            since = BEGINNING if before is None else before.released.get(name, BEGINNING)
            wanted = Verification(target.plan.text, strategy, trigger, part, since, since, Stretch(verify))
            made = self.target(query, query.plan)
            self.queries[copy] = replace(made, name=copy, share=False, core=query.core)
            self.manifest = before if before is None or name not in before.queries else with_copy(before, name)
            try:
                self.begin_migration(copy, replace(target, name=copy, share=False), strategy, trigger, part)
            except MigrationError:
                del self.queries[copy]
                self.manifest = before
                raise
            self.verifications.begin(name, wanted)

    def _require_not_migrating(self, query: RunningQuery) -> None:
        if query.migration is not None:
            raise MigrationError(
                f"query {query.name} is migrating already, to {query.migration.target.plan.text}",
                hint="wait for the end of that migration",
            )
        known = self.verifications.by_query.get(query.name)
        if known is not None and not known.passed:
            self.verifications.require_rest(query.name)

    def begin_migration(
        self,
        name: str,
        target: RunningQuery,
        strategy: str,
        trigger: str,
        part: str = "auto",
        slots: Sequence[int] | None = None,
    ) -> None:
        """Starts a migration with the next batch, of all slots or of some; plans in several stages go as a whole."""
        with self.gate:
            query = self.queries[name]
            self._require_at_work(name)
            if slots is not None or query.local:
                self.verifications.require_rest(name)
                self._begin_locally(query, target, strategy, trigger, part, slots)
                return
            self._require_not_migrating(query)
            query.migration = self._migration(query, target, strategy, trigger, part)

    def _migration(
        self, query: RunningQuery, target: RunningQuery, strategy: str, trigger: str, part: str
    ) -> MigrationUnderWay:
        """A migration as it was decided, before it begins; refuses one that would be wrong."""
        chosen, apart = legal_strategy(query, target, strategy, part)
        known = replace(self.situation(query), old=query.plan, new=target.plan, functions=query.functions)
        watcher = self.watchers.by_query.get(query.name)
        decision = decide(chosen, apart, known, None if watcher is None else watcher.observed)
        return MigrationUnderWay(target, chosen.name, decision, None, False, trigger, apart)

    def _begin_locally(
        self,
        query: RunningQuery,
        target: RunningQuery,
        strategy: str,
        trigger: str,
        part: str,
        slots: Sequence[int] | None,
    ) -> None:
        """Starts a migration of each of some slots, or of all, that runs by another plan than the target."""
        asked = sorted(set(range(self.slots) if slots is None else slots))
        require_slots_of(query, target, asked, self.slots)
        leaving = [slot for slot in asked if query.in_slot(slot).plan.text != target.plan.text]
        begun = {}
        for slot in leaving:
            own = query.in_slot(slot)
            begun[slot] = replace(own, local={}, migration=self._migration(own, target, strategy, trigger, part))
        query.local = {**query.local, **begun}

    def _require_at_work(self, name: str) -> None:
        if name in self.faults.stopped:
            raise MigrationError(
                f"query {name} is in quarantine since batch {self.faults.stopped[name].batch}",
                detail=self.faults.stopped[name].reason,
                hint="resume it first, or replace it",
            )

    def cancel_migration(self, name: str) -> None:
        """Goes back to the old plan with the next batch."""
        with self.gate:
            query = self.queries[name]
            self._require_at_work(name)
            verified = self.verifications.forget(name, self.queries)
            if verified is not None:
                self.cancelled.setdefault(name, []).append(verified)
                return
            migrating = [own for own in query.local.values() if own.migration is not None] or [query]
            for migration in [require_cancellable(own) for own in migrating]:
                migration.cancelling = migration.begun is not None
            for own in migrating:
                if own.migration is not None and own.migration.begun is None:
                    record = own.migration.record(own.plan.text, None, "cancelled")
                    self.cancelled.setdefault(name, []).append(record)
                    own.migration = None

    def begin_decided(self) -> None:
        """Starts the migrations that watchers decided on after the last batch, as its manifest says."""
        self.watchers.settle(self.manifest, self.queries)
        self._begin_verified()
        for name, wish in self.watchers.wishes(self.queries):
            if name in self.faults.stopped:
                continue
            query = self.queries[name]
            target = self.target(query, plan_query(query.plan.query, wish["plan"], query.emit_every))
            verify = self.watchers.by_query[name].adaptive.verify
            try:
                if verify is None:
                    self.begin_migration(name, target, wish["strategy"], wish["reason"])
                else:
                    self.verify_migration(name, target, wish["strategy"], wish["reason"], "auto", verify)
            except MigrationError as error:
                log.warning("query %s stays with its plan: %s", name, error)

    def _begin_verified(self) -> None:
        """Starts the migrations that were verified and that queries have to go through themselves."""
        for name, known in self.verifications.by_query.items():
            query = self.queries[name]
            if not known.passed or query.migration is not None or name in self.faults.stopped:
                continue
            target = self.target(query, plan_query(query.plan.query, known.plan, query.emit_every))
            self.begin_migration(name, target, known.strategy, known.trigger, known.part)
            assert query.migration is not None
            query.migration.decision["verified"] = known.found().to_json()

    def check_migration(self, query: RunningQuery, plan: Plan, strategy: str) -> None:
        """Raises a MigrationError if a query could not begin to go over to a plan with the next batch."""
        self.verifications.require_rest(query.name)
        history = () if self.manifest is None else self.manifest.account(query.name).history
        if any(told["status"] in (DIFFERS, FAILED) and told["new_plan"] == plan.text for told in history):
            raise MigrationError(f"a verification has found {plan.text} to differ from the plan that ran")
        target = self.target(query, plan)
        legal_strategy(query, target, strategy)
        carried = {d.name: set(self.arriving.schemas[port].names) for port, d in self.streams.items()}  # type: ignore[union-attr]
        for source in target.sources:
            prefix = f"{source.stream.alias}."
            if not {name.removeprefix(prefix) for name in source.schema.names} <= carried[source.stream.name]:
                raise MigrationError(f"the plan reads columns of {source.stream.name} that batches do not carry")

    def call_sinks(self, before: Manifest | None, manifest: Manifest) -> None:
        """Gives sinks what a manifest has released since the one before it."""
        for name, sinks in self.sinks.items():
            query = self._query_of(name)
            since = BEGINNING if before is None else before.released.get(name, BEGINNING)
            if query is None or manifest.released.get(name, BEGINNING) <= since:
                continue
            results = self.cluster.released(manifest, name, query.plan, since)
            for sink in sinks:
                deliver(sink, results, name, manifest)
        self.sinks_called = manifest.batch_id

    def _query_of(self, name: str) -> RunningQuery | None:
        """The query whose results manifests have under a name; until it runs, another does not take its place."""
        aside = "" if self.manifest is None else name_of_old(self.manifest, name)
        if self.manifest is None or aside not in self.manifest.queries:
            return self.queries.get(name)
        if aside not in self.queries:
            raise JobError(
                f"the last results of query {name} have not reached its sinks, and it cannot be read any more",
                detail=f"it was: {self.manifest.queries[aside].cql}",
                hint="run the job once with the old text, and replace it then",
            )
        return self.queries[aside]

    def _tell(self, batch: Batch, started: float, ran: float, committed: float) -> None:
        event = progress_of(batch, self.manifest)
        self.told_after = {
            "commit": committed - ran,
            "decide": self.watchers.seconds,
            "sinks": time.perf_counter() - committed,
            "batch": time.perf_counter() - started,
        }
        event["seconds"] |= self.told_after
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


def added_to(manifest: Manifest) -> dict[str, Mapping[str, Any]]:
    """The queries that were added while the job ran, and what they were added with."""
    return {name: account.added for name, account in manifest.accounts.items() if account.added is not None}


def _route(key: Any) -> Route:
    return Route(None if key is None else tuple(key))


def needed_columns(
    queries: Mapping[str, RunningQuery], declaration: StreamDeclaration, watchers: Watchers | None = None
) -> list[str]:
    """The columns of a stream that queries read or that are watched, and its time."""
    wanted = {declaration.time} | (set() if watchers is None else watchers.columns(declaration.name))
    for query in queries.values():
        for source in query.sources_read:
            if source.stream.name == declaration.name:
                wanted.update(name.removeprefix(f"{source.stream.alias}.") for name in source.schema.names)
    return [name for name in declaration.columns.names if name in wanted]
