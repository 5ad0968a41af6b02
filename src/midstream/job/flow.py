"""A batch, as the actions it takes: state is moved, steps run, decisions fall, a manifest is written, sinks are called.

A flow knows no cluster, no files and no clock. It yields actions (`actions.py`) and is sent their answers; events
(`events.py`) that it yields change the job's state, and it is sent the new one. `Job.perform` carries it out.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.manifest import Manifest, counted
from midstream.checkpoint.names import query_of_copy
from midstream.checkpoint.records import Asked, StoredRequest
from midstream.distribution.fragments import Routing, SpreadGroup
from midstream.distribution.spread_groups import reads_alone
from midstream.errors import InputError, MidstreamError
from midstream.job.actions import CallSinks, Collect, Commit, CompareResults, Decide, Decided, Flow, RunSteps
from midstream.job.adaptivity import Watcher
from midstream.job.batch import Batch, ChangesBefore, RunOptions, entry_of
from midstream.job.circumstances import Incoming, Position, Reaches, SlotLayout, current_routing
from midstream.job.events import Committed, MigrationCancelled, QueryStopped, SlotsDecided
from midstream.job.migrations.migrating import require_way
from midstream.job.outcome import Outcome, Terms
from midstream.job.queries.backfill import ReadAgain, due, with_read
from midstream.job.queries.faults import NO_FAULTS, at_fault, named, suspects
from midstream.job.queries.filling import Pace
from midstream.job.queries.fingerprints import Fingerprints
from midstream.job.queries.replacing import with_archive
from midstream.job.slots.both_at_once import not_together
from midstream.job.slots.doubled_moves import moves_doubled, relocated_doubled
from midstream.job.slots.measuring import DecidedPlanChange, PlansDecided
from midstream.job.slots.pacing import next_step
from midstream.job.slots.relocation import Relocated, Relocation
from midstream.job.slots.rerouting import Rerouter, Rerouting
from midstream.job.slots.slot_decisions import SlotDecisions
from midstream.job.state import JobState, copied
from midstream.job.watchers import Watchers
from midstream.migration.moving_state_paced import LEAST_WORK
from midstream.operators.slices import grid_floor
from midstream.optimizer.plans import plan_query


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a batch is made of besides the job's state: where it stands, how rows arrive, how steps run.

    `clock` is the wall clock of the batch's rows, `now` what time it is as it begins. `fingerprints` and `rerouter`
    remember what they have found of plans.
    """

    position: Position
    incoming: Incoming
    options: RunOptions = field(default_factory=RunOptions)
    clock: int | None = None
    now: float = 0.0
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    rerouter: Rerouter = field(default_factory=Rerouter)

    @property
    def before(self) -> Manifest | None:
        """The manifest before the batch."""
        return self.position.before


def make(state: JobState, at: Circumstances, sifted: frozenset[str] = frozenset()) -> Flow[Batch]:
    """The next batch; rows that make the expressions of `sifted` queries fail are set aside."""
    old = current_routing(at.before, state.slots, state.group_bits)
    in_stages = any(len(query.staged.fragments) > 1 for query in state.queries.values())
    if state.is_calm(at.before) and not (
        in_stages and at.rerouter.better(state.queries, state.routes, state.group_bits)
    ):
        return _batch(state, at, sifted, Relocated(at.before, state.queries, old))
    batch_id = at.position.batch_id
    doubles = moves_doubled(at.before, state.wanted)
    merges = None if state.faults.stopped else state.spread.merging
    # New queries start with what others keep where it is; how streams arrive changes in a batch without them.
    filled = at.before is not None and any(map(at.before.fills, state.queries))
    begins = filled or (at.before is not None and not state.queries.keys() <= at.before.queries.keys())
    fixed = doubles or begins
    better = None if fixed else at.rerouter.better(state.queries, state.routes, state.group_bits, merges)
    # Nothing comes after the last batch, so nothing is left for later ones.
    registers = at.incoming.registers or {}
    ends = bool(registers) and all(register == INFINITY for register in registers.values())
    pace = Pace.of(at.before, state.faults.stopped, ends)
    wanted = next_step(old, state.wanted, at.before, state.queries, pace.rows)
    spreading = state.spread.beginning(at.before, state.queries, state.faults.stopped, old, wanted, better)

    def relocate(since: Manifest | None, wanted: Routing | None, placed: Collection[str]) -> Flow[Relocated]:
        uri, memory = at.position.checkpoint, at.options.memory
        return Relocation(uri, batch_id, since, state.queries, old, memory, pace, at.now).to(wanted, better, placed)

    moved = yield from relocated_doubled(
        batch_id, spreading.start, state.queries, old, wanted, relocate, state.faults.stopped
    )
    before, spread = spreading.after(moved.before, moved.queries, moved.routing)
    record = spreading.record(moved.moved, batch_id, moved.routing, spread)
    return _batch(state, at, sifted, replace(moved, before=before, moved=record), spread, better)


