"""Beginning and ending moves of groups whose rows go to two slots meanwhile.

Nothing of the sender's state is ever sent. When a move begins, the moving groups' part of it is named apart, as ranges
of its segments; the receiver's lane starts with nothing. When the sender is not needed any more its lane is closed, and
what the receiver has taken in since is named with the receiver's other groups. Split-time balancing decides that by an
instant, PTLB by marks: its sender answers for combinations with rows that came before the move.

Where rows of different groups meet, as in plans of several stages, all of a query runs twice meanwhile: by the old
routing and by the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from midstream.algebra.physical import PhysicalNode, SourceNode
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import lane_name
from midstream.checkpoint.packs import Stored, within
from midstream.checkpoint.records import DoubledMove
from midstream.distribution.fragments import Routing
from midstream.distribution.move_legality import (
    DOUBLED,
    PTLB,
    SPLIT_TIME,
    node_memory,
    protocol_named,
    require_combinations,
    require_memory,
)
from midstream.errors import MigrationError, is_permitted
from midstream.job.actions import Flow
from midstream.job.batch import Batch
from midstream.job.lanes import BY_GROUPS, TO_NEW_SLOTS, TO_OLD_SLOTS, WHOLE, Filled, plan_lanes, regrouped
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.both_at_once import grouped_states, holds_up, in_tasks
from midstream.job.slots.relocation import Relocated, waits_for_migrations
from midstream.job.slots.segment_reuse import MOST_RANGES, ranges_of_groups
from midstream.job.task.lanes import LEAVING, STAYING

Relocate = Callable[[Manifest | None, Routing | None, Collection[str]], Flow[Relocated]]
"""Moves state that is due: goes on from a manifest to wanted slots, in which some queries have their state already."""


def cancelled_move(manifest: Manifest | None, queries: Mapping[str, RunningQuery], trigger: str) -> Manifest:
    """The manifest with which groups that move to two slots stay where they were; refuses where none do."""
    move = None if manifest is None else manifest.slots.doubled
    if manifest is None or move is None:
        raise MigrationError(
            "no partition groups are moving",
            detail="a move by mslb is over between two batches",
            hint="rebalance() with a routing moves groups back",
        )
    later = sorted(name for name in move.queries if name in queries and _begun_later(queries[name], move))
    if later:
        raise MigrationError(
            f"the move of groups by {move.target.protocol} cannot be cancelled while query {later[0]} migrates",
            detail="what leaves has stayed with the old plan, or the new plan runs in the new slots alone",
            hint="cancel the migration first, or let both end",
        )
    return manifest.with_doubled(replace(move, cancelled=trigger))


def _begun_later(query: RunningQuery, move: DoubledMove) -> bool:
    """Whether a query has begun to migrate since groups move, to a plan that has no lane in the old slots."""
    if move.target.protocol == PTLB and in_tasks(query):
        return True
    migration = query.migration
    if migration is None or not migration.splits or migration.begun is None:
        return False
    return move.split_at is None or migration.split_at >= move.split_at


def moves_doubled(manifest: Manifest | None, wanted: Routing | None) -> bool:
    """Whether groups whose rows go to two slots move, or wait for that."""
    return (manifest is not None and manifest.slots.doubled is not None) or (
        wanted is not None and wanted.protocol in DOUBLED
    )


def require_rest(manifest: Manifest | None) -> None:
    """Refuses what has to wait until groups that move have come to their slots."""
    if manifest is not None and manifest.slots.doubled is not None:
        move = manifest.slots.doubled
        raise MigrationError(
            f"groups move by {move.target.protocol} since batch {move.begun}",
            detail="until all that their rows meet has come to both slots, their rows go to both",
            hint="ask again once they have moved, as status says",
        )


def relocated_doubled(
    batch_id: int,
    before: Manifest | None,
    queries: Mapping[str, RunningQuery],
    old: Routing,
    wanted: Routing | None,
    relocate: Relocate,
    stopped: Collection[str] = (),
) -> Flow[Relocated]:
    """What a batch goes on from, with the move of groups that begins, goes on or ends with it.

    Queries that are `stopped` are not at work.
    """
    move = None if before is None else before.slots.doubled
    if before is not None and move is not None:
        # Marked states lose their marks when their query is at work.
        if move.cancelled and not set(move.queries) & set(stopped):
            return _went_back(move, batch_id, (yield from relocate(_back(move, before, queries), None, ())))
        others = {name: query for name, query in queries.items() if name not in move.queries}
        target = replace(move.target, apart=old.apart)
        if not move.over or waits_for_migrations(others, before, old, target):
            left = replace(move, queries={name: how for name, how in move.queries.items() if name in queries})
            return replace((yield from relocate(before, None, ())), doubled=left)
        ended = yield from relocate(_arrived(move, before, queries), target, move.queries)
        record = {"protocol": move.target.protocol, "start_batch": move.begun}
        return replace(ended, moved=None if ended.moved is None else {**ended.moved, **record})
    if before is None or wanted is None or wanted.protocol not in DOUBLED or wanted.groups == old.groups:
        return (yield from relocate(before, wanted, ()))
    if any(holds_up(wanted.protocol, query) for query in queries.values()):
        return (yield from relocate(before, None, ()))
    cut, made = _begun(batch_id, before, queries, old, wanted)
    if not made.queries:
        return (yield from relocate(before, wanted, ()))
    return replace((yield from relocate(cut, None, ())), doubled=made)


def _back(move: DoubledMove, before: Manifest, queries: Mapping[str, RunningQuery]) -> Manifest:
    """The manifest as if groups had never begun to move: what has come to other slots is forgotten.

    Both slots have given the results of all rows that have come, each for its side, so the sender can go on alone.
    """
    segments: Mapping[str, Stored] = before.segments
    for name in move.queries:
        segments = regrouped(segments, name, TO_OLD_SLOTS if name in queries else {})
    return replace(before, segments=segments)


def _arrived(move: DoubledMove, before: Manifest, queries: Mapping[str, RunningQuery]) -> Manifest:
    """The manifest in which groups have come to their slots: what the slots that they left hold is forgotten."""
    segments: Mapping[str, Stored] = before.segments
    for name, how in move.queries.items():
        if name in queries:
            segments = regrouped(segments, name, TO_NEW_SLOTS[how])
    return replace(before, segments=segments).with_doubled(None)


def _went_back(move: DoubledMove, batch_id: int, moved: Relocated) -> Relocated:
    """What a batch that cancels a move goes on from; marked states are not shared before they are written without."""
    record = {
        "batch": batch_id,
        "trigger": move.cancelled,
        "slots": [move.target.slots] * 2,
        "groups": 0,
        "rows_sent": 0,
        "bytes_written": 0,
        "protocol": move.target.protocol,
        "start_batch": move.begun,
        "status": "cancelled",
    }
    alone = {name: moved.ended.get(name, []) for name in move.queries if name in moved.queries}
    alone = {name: ended for name, ended in alone.items() if not moved.queries[name].migrates}
    return replace(moved, moved=record, ended={**moved.ended, **alone})


def _begun(
    batch_id: int, before: Manifest, queries: Mapping[str, RunningQuery], old: Routing, wanted: Routing
) -> tuple[Manifest, DoubledMove]:
    """The manifest with the state of moving groups apart, and the move; queries it is wrong for move when it ends."""
    known = {name: query for name, query in queries.items() if name in before.queries and _remembers(query)}
    fit = {name: query for name, query in known.items() if is_permitted(require_doubled, wanted.protocol, query)}
    split_at = max((end for query in fit.values() for end in _ends(query, before.streams.latest)), default=BEGINNING)
    if split_at == BEGINNING:  # nothing has come that the old slots would answer for: groups move at once
        fit = {}
    segments: Mapping[str, Stored] = before.segments
    how: dict[str, str] = {}
    for name, query in fit.items():
        number, own, _ = list(plan_lanes(query))[-1]
        stays, leaves = (lane_name(name, number + part) for part in (STAYING, LEAVING))
        parted = _parted(own, segments.get(stays, {}), old, wanted)
        how[name] = WHOLE if parted is None else BY_GROUPS
        if parted is not None:
            segments = {**segments, stays: parted[0], leaves: parted[1]}
    made = DoubledMove(wanted, batch_id, split_at if wanted.protocol == SPLIT_TIME else None, how)
    return replace(before, segments=segments).with_doubled(made), made


def _ends(query: RunningQuery, latest: Mapping[str, int]) -> Iterator[int]:
    """Instants after which nothing matters that has come so far, by each plan; a new lane answers after the others."""
    for own in query.all_plans:
        yield _latest_end(own.plan.physical, latest)
    if query.migration is not None and query.migration.splits:
        yield query.migration.split_at


def _parted(query: RunningQuery, stored: Stored, old: Routing, new: Routing) -> tuple[Filled, Filled] | None:
    """What stays and what leaves of a query's state; None if its groups cannot run apart."""
    if _meets_others(query):
        return None
    leaves = [int(a != b) for a, b in zip(old.groups, new.groups, strict=True)]
    found: tuple[Filled, Filled] = {}, {}
    for number, slots in stored.items():
        for slot, entries in slots.items():
            ranges = ranges_of_groups(slot, old.groups, leaves)
            known = grouped_states(query.in_slot(slot))
            if len(ranges) > MOST_RANGES or any(e.rows and (e.state, e.key) not in known for e in entries):
                return None
            for which, hash_from, hash_to in ranges or [(0, 0, 2**64)]:
                found[which].setdefault(number, {}).setdefault(slot, []).extend(within(entries, hash_from, hash_to))
    return found


