"""How the next batch is made: from the job's state, with state moved that is due, and from what is known outside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.algebra.time import INFINITY
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.routing import Routing
from midstream.distribution.spread_groups import reads_alone
from midstream.job.actions import Flow
from midstream.job.arriving.incoming import Incoming, Reaches
from midstream.job.batch import Batch, Changes, RunOptions
from midstream.job.position import Position
from midstream.job.queries.fingerprints import Fingerprints
from midstream.job.slot_layout import SlotLayout
from midstream.job.slots.doubled_moves import moves_doubled, relocated_doubled
from midstream.job.slots.relocation import Relocated, Relocation, current_routing
from midstream.job.slots.replays import Pace
from midstream.job.slots.rerouting import Rerouter
from midstream.job.slots.stepping import next_step
from midstream.job.state import JobState


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a batch is made of besides the job's state: where it stands, how rows arrive, how steps run.

    `clock` is the batch's wall clock. `fingerprints` and `rerouter` remember what they have found of plans.
    """

    position: Position
    incoming: Incoming
    options: RunOptions = field(default_factory=RunOptions)
    clock: int | None = None
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    rerouter: Rerouter = field(default_factory=Rerouter)

    @property
    def before(self) -> Manifest | None:
        """The manifest before the batch."""
        return self.position.before


def make(state: JobState, at: Circumstances, sifted: frozenset[str] = frozenset()) -> Flow[Batch]:
    """The next batch; rows that make the expressions of `sifted` queries fail are set aside."""
    batch_id = at.position.batch_id
    old = current_routing(at.before, state.slots, state.group_bits)
    doubles = moves_doubled(at.before, state.wanted)
    merges = None if state.faults.stopped else state.spread.merging
    # New queries start with what others keep where it is; how streams arrive changes in a batch without them.
    begins = at.before is not None and not state.queries.keys() <= at.before.queries.keys()
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
        return Relocation(uri, batch_id, since, state.queries, old, memory, pace).to(wanted, better, placed)

    moved = yield from relocated_doubled(
        batch_id, spreading.start, state.queries, old, wanted, relocate, state.faults.stopped
    )
    before, spread = spreading.after(moved.before, moved.queries, moved.routing)
    dealt = current_routing(before, moved.routing.slots, state.group_bits)
    queries = {
        name: replace(query, share=False) if name in sifted or reads_alone(query.staged, spread) else query
        for name, query in moved.queries.items()
        if name not in state.faults.stopped
    }
    return Batch(
        replace(at.position, before=before),
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
        Changes(
            _together(state.cancelled, moved.ended),
            frozenset(moved.ended),
            spreading.record(moved.moved, batch_id, moved.routing, spread),
            {} if better is None else better.queries,
        ),
        at.fingerprints,
    )


def _together(*records: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for some in records:
        for name, these in some.items():
            found.setdefault(name, []).extend(these)
    return found