def _batch(
    state: JobState,
    at: Circumstances,
    sifted: frozenset[str],
    moved: Relocated,
    spread: tuple[SpreadGroup, ...] = (),
    better: Rerouting | None = None,
) -> Batch:
    """The batch that goes on from where state is by now."""
    dealt = current_routing(moved.before, moved.routing.slots, state.group_bits)
    queries = {
        name: replace(query, share=False) if name in sifted or (spread and reads_alone(query.staged, spread)) else query
        for name, query in moved.queries.items()
        if name not in state.faults.stopped
    }
    return Batch(
        replace(at.position, before=moved.before),
        queries,
        replace(
            at.incoming,
            routes=dict(state.routes if better is None else better.routes),
            reaches=Reaches.of(at.incoming.streams.values(), at.before, at.clock),
        ),
        SlotLayout(
            moved.routing.slots,
            dealt.groups,
            spread,
            moved.doubled,
            {**dealt.apart, **{g.key_class: dealt.table(g.key_class) for g in spread if g.active and g.key_class}},
        ),
        replace(at.options, scheduling=state.settings.scheduling, sifted=sifted),
        ChangesBefore(
            _together(state.cancelled, moved.ended),
            frozenset(moved.ended),
            moved.moved,
            {} if better is None else better.queries,
        ),
        at.fingerprints,
        at.now,
    )


