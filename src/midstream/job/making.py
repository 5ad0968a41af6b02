"""How the next batch is made: from the job's state, with state moved that is due, and from what is known outside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.file_entries import SourceFile
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.routing import Routing
from midstream.distribution.spread_groups import reads_alone
from midstream.job.actions import Flow
from midstream.job.arriving.reaching import Reaches
from midstream.job.batch import Batch
from midstream.job.migrations.moving_migrations import Filled
from midstream.job.queries.fingerprints import Fingerprints
from midstream.job.slots.doubled_moves import moves_doubled, relocated_doubled
from midstream.job.slots.relocation import Relocated, current_routing, relocated
from midstream.job.slots.rerouting import Rerouter
from midstream.job.state import JobState
from midstream.job.task.layout import Layout
from midstream.job.task.memory import Memory
from midstream.job.task.samples import SampleRequest


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a batch is made of besides the job's state.

    `streams` arrive laid out as `arriving`, from `files` where folders are streams; `clock` is the batch's wall clock.
    A batch of our own, without rows, works with `registers`. `samples` are what slots sample for queries that are
    `watched`. `fingerprints` and `rerouter` remember what they have found of plans.
    """

    checkpoint: str
    query_id: str
    batch_id: int
    before: Manifest | None
    streams: Mapping[int, StreamDeclaration]
    arriving: Layout
    memory: Memory = field(default_factory=Memory)
    clock: int | None = None
    files: Mapping[str, Sequence[SourceFile]] = field(default_factory=dict)
    registers: Mapping[str, int] | None = None
    samples: tuple[SampleRequest, ...] = ()
    watched: frozenset[str] = frozenset()
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    rerouter: Rerouter = field(default_factory=Rerouter)


def make(state: JobState, at: Circumstances, sifted: frozenset[str] = frozenset()) -> Flow[Batch]:
    """The next batch; rows that make the expressions of `sifted` queries fail are set aside."""
    old = current_routing(at.before, state.slots, state.group_bits)
    upgrade = None if state.by_group else state.group_bits
    doubles = moves_doubled(at.before, state.wanted)
    merges = None if state.faults.stopped else state.spread.merging
    better = None if doubles else at.rerouter.better(state.queries, state.routes, state.sort_bits, merges)
    spreading = state.spread.beginning(at.before, state.queries, state.faults.stopped, old, state.wanted, better)

    def relocate(
        since: Manifest | None, wanted: Routing | None, placed: Mapping[str, Filled] | None
    ) -> Flow[Relocated]:
        uri, queries = at.checkpoint, state.queries
        return relocated(uri, at.batch_id, since, queries, old, wanted, at.memory, upgrade, better, placed)

    moved = yield from relocated_doubled(at.batch_id, spreading.start, state.queries, old, state.wanted, relocate)
    before, spread = spreading.after(moved.before, moved.queries, moved.routing)
    return Batch(
        at.checkpoint,
        at.query_id,
        at.batch_id,
        before,
        {
            name: replace(query, share=False) if name in sifted or reads_alone(query.staged, spread) else query
            for name, query in moved.queries.items()
            if name not in state.faults.stopped
        },
        at.streams,
        at.arriving,
        moved.routing.slots,
        at.memory,
        registers_now=at.registers,
        scheduling=state.settings.scheduling,
        samples=at.samples,
        watched=at.watched,
        ended=_together(state.cancelled, moved.ended),
        moved=spreading.record(moved.moved, at.batch_id, moved.routing, spread),
        files_read=at.files,
        fingerprints=at.fingerprints,
        reaches=Reaches.of(at.streams.values(), at.before, at.clock),
        group_bits=state.group_bits,
        by_group=state.by_group or moved.upgraded,
        sifted=sifted,
        routes=dict(state.routes if better is None else better.routes),
        recut={} if better is None else better.queries,
        spread=spread,
        doubling=moved.doubling,
        copies={} if moved.doubling is None else moved.doubling.copies,
    )


def _together(*records: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for some in records:
        for name, these in some.items():
            found.setdefault(name, []).extend(these)
    return found
