"""A running query as the driver knows it: its plan in fragments, and how frontiers travel through them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import SourceNode, render_physical
from midstream.algebra.time import BEGINNING, INFINITY, TimeDomain, tick_at
from midstream.algebra.windows import Hop
from midstream.checkpoint.names import lane_name
from midstream.checkpoint.query_windows import FilledWindow
from midstream.checkpoint.records import MigrationProgress, PlansAtWork, SlotPlan
from midstream.distribution.alignment import differing_fragments
from midstream.distribution.fragments import Fragment, Route, Staged, sorted_by_group
from midstream.distribution.stages import cut
from midstream.job.task.ingest import reached
from midstream.job.task.lanes import COMING, LEAVING, STAYING, TARGET
from midstream.job.task.reports import FragmentReport
from midstream.job.task.shipping import Shipped
from midstream.job.task.works import Program
from midstream.operators.box import Box
from midstream.operators.slices import SliceOperator, grid_floor
from midstream.optimizer.plans import Plan


def extra(parts: Mapping[tuple[str, int], list[FragmentReport]], query: str) -> tuple[int, int]:
    """The rows processed twice, and the rows held for a migration's sake: by both plans at once, in one box or two."""
    record = [report for reports in parts.values() for report in reports]
    target = {lane_name(query, TARGET + part) for part in (STAYING, LEAVING, COMING)}
    beside = [report for (lane, _), reports in parts.items() if lane in target for report in reports]
    held = sum(report.extra_rows for report in record) + sum(report.state_rows for report in beside)
    return sum(report.processed_twice for report in record) + sum(report.rows_in for report in beside), held


@dataclass(frozen=True, slots=True)
class MigrationUnderWay(MigrationProgress):
    """A migration of a query by its `target`; `cancelling`: the next batch goes back to the old plan."""

    target: RunningQuery = field(kw_only=True)
    cancelling: bool = False

    @staticmethod
    def to(target: RunningQuery, progress: MigrationProgress) -> MigrationUnderWay:
        """A migration to a target, as far as it is."""
        return MigrationUnderWay(**_values(progress), target=target)

    @property
    def progress(self) -> MigrationProgress:
        """What manifests say of it."""
        return MigrationProgress(**_values(self))

    def followed(self, progress: MigrationProgress) -> MigrationUnderWay:
        """The same migration, as far as a manifest says that it is."""
        return replace(MigrationUnderWay.to(self.target, progress), cancelling=self.cancelling)

    @property
    def outcome(self) -> str:
        """How it ends, where it does."""
        return "cancelled" if self.cancelling else "done"

    @property
    def status(self) -> str:
        """Whether it has begun."""
        return "waiting" if self.begun is None else "under way"

    def fragments(self, query: RunningQuery) -> tuple[int, ...]:
        """The fragments of the query that migrate inside their tasks."""
        if self.apart:
            return ()
        found = differing_fragments(query.staged, self.target.staged)
        return (query.staged.root.number,) if found is None else found


