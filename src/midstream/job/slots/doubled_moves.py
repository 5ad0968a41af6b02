"""Beginning and ending moves of groups whose rows go to two slots, and how far they are.

Nothing of the sender's state is ever sent. When a move begins, the moving groups' part of it is named apart, as ranges
of its segments; the receiver starts with nothing. When the sender is not needed any more, its part is forgotten, and
what the receiver has taken in since is named with the receiver's other groups.

Where rows of different groups meet, as in plans of several stages, all of a query runs twice meanwhile: by the old
routing and by the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from midstream.algebra.physical import PhysicalNode, Source
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.packs import SegmentEntry, joined
from midstream.distribution.protocols.legality import node_memory, require_combinations, require_memory
from midstream.distribution.protocols.processor import Facts
from midstream.distribution.protocols.registry import protocol_of
from midstream.distribution.routing import Routing
from midstream.errors import MigrationError
from midstream.job.actions import Flow
from midstream.job.batch import Batch
from midstream.job.doubling import BY_GROUPS, CANCELLED, WHOLE, Doubling, at_once, doubling_of
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.both_at_once import PTLB, SPLIT_TIME, holds_up
from midstream.job.slots.moving_migrations import grouped_states, in_tasks
from midstream.job.slots.relocation import Relocated, waits_for_migrations
from midstream.job.slots.segment_reuse import MOST_RANGES, ranges_of_groups
from midstream.job.task.sides import COMING, LEAVING

Stored = Mapping[int, Mapping[int, Sequence[SegmentEntry]]]
Filled = dict[int, dict[int, list[SegmentEntry]]]
Relocate = Callable[[Manifest | None, Routing | None, Mapping[str, Filled] | None], Flow[Relocated]]
"""Moves state that is due: goes on from a manifest to wanted slots, in which some queries have their state already."""

AUTO = "auto"
MSLB = "mslb"
DOUBLED = frozenset({SPLIT_TIME, PTLB})
"""The protocols by which rows of moving groups go to two slots."""


def cancelled_move(manifest: Manifest | None, queries: Mapping[str, RunningQuery], trigger: str) -> Manifest:
    """The manifest with which groups that move to two slots stay where they were; refuses where none do."""
    record = None if manifest is None else manifest.slots.doubled
    if manifest is None or record is None:
        raise MigrationError(
            "no partition groups are moving",
            detail="a move by mslb is over between two batches",
            hint="rebalance() with a routing moves groups back",
        )
    migrating = sorted(name for name in record["queries"] if name in queries and in_tasks(queries[name]))
    if migrating and record["protocol"] == PTLB:
        raise MigrationError(
            f"the move of groups by ptlb cannot be cancelled while query {migrating[0]} migrates",
            detail="what leaves has stayed with the old plan",
            hint="cancel the migration first, or let both end",
        )
    return replace(manifest, slots=replace(manifest.slots, doubled={**record, CANCELLED: trigger}))


def moves_doubled(manifest: Manifest | None, wanted: Routing | None) -> bool:
    """Whether groups whose rows go to two slots move, or wait for that."""
    return (manifest is not None and manifest.slots.doubled is not None) or (
        wanted is not None and wanted.protocol in DOUBLED
    )


def require_rest(manifest: Manifest | None) -> None:
    """Refuses what has to wait until groups that move have come to their slots."""
    if manifest is not None and manifest.slots.doubled is not None:
        record = manifest.slots.doubled
        raise MigrationError(
            f"groups move by {record['protocol']} since batch {record['begun']}",
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
    known = doubling_of(before)
    # Marked states lose their marks when their query is at work.
    if before is not None and known is not None and known.cancelled and not set(known.queries) & set(stopped):
        return _went_back(known, batch_id, (yield from relocate(_back(known, before, queries), None, None)))
    if before is not None and known is not None:
        others = {name: query for name, query in queries.items() if name not in known.queries}
        target = replace(known.target, apart=old.apart)
        if known.over() is None or waits_for_migrations(others, before, old, target):
            return replace((yield from relocate(before, None, None)), doubling=known.only(queries.__contains__))
        rest = replace(before, slots=replace(before.slots, doubled=None))
        return _ended(known, (yield from relocate(rest, target, _placed(known, before, queries))))
    if before is None or wanted is None or wanted.protocol not in DOUBLED or wanted.groups == old.groups:
        return (yield from relocate(before, wanted, None))
    if any(holds_up(wanted.protocol, query) for query in queries.values()):
        return (yield from relocate(before, None, None))
    cut, made = _begun(batch_id, before, queries, old, wanted)
    if not made.queries:
        return (yield from relocate(before, wanted, None))
    return replace((yield from relocate(cut, None, None)), doubling=made)


def _ended(known: Doubling, moved: Relocated) -> Relocated:
    record = {"protocol": known.protocol, "start_batch": known.begun}
    return replace(moved, moved=None if moved.moved is None else {**moved.moved, **record})


def _back(known: Doubling, before: Manifest, queries: Mapping[str, RunningQuery]) -> Manifest:
    """The manifest as if groups had never begun to move: what has come to other slots is forgotten.

    Both slots have given the results of all rows that have come, each for its side, so the sender can go on alone.
    """
    segments = {name: stored for name, stored in before.segments.items() if not name.endswith((LEAVING, COMING))}
    for name, how in known.queries.items():
        if how == BY_GROUPS and name in queries:
            segments[name] = _together(before.segments.get(name, {}), before.segments.get(name + LEAVING, {}))
    return replace(before, segments=segments)


def _went_back(known: Doubling, batch_id: int, moved: Relocated) -> Relocated:
    """What a batch that cancels a move goes on from; marked states are not shared before they are written without."""
    record = {
        "batch": batch_id,
        "trigger": known.cancelled,
        "slots": [known.target.slots] * 2,
        "groups": 0,
        "rows_sent": 0,
        "bytes_written": 0,
        "protocol": known.protocol,
        "start_batch": known.begun,
        "status": "cancelled",
    }
    alone = {name: moved.ended.get(name, []) for name in known.queries if name in moved.queries}
    alone = {name: ended for name, ended in alone.items() if not moved.queries[name].migrates}
    return replace(moved, moved=record, ended={**moved.ended, **alone})


def _begun(
    batch_id: int, before: Manifest, queries: Mapping[str, RunningQuery], old: Routing, wanted: Routing
) -> tuple[Manifest, Doubling]:
    """The manifest with the state of moving groups apart, and the move; queries it is wrong for move when it ends."""
    fit = {name: query for name, query in queries.items() if _fits(wanted.protocol, query) and name in before.queries}
    latest = before.streams.latest
    ends = [_latest_end(own.plan.physical, latest) for query in fit.values() for own in _plans(query)]
    made = Doubling.begin(wanted.protocol, old, at_once(old, wanted), batch_id, max(ends, default=BEGINNING))
    segments, how = dict(before.segments), dict[str, str]()
    for name, query in fit.items():
        if not _remembers(query):
            continue
        parted = _parted(query, before.segments.get(name, {}), old, made.copies)
        how[name] = WHOLE if parted is None else BY_GROUPS
        if parted is not None:
            segments[name], segments[name + LEAVING] = parted
    made = replace(made, queries=how)
    return replace(before, segments=segments, slots=replace(before.slots, doubled=made.to_json())), made


def _parted(
    query: RunningQuery, stored: Stored, old: Routing, moving: Mapping[int, Any]
) -> tuple[Filled, Filled] | None:
    """What stays and what leaves of a query's state; None if its groups cannot run apart."""
    if _meets_others(query):
        return None
    leaves = [int(group in moving) for group in range(len(old.groups))]
    found: tuple[Filled, Filled] = {}, {}
    for number, slots in stored.items():
        for slot, entries in slots.items():
            ranges = ranges_of_groups(slot, old.groups, leaves)
            known = grouped_states(query.in_slot(slot))
            if len(ranges) > MOST_RANGES or any(e.rows and (e.state, e.key) not in known for e in entries):
                return None
            for which, hash_from, hash_to in ranges or [(0, 0, 2**64)]:
                parts = (entry.part(hash_from, hash_to) for entry in entries)
                named = [part for part in parts if part.hash_from < part.hash_to]
                found[which].setdefault(number, {}).setdefault(slot, []).extend(named)
    return found


