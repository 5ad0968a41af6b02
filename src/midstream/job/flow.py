"""A batch, as the actions it takes: state is moved, steps run, decisions fall, a manifest is written, sinks are called.

A flow knows no cluster, no files and no clock. It yields actions (`actions.py`) and is sent their answers; events
(`events.py`) that it yields change the job's state, and it is sent the new one. `Job.perform` carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import Asked, StoredRequest
from midstream.checkpoint.source_batches import counted
from midstream.job.actions import CallSinks, Collect, Commit, CompareResults, Decide, Decided, Flow
from midstream.job.attempts import attempt
from midstream.job.batch import Batch, entry_of
from midstream.job.events import Committed, SlotsDecided
from midstream.job.making import Circumstances
from midstream.job.outcome import Outcome, Terms
from midstream.job.queries.declared import streams_record
from midstream.job.queries.replacing import with_archive
from midstream.job.slots.relocation import still_wanted
from midstream.job.state import JobState


@dataclass(frozen=True, slots=True)
class Notes:
    """What a manifest says that neither the job's state nor the reports of a batch do.

    `number` is that of the source's batch, read up to `offsets`. `needed` are the columns of streams that are read, and
    `requests` what people have asked for. After the last batch all streams have `ended`.
    """

    number: int
    offsets: str = ""
    needed: Sequence[tuple[StreamDeclaration, list[str]]] = ()
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
    made = with_archive(state.with_requested(made), batch.before, state.retiring)
    manifest: Manifest = yield Commit(batch, made)
    yield Committed(manifest, batch, verified)
    yield Collect(manifest)
    return manifest


def _manifest(state: JobState, batch: Batch, notes: Notes, decided: Decided) -> Manifest:
    """What a batch leaves behind, with the queries that were not at work in it."""
    terms = Terms(
        replace(
            state.settings,
            declared=streams_record(batch.before, notes.needed),
            arrival={name: route.key for name, route in batch.incoming.routes.items()},
            homes={name: list(route.slots) for name, route in batch.incoming.routes.items() if route.slots},
            scheduling=batch.options.scheduling,
            finished=notes.ended,
        ),
        Asked(list(notes.requests), dict(state.texts)),
        still_wanted(state.wanted, batch.slots.dealing),
        counted(batch.before, notes.number),
        decided.knowledge,
        decided.slot_decisions,
        decided.deciding,
        [group.to_json() for group in state.spread.seen(batch.slots.spread)],
        {name: query.merging for name, query in sorted({**state.queries, **batch.queries}.items()) if query.merging},
    )
    entries = {name: entry_of(query) for name, query in state.queries.items()}
    return state.faults.in_manifest(Outcome(batch).manifest(notes.offsets, terms), batch.before, entries)
