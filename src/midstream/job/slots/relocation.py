"""What a batch goes on from: the last manifest, with state moved to the plans and slots that are due."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import query_of
from midstream.checkpoint.packs import Stored
from midstream.checkpoint.records import DoubledMove
from midstream.distribution.fragments import Routing, in_words, key_classes
from midstream.errors import JobError, MigrationError
from midstream.job.actions import Flow, MoveState
from midstream.job.lanes import TO_OWN_PLAN, Filled, regrouped
from midstream.job.queries.filling import Pace
from midstream.job.queries.running_query import MigrationUnderWay, RunningQuery
from midstream.job.slots.both_at_once import in_tasks, moved_by_name
from midstream.job.slots.local_moves import after_move, state_moves
from midstream.job.slots.moving import Move, PlanMove
from midstream.job.slots.pacing import Replay, after_replays, replays
from midstream.job.slots.rerouting import Rerouting
from midstream.job.task.memory import Memory
from midstream.job.task.reports import Report, require_all
from midstream.migration.history import Account

ANOTHER_NUMBER = "another number of slots"


@dataclass(slots=True)
class Relocated:
    """The manifest, the queries by the plans they run by now, the slots; and the ends of migrations, by query."""

    before: Manifest | None
    queries: dict[str, RunningQuery]
    routing: Routing
    ended: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    moved: dict[str, Any] | None = None
    doubled: DoubledMove | None = None
    """The move of groups whose rows go to two slots."""


def rerouted(now: Routing, routing: Sequence[int], key_class: str) -> Routing:
    """Groups reassigned to slots as requested: those of a key class, or all that are dealt as rows arrive."""
    dealt = tuple(routing)
    require_routing(dealt, len(now.groups), now.slots)
    return replace(now, apart={**now.apart, key_class: dealt}) if key_class else replace(now, groups=dealt)


def is_touched(query: RunningQuery, old: Routing, new: Routing) -> bool:
    """Whether a query, by the plan that it runs or goes over to, has states of which groups change their slots."""
    classes = {name for own in query.all_plans for name in key_classes(own.staged)}
    return old.groups != new.groups or any(old.table(name) != new.table(name) for name in classes)


def groups_moved(old: Routing, new: Routing) -> dict[str, int]:
    """How many groups change their slots, by key class; classes of which none do are left out.

    >>> groups_moved(Routing((0, 1), 2), Routing((0, 1), 2, apart={"B.y": (1, 1)}))
    {'B.y': 1}
    """
    found = {name: sum(a != b for a, b in zip(lay, lie, strict=True)) for name, lay, lie in old.beside(new)}
    return {name: count for name, count in found.items() if count}


def require_slots(slots: int, groups: int) -> None:
    """Refuses a number of slots that cannot be."""
    if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= groups:
        raise JobError(
            f"a job has 1 to {groups} slots, not {slots!r}",
            detail=f"keys are hashed into {groups} partition groups, and a slot owns at least one of them",
            hint="the number of groups is chosen when a checkpoint is made: Session(group_bits=...)",
        )


def require_going_to(wanted: Routing, slots: int) -> None:
    """Refuses other slots while the job is still going over to a number of them."""
    if wanted.slots == slots:
        return
    raise JobError(
        f"the job goes over to {wanted.slots} slots already",
        detail="this begins with the next batch, or with the end of the migrations that run",
        hint=f"ask again once it has {wanted.slots} slots, as status says",
    )


def require_routing(routing: Sequence[int], groups: int, slots: int) -> None:
    """Refuses a routing that leaves groups out or names slots that are not there."""
    if len(routing) == groups and all(type(slot) is int and 0 <= slot < slots for slot in routing):
        return
    strange = [slot for slot in routing if type(slot) is not int or not 0 <= slot < slots]
    named = f"it names slot {strange[0]!r}" if strange else f"it names {len(routing)}"
    raise JobError(
        f"a routing names the slot of each of the {groups} partition groups",
        detail=f"{named}; the slots are 0 to {slots - 1}",
        hint="rescale() gives a job another number of slots",
    )


@dataclass(frozen=True, slots=True)
class Relocation:
    """What a batch begins with: the last manifest, the queries, and how groups are dealt."""

    checkpoint: str
    batch_id: int
    before: Manifest | None
    queries: Mapping[str, RunningQuery]
    old: Routing
    memory: Memory
    pace: Pace
    now: float = 0.0

    def to(self, wanted: Routing | None, rerouting: Rerouting | None, placed: Collection[str]) -> Flow[Relocated]:
        """Has the state moved that the batch wants elsewhere.

        Other slots wait for migrations inside tasks as long as these hold what cannot move, and for those that move
        state bit by bit. A `rerouting` moves the state of the queries that are cut another way by it. Queries that are
        `placed` have their state in the wanted slots already.
        """
        before, queries = self.before, self.queries
        others = {name: query for name, query in queries.items() if name not in placed}
        named = {} if before is None or wanted is None else _named(others, before, self.old, wanted)
        new = self.old if named is None or wanted is None else wanted
        replayed = {} if before is None else replays(queries, before, self.pace)
        going = self._going(replayed)
        recut = {} if rerouting is None else rerouting.queries
        targets = {**{name: _after(q) if name in going else q for name, q in queries.items()}, **recut}
        stays = new.deals_as(self.old)
        if before is None or (stays and not going and not recut and not replayed):
            return Relocated(before, targets, new, self._ended(going, [], 0.0))
        before = _without_cancelled(before, going)
        united: dict[str, list[dict[str, Any]]] = {}
        plans: list[PlanMove] = []
        for name, query in queries.items():
            moves = name in going and going[name].moves
            if not (moves or name in recut or is_touched(targets[name], self.old, new)):
                continue
            if name in placed or name in (named or {}):
                targets[name] = after_move(targets[name], new.slots)
                continue
            targets[name], states, record = state_moves(query, targets[name], before, self.old, new)
            plans += states
            united.update({name: [record]} if record else {})
        move = Move(self.checkpoint, self.batch_id, [*plans, *replayed.values()], self.old, new, self.memory)
        reports: list[Report]
        reports, seconds = (yield MoveState(move)) if move.working else ([], 0.0)
        require_all(reports, move.stages, new.slots, self.batch_id)
        segments = {**before.segments, **move.segments(reports), **(named or {})}
        over = [name for name, m in going.items() if m.replays and not m.cancelling]
        after = replace(
            before,
            segments=after_replays(segments, replayed, over),
            slots=replace(before.slots, routing=new.groups, apart=new.apart),
        )
        moved = None if stays and rerouting is None else _move_record(move, rerouting)
        return Relocated(after, targets, new, {**self._ended(going, reports, seconds), **united}, moved)

    def _going(self, replayed: Mapping[str, Replay]) -> dict[str, MigrationUnderWay]:
        """The migrations that are over before the batch: their state is moved, or they are cancelled."""
        found = {}
        for name, query in self.queries.items():
            m = query.migration
            if m is None or not m.apart:
                continue
            cancelled = m.cancelling and name not in self.pace.idle
            if m.moves or cancelled or (m.replays and (self.before is None or _is_over(replayed.get(name)))):
                found[name] = m
        return found

    def _ended(
        self, going: Mapping[str, MigrationUnderWay], reports: Sequence[Report], seconds: float
    ) -> dict[str, list[dict[str, Any]]]:
        """What the history says of migrations that are over before the batch; none without output lay between."""
        found = {}
        for name, migration in going.items():
            frontier = BEGINNING if self.before is None else self.before.advanced_to.get(name, BEGINNING)
            parts = [
                part for report in reports for (lane, _), part in report.fragments.items() if query_of(lane) == name
            ]
            twice, held = sum(p.processed_twice for p in parts), sum(p.extra_rows for p in parts)
            account = migration.account or Account.opened(frontier, self.now)
            account = account.after(frontier, self.now + seconds, True, twice, held)
            record = migration.record(self.queries[name].plan.text, self.batch_id, migration.outcome, account)
            begun = self.batch_id if migration.begun is None else migration.begun
            found[name] = [{**record, "start_batch": begun}]
        return found


def _without_cancelled(before: Manifest, going: Mapping[str, MigrationUnderWay]) -> Manifest:
    """The manifest without the lanes of plans that queries do not go over to after all."""
    segments: Mapping[str, Stored] = before.segments
    for name, migration in going.items():
        if migration.cancelling:
            segments = regrouped(segments, name, TO_OWN_PLAN)
    return replace(before, segments=segments)


def shipped_rows(query: RunningQuery, target: RunningQuery, manifest: Manifest | None, routing: Routing) -> int:
    """How many rows would go to other slots if the state of a query were moved to another plan now."""
    if manifest is None:
        return 0
    try:
        move = PlanMove(query.name, query, target, manifest.segments.get(query.name, {}), BEGINNING)
    except MigrationError:
        return 0
    move.decide_reuse(routing, routing)
    return sum(e.rows for reused in move.reused.values() for entries in reused.sent.values() for e in entries)


def waits_for_migrations(queries: Mapping[str, RunningQuery], before: Manifest, old: Routing, wanted: Routing) -> bool:
    """Whether some queries migrate in a way that keeps their state from other slots."""
    return _named(queries, before, old, wanted) is None


def _named(
    queries: Mapping[str, RunningQuery], before: Manifest, old: Routing, wanted: Routing
) -> dict[str, Filled] | None:
    """The segments of queries that migrate inside tasks in the slots that are wanted; None if the slots must wait."""
    found: dict[str, Filled] = {}
    for name, query in queries.items():
        if not is_touched(query, old, wanted):
            continue
        if query.migration is not None and query.migration.replays:
            return None
        if not in_tasks(query):
            continue
        moved = moved_by_name(query, before.segments.get(name, {}), old, wanted)
        if moved is None:
            return None
        found[name] = moved
    return found


def _after(query: RunningQuery) -> RunningQuery:
    """The query by the plan that its state is moved to: the target, or its own plan if the migration is cancelled."""
    assert query.migration is not None
    return query.after_batch if query.migration.cancelling else query.migration.target


def _is_over(replay: Replay | None) -> bool:
    return replay is not None and not replay.rest


def _move_record(move: Move, rerouting: Rerouting | None) -> dict[str, Any]:
    """What is remembered of a change of slots or routes."""
    changed = groups_moved(move.old, move.new)
    apart = [f"{count} groups {in_words(name)}" for name, count in changed.items() if name]
    triggers = [move.new.trigger, "" if rerouting is None else rerouting.trigger, *apart]
    return {
        "batch": move.batch_id,
        "trigger": "; ".join(text for text in triggers if text),
        "slots": [move.old.slots, move.new.slots],
        "groups": sum(changed.values()),
        **({"classes": {name: count for name, count in changed.items() if name}} if any(changed) else {}),
        "rows_sent": move.rows_sent,
        "bytes_written": move.bytes_written,
        **({"protocol": move.new.protocol, "reason": move.new.reason} if move.new.reason else {}),
    }