def _placed(known: Doubling, before: Manifest, queries: Mapping[str, RunningQuery]) -> dict[str, Filled]:
    """The segments of doubled queries in the slots that their groups have come to."""
    placed: dict[str, Filled] = {}
    for name, how in known.queries.items():
        if name not in queries:
            continue
        kept = [before.segments.get(name, {})] if how == BY_GROUPS else []
        placed[name] = _together(*kept, before.segments.get(name + COMING, {}))
    return placed


def _together(*parts: Stored) -> Filled:
    """The segments of several tracks, by fragment and slot."""
    filled: Filled = {}
    for stored in parts:
        for number, slots in stored.items():
            for slot, entries in slots.items():
                filled.setdefault(number, {}).setdefault(slot, []).extend(entries)
    return {number: {slot: joined(entries) for slot, entries in slots.items()} for number, slots in filled.items()}


def _plans(query: RunningQuery) -> list[RunningQuery]:
    """The query by every plan that some slot runs or goes over to."""
    running = [query, *query.local.values()]
    return [*running, *(own.migration.target for own in running if own.migration is not None)]


def _remembers(query: RunningQuery) -> bool:
    return any(True for own in _plans(query) for box in own.boxes.values() for _ in box.states())


def runs_whole(query: RunningQuery) -> bool:
    """Whether all of a query runs twice while groups move, because rows of different groups meet in it."""
    return _remembers(query) and _meets_others(query)