def _remembers(query: RunningQuery) -> bool:
    """Whether it has states whose rows belong to slots; what it only keeps may lie anywhere."""
    return any(not state.rests for own in query.all_plans for box in own.boxes.values() for state in box.states())


def runs_whole(query: RunningQuery) -> bool:
    """Whether all of a query runs twice while groups move, because rows of different groups meet in it."""
    return _remembers(query) and _meets_others(query)


def _meets_others(query: RunningQuery) -> bool:
    return len(query.staged.fragments) > 1 or any(not route.key for route in query.staged.routes.values())


def require_doubled(protocol: str, query: RunningQuery) -> None:
    """Raises a MigrationError if a protocol cannot move groups of a query; one without state is never in the way."""
    if not _remembers(query):
        return
    for own in query.all_plans:
        try:
            if protocol == SPLIT_TIME:
                require_memory(protocol, own.plan.physical)
            else:
                require_combinations(own.plan.physical)
                require_memory(protocol, own.plan.physical)
                _require_no_probes(protocol, own)
        except MigrationError as error:
            raise MigrationError(f"query {query.name}: {error.message}", detail=error.detail, hint=error.hint) from None


def _require_no_probes(protocol: str, query: RunningQuery) -> None:
    if query.staged.windows:
        raise MigrationError(
            f"{protocol} cannot move groups of this plan: it joins by routes of its own",
            detail="windows that rows of other slots probe cannot say which of their rows are old",
            hint="use split_time_balancing",
        )