def _together(*records: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for some in records:
        for name, these in some.items():
            found.setdefault(name, []).extend(these)
    return found


log = logging.getLogger(__name__)


def attempt(state: JobState, at: Circumstances) -> Flow[tuple[JobState, Batch]]:
    """Runs a batch until no query fails in it; gives it, and the state without the queries that were stopped."""
    if not state.is_calm(at.before):
        state, at = yield from _with_old_rows(state, at)
    sifted: frozenset[str] = frozenset()
    while True:
        batch = yield from make(state, at, sifted)
        try:
            yield from _run(batch)
            return state, batch
        except InputError as error:
            failed = yield from at_fault(suspects(batch.reports), error, partial(_failure, batch))
        tried = _sifted_next(state, failed, sifted)
        for name in failed.keys() - tried:
            state = yield QueryStopped(name, batch.batch_id, failed[name])
            log.warning("query %s is in quarantine since batch %d: %s", name, batch.batch_id, failed[name])
        sifted |= tried


def _with_old_rows(state: JobState, at: Circumstances) -> Flow[tuple[JobState, Circumstances]]:
    """Has rows read again for queries whose windows are filled from sources; a change for which they are gone ends."""
    before = at.before
    for name, filling in due(before, state.queries).items():
        assert before is not None
        if name not in state.queries:
            continue  # it changed together with one that was cancelled
        query, wanted = state.queries[name], filling.rate or LEAST_WORK
        for number, window in enumerate(filling.windows):
            if not window.unread or name in state.faults.stopped:
                continue
            source = next(source for source in query.sources if source.stream.alias == window.alias)
            frontier = grid_floor(before.advanced_to.get(name, BEGINNING), query.grid)
            read = yield ReadAgain(at.position.batch_id, before, source, window, wanted, frontier)
            if isinstance(read, MidstreamError):
                changed = query_of_copy(name)
                log.warning("query %s keeps its text: %s", changed, read)
                state = yield MigrationCancelled(changed, str(read))
                break
            before, filling = with_read(before, name, filling, number, read)
            wanted -= sum(entry.rows for entry in read[0])
            if wanted <= 0:
                break
    return state, replace(at, position=replace(at.position, before=before))


def _run(batch: Batch) -> Flow[None]:
    reports, seconds = yield RunSteps(batch)
    if not any(report.error for report in reports) and batch.incoming.reaches.widened(reports):
        reports, more = yield RunSteps(batch)
        seconds += more
    batch.take(reports, seconds)


def _failure(batch: Batch, names: Collection[str]) -> Flow[MidstreamError | None]:
    """What makes some queries of a batch fail by themselves, if anything does."""
    reports, _ = yield RunSteps(batch.only(names))
    suspects(reports)
    return next((report.error for report in reports if report.error is not None), None)


def _sifted_next(state: JobState, failed: Mapping[str, MidstreamError], sifted: frozenset[str]) -> frozenset[str]:
    """Those of the queries that failed for which rows are set aside in the next attempt; the others are stopped."""
    for name, error in failed.items():
        if state.faults.policy(name) == "stop_job":
            raise named(name, error) if len(state.queries) > 1 else error
    return frozenset(n for n in failed if state.faults.policy(n) == "dead_letter" and n not in sifted)


Needed = Sequence[tuple[StreamDeclaration, list[str]]]
"""Streams, with the columns of them that are read."""


REMEMBERED = 20
"""How many requests of earlier batches a manifest tells of."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What a manifest says that neither the job's state nor the reports of a batch do.

    `number` is that of the source's batch, read up to `offsets`. `needed` are the columns of streams that are read, and
    `requests` what people have asked for since the last one. After the last batch all streams have `ended`.
    """

    number: int
    offsets: str = ""
    needed: Needed = ()
    requests: Sequence[StoredRequest] = ()
    ended: bool = False


def batch_flow(state: JobState, at: Circumstances, notes: Notes) -> Flow[Batch]:
    """A batch from its rows to its sinks."""
    batch, manifest = yield from committed_batch(state, at, notes)
    yield CallSinks(manifest)
    return batch


def committed_batch(state: JobState, at: Circumstances, notes: Notes) -> Flow[tuple[Batch, Manifest]]:
    """A batch up to its manifest; gives both."""
    state, batch = yield from attempt(state, at)
    manifest = yield from concluded(state, batch, notes)
    return batch, manifest


def concluded(state: JobState, batch: Batch, notes: Notes) -> Flow[Manifest]:
    """A batch whose reports are in: what is decided by them, and its manifest."""
    decided: Decided = yield Decide(batch)
    if decided.spread is not None:
        state = yield SlotsDecided(decided.routing, decided.spread)
    made, verified = yield CompareResults(_manifest(state, batch, notes, decided), {**state.queries, **batch.queries})
    made = state.with_requested(made)
    if state.retiring or (batch.before and batch.before.queries.keys() - made.queries.keys()):
        made = with_archive(made, batch.before, state.retiring)
    manifest: Manifest = yield Commit(batch, made)
    yield Committed(manifest, batch, verified)
    yield Collect(manifest)
    return manifest


def _manifest(state: JobState, batch: Batch, notes: Notes, decided: Decided) -> Manifest:
    """What a batch leaves behind, with the queries that were not at work in it."""
    earlier = () if batch.before is None else batch.before.asked.requests
    settings = replace(
        state.settings,
        declared=_declared(batch.before, notes.needed),
        arrival={name: route.key for name, route in batch.incoming.routes.items()},
        homes={name: list(route.slots) for name, route in batch.incoming.routes.items() if route.slots},
        scheduling=batch.options.scheduling,
        finished=notes.ended,
    )
    terms = Terms(
        state.settings if settings == state.settings else settings,
        Asked([*earlier[-REMEMBERED:], *notes.requests], dict(state.texts)),
        None if state.wanted is None or state.wanted.deals_as(batch.slots.dealing) else state.wanted,
        counted(batch.before, notes.number),
        decided,
        state.spread.seen(batch.slots.spread) if state.spread.groups else (),
        {name: query.merging for name, query in sorted({**state.queries, **batch.queries}.items()) if query.merging},
    )
    made = Outcome(batch).manifest(notes.offsets, terms)
    if state.faults == NO_FAULTS:
        return made
    return state.faults.in_manifest(made, batch.before, {name: entry_of(q) for name, q in state.queries.items()})


def _declared(before: Manifest | None, needed: Needed) -> dict[str, Mapping[str, Any]]:
    """What a manifest says of streams; those not declared now stay known."""
    known: dict[str, Mapping[str, Any]] = {} if before is None else dict(before.settings.declared)
    for stream, columns in needed:
        known[stream.name] = {
            "time": stream.time,
            "timestamps": stream.timestamps,
            "columns": {name: stream.kinds[name] for name in columns},
            "all": stream.kinds,
        }
    return known


Found = tuple[str, int | None, Mapping[str, Any]]
"""A query, the slot that is decided for (None: all), and what was decided."""


def decided(state: JobState, watchers: Watchers, slots: SlotDecisions | None, batch: Batch) -> Decided:
    """What those who watch queries and slots have decided after a batch."""
    incoming = batch.incoming
    knowledge = watchers.after(batch, partial(require_way, state), state.settings.links)
    if slots is None:
        return Decided(knowledge)
    spread, changing = copied(state.spread), list(_changing(watchers.by_query)) if incoming.has_rows else []
    changes = [
        DecidedPlanChange(name, slot, made["target_cost"] / max(made["cost"], 1e-12)) for name, slot, made in changing
    ]
    plans = PlansDecided(changes, partial(_apart, state, changing))
    found = slots.after(batch, watchers.interval(batch), state.wanted is not None, spread, plans)
    return Decided(knowledge, found.routing, spread, found.decisions, found.remembered)


def _changing(watchers: Mapping[str, Watcher]) -> Iterator[Found]:
    """The plans that are to change, of whole queries and of slots."""
    for name, watcher in watchers.items():
        if watcher.wish is not None:
            yield name, None, watcher.wish
        yield from ((name, slot, wish) for slot, wish in watcher.slot_wishes.items())


def _apart(state: JobState, changing: list[Found], protocol: str) -> str:
    """Why groups cannot begin to move by a protocol in the batch in which plans begin to change; empty if they can."""
    for name, slot, wish in changing:
        query = state.queries[name] if slot is None else state.queries[name].in_slot(slot)
        target = plan_query(query.plan.query, wish["target"], query.emit_every)
        if why := not_together(protocol, query, state.target(query, target)):
            return f"The plan of query {name} changes first: {why}."
    return ""