def _meets_others(query: RunningQuery) -> bool:
    return len(query.staged.fragments) > 1 or any(not route.key for route in query.staged.routes.values())


def _fits(protocol: str, query: RunningQuery) -> bool:
    try:
        require_doubled(protocol, query)
    except MigrationError:
        return False
    return True


def require_doubled(protocol: str, query: RunningQuery) -> None:
    """Raises a MigrationError if a protocol cannot move groups of a query; one without state is never in the way."""
    if not _remembers(query):
        return
    for own in _plans(query):
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


def protocol_named(name: str) -> str:
    """A protocol by the name that people call it; "auto" is the one that is predicted to cost least."""
    return AUTO if name == AUTO else protocol_of(name).name


def require_protocol(protocol: str, queries: Mapping[str, RunningQuery]) -> None:
    """Refuses a protocol by which the groups of a job cannot move."""
    protocol_of(protocol)
    if protocol not in DOUBLED:
        return
    for query in queries.values():
        require_doubled(protocol, query)


def _latest_end(plan: PhysicalNode, latest: Mapping[str, int]) -> int:
    """The latest instant up to which a row that has come so far can matter."""
    own = node_memory(plan) or 0
    if isinstance(plan, Source):
        return latest[plan.stream.name] + own if plan.stream.name in latest else BEGINNING
    below = max((_latest_end(child, latest) for child in plan.inputs), default=BEGINNING)
    return below + own if below > BEGINNING else below


def doubled_after(batch: Batch) -> dict[str, Any] | None:
    """What the manifest of a batch says of the move of groups that is under way."""
    doubling = batch.slots.doubling
    if doubling is None:
        return None
    return doubling.observed({slot: _facts(batch, doubling, slot) for slot in range(batch.slots.count)}).to_json()


def _facts(batch: Batch, doubling: Doubling, slot: int) -> Facts:
    """What a slot's report says of the queries that are doubled; those that stand still are waited for."""
    if not doubling.queries:
        return Facts(passed=INFINITY)
    roots = {(p.name, p.query.in_slot(slot).staged.root.number) for p in batch.parts if p.track is not None}
    reports = [report for report in batch.reports if report.slot == slot]
    record = [part for report in reports for place, part in report.fragments.items() if place in roots]
    # Where all of a query runs twice, what is old in one slot may go to any other before the last stage.
    twice = {name for name, how in doubling.queries.items() if how == WHOLE}
    everywhere = [part for r in batch.reports for (name, _), part in r.fragments.items() if name in twice]
    sent = frozenset(group for group in doubling.copies if batch.slots.routing[group] == slot)
    if not set(doubling.queries) <= set(batch.queries):  # one in quarantine has yet to answer for its old rows
        return Facts(old=sent)
    purged = record and not any(part.old for part in (*record, *everywhere))
    return Facts(old=frozenset() if purged else sent, passed=min((part.passed for part in record), default=BEGINNING))