def _values(progress: MigrationProgress) -> dict[str, Any]:
    return {f.name: getattr(progress, f.name) for f in fields(MigrationProgress)}


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a new query begins: from which instant on it answers, as far as rows are kept (never later than it begins).

    No result is given that lacks rows from before if it is to `withhold` these.
    """

    withhold: bool = False
    since: int = INFINITY
    paced: bool = False
    """Whether its windows are filled over several batches; until another query takes it over, nobody hears it."""
    again: tuple[FilledWindow, ...] = ()
    """The windows that are filled from sources, if it is paced."""
    rate: int | None = None
    """How many rows it is given with a batch, at most, while its windows are filled."""

    @staticmethod
    def since_tick(since: int | str | dt.datetime, domain: TimeDomain) -> int:
        """From which instant on a new query is to answer."""
        if since in ("now", "retained"):
            return INFINITY if since == "now" else BEGINNING
        return tick_at(since, domain)


NOW = Beginning()


@dataclass(frozen=True, slots=True)
class Cutting:
    """How plans are cut into fragments: by the routes on which streams arrive; `fixed`: no others can be chosen.

    States are sorted by partition groups of so many bits. Slots can share the rows of a key in the key classes that are
    `merging`.
    """

    routes: Mapping[str, Route]
    fixed: bool = False
    bits: int | None = None
    merging: frozenset[str] = frozenset()

    def fragments(self, plan: Plan) -> Staged:
        """A plan in fragments."""
        staged = cut(plan.physical, self.routes, self.fixed, self.merging)
        return staged if self.bits is None else sorted_by_group(staged, self.bits)


@dataclass(slots=True)
class RunningQuery:
    """A query, the plan it runs by, and that plan's fragments."""

    name: str
    cql: str
    plan: Plan
    functions: Mapping[str, UserFunction]
    staged: Staged
    emit_every: int | None = None
    boxes: dict[int, Box] = field(default_factory=dict)
    migration: MigrationUnderWay | None = None
    core: tuple[str, ...] | None = None
    """The columns of the join that it shares with queries of other selections, if it does."""
    share: bool = True
    """Whether it shares with other queries what it has in common with them."""
    begins: Beginning = NOW
    """How it begins if it is new."""
    programs: dict[int, Shipped[Program]] = field(default_factory=dict)
    """Its fragments as they travel, once they have."""
    graph: dict[str, Any] | None = None
    """Its plan as manifests tell it, once they have."""
    merging: frozenset[str] = frozenset()
    """The key classes of which slots can share the rows of a key: what they make of them meets in another stage."""
    local: dict[int, RunningQuery] = field(default_factory=dict)
    """The query by the plans of slots that have or migrate to one of their own; it does not migrate itself then."""

    @staticmethod
    def of(
        name: str,
        cql: str,
        plan: Plan,
        functions: Mapping[str, UserFunction],
        cutting: Cutting,
        emit_every: int | None = None,
    ) -> RunningQuery:
        """A query by a plan that is cut into fragments as said."""
        staged = cutting.fragments(plan)
        boxes = {f.number: Box(f.plan, functions) for f in staged.fragments}
        return RunningQuery(name, cql, plan, functions, staged, emit_every, boxes, merging=cutting.merging)

    def is_cut_by(self, routes: Mapping[str, Route]) -> bool:
        """Whether it would be cut as it is if streams arrived by some routes."""
        again = cut(self.plan.physical, routes, True, self.merging)
        return _outline(again) == _outline(self.staged)

    def program(self, fragment: Fragment) -> Shipped[Program]:
        """A fragment as it travels to slots."""
        known = self.programs.get(fragment.number)
        if known is None or known.value.fragment is not fragment or known.value.plan is not self.plan:
            known = self.programs[fragment.number] = Shipped(Program(fragment, self.plan, self.functions))
        return known

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """The sources of all its fragments."""
        return self.staged.sources

    @property
    def sources_read(self) -> tuple[SourceNode, ...]:
        """The sources of all its plans."""
        return tuple(source for own in self.all_plans for source in own.sources)

    @property
    def plans(self) -> tuple[RunningQuery, ...]:
        """The query by its own plan, and by those that slots have of their own."""
        return self, *self.local.values()

    @property
    def all_plans(self) -> tuple[RunningQuery, ...]:
        """The query by every plan that some slot runs or goes over to."""
        return *self.plans, *(own.migration.target for own in self.plans if own.migration is not None)

    @property
    def migrates(self) -> bool:
        """Whether it goes over to another plan, in any slot."""
        return any(own.migration is not None for own in self.plans)

    @property
    def has_one_plan(self) -> bool:
        """Whether all slots run by one plan, and go over to no other."""
        return self.migration is None and not self.local

    def called(self, name: str) -> RunningQuery:
        """The query under another name, by all its plans: also those that it goes over to."""
        going = self.migration
        moved = going if going is None else replace(going, target=going.target.called(name))
        local = {slot: own.called(name) for slot, own in self.local.items()}
        return replace(self, name=name, migration=moved, local=local)

    def in_slot(self, slot: int) -> RunningQuery:
        """The query by the plan that a slot runs."""
        return self.local.get(slot, self)

    @property
    def streams(self) -> frozenset[str]:
        """The streams it reads."""
        return frozenset(source.stream.name for source in self.sources)

    @property
    def waits(self) -> bool:
        """Whether some of its results must wait for a frontier."""
        return any(isinstance(o, SliceOperator) for box in self.boxes.values() for o in box.operators)

    @property
    def grid(self) -> Hop | None:
        """The grid by which its slice operators answer, if it has any."""
        return next((grid for box in self.boxes.values() if (grid := box.grid) is not None), None)

    @property
    def after_batch(self) -> RunningQuery:
        """What runs after a batch: the target of a migration that it finishes, the old plan of one it cancels."""
        migration = self.migration
        if migration is not None and migration.cancelling:
            return replace(self, migration=None)
        return migration.target if migration is not None and migration.done else self

    def at_work(self, slots: int) -> list[tuple[RunningQuery, tuple[int, ...]]]:
        """The query by every plan that runs, if slots have their own, with the slots that run it by that."""
        rest = tuple(slot for slot in range(slots) if slot not in self.local)
        return [*([(self, rest)] if rest else []), *((own, (slot,)) for slot, own in sorted(self.local.items()))]

    def after(self, slots: int) -> RunningQuery:
        """What runs after a batch in some slots; the query's own plan is always that of some slot."""
        if not self.local:
            return self.after_batch
        ended = {slot: own.after_batch for slot, own in self.local.items() if slot < slots}
        local = {s: own for s, own in ended.items() if own.migration is not None or own.plan.text != self.plan.text}
        if len(local) < slots or any(own.plan.text == self.plan.text for own in local.values()):
            return replace(self, local=local)
        first = replace(local[0], local={}, migration=None)
        others = {s: own for s, own in local.items() if own.migration is not None or own.plan.text != first.plan.text}
        return replace(first, local=others)

    def followed(self, known: PlansAtWork, slots: int, idle: bool = False) -> RunningQuery:
        """The query as a manifest says that it goes on, in all its slots; an `idle` one was not at work."""
        query = (self if idle else self.after(slots))._as_far(known)
        if not query.local:
            return query
        local = {s: own if idle else own._as_far(known.local.get(s)) for s, own in query.local.items() if s < slots}
        return replace(query, local=local)

    def _as_far(self, known: PlansAtWork | SlotPlan | None) -> RunningQuery:
        """The query with its migration as far as a manifest says that it is."""
        if self.migration is None or known is None or known.migration is None:
            return self
        return replace(self, migration=self.migration.followed(known.migration))

    def reached(self, registers: Mapping[str, int]) -> int:
        """The least instant at which something may still start, over all its inputs."""
        return reached(self.sources, registers)

    def frontiers(self, frontier: int) -> dict[int, int]:
        """Each fragment's frontier when the query's is the given one."""
        # As within one box: all states are purged at one instant, or another plan could not be built from them.
        frontier = frontier if (grid := self.grid) is None else grid_floor(frontier, grid)
        if len(self.staged.fragments) == 1:
            return {self.staged.fragments[0].number: frontier}
        found: dict[int, int] = {}
        passed: dict[int, int] = {}
        for fragment in self.staged.fragments:
            incoming = [passed[leaf.fragment] for leaf in fragment.received]
            found[fragment.number] = min([frontier, *incoming])
            box = self.boxes[fragment.number]
            box.restore(found[fragment.number])
            passed[fragment.number] = box.passed
        return found

    def passed(self, frontier: int) -> int:
        """How far its results are complete when everything before the frontier has come and was worked through."""
        root = self.staged.root.number
        box = self.boxes[root]
        box.restore(self.frontiers(frontier)[root])
        return min(frontier, box.passed)


def _outline(staged: Staged) -> list[tuple[int, int, Route, str]]:
    """What tells two ways to cut a plan apart."""
    return [(f.number, f.stage, f.route, render_physical(f.plan)) for f in staged.fragments]