def require_protocol(protocol: str, queries: Mapping[str, RunningQuery]) -> None:
    """Refuses a protocol by which the groups of a job cannot move."""
    protocol_named(protocol)
    if protocol not in DOUBLED:
        return
    for query in queries.values():
        require_doubled(protocol, query)


def _latest_end(plan: PhysicalNode, latest: Mapping[str, int]) -> int:
    """The latest instant up to which a row that has come so far can matter."""
    own = node_memory(plan) or 0
    if isinstance(plan, SourceNode):
        return latest[plan.stream.name] + own if plan.stream.name in latest else BEGINNING
    below = max((_latest_end(child, latest) for child in plan.inputs), default=BEGINNING)
    return below + own if below > BEGINNING else below


def doubled_after(batch: Batch, move: DoubledMove) -> DoubledMove:
    """The move of groups that is under way after a batch, and whether nothing is left to wait for."""
    return replace(move, over=_is_over(batch, move))


def _is_over(batch: Batch, move: DoubledMove) -> bool:
    """Whether no slot that groups leave has anything left to answer for; queries that stand still are waited for."""
    if not set(move.queries) <= set(batch.queries):
        return False
    lanes = {lane.name: lane.query for lane in batch.lanes if lane.query.name in move.queries}
    passed = [INFINITY]
    for report in batch.reports:
        for (name, number), part in report.fragments.items():
            if name not in lanes:
                continue
            if part.old:
                return False
            if number == lanes[name].in_slot(report.slot).staged.root.number:
                passed.append(part.passed)
    return move.split_at is None or min(passed) >= move.split_at
