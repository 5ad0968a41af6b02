"""A continuous query of a session in this process, and what happened to it, in the values that checkpoints give too."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import pyarrow as pa

from midstream.algebra.physical import render_physical
from midstream.algebra.time import BEGINNING, INFINITY, ticks
from midstream.checkpoint.records import grouped
from midstream.checkpoint.stored import Period, StoredDecision, StoredMigration
from midstream.checkpoint.stored_queries import past_migration
from midstream.cluster.continuous_query import ContinuousQuery
from midstream.cluster.local.live_query import LiveQuery
from midstream.cluster.local.shared_operators import Begun, SessionGraph
from midstream.errors import MigrationError
from midstream.html import Records
from midstream.inputs import Duration
from midstream.job.gate import Turn
from midstream.job.outputs.progress import Waits
from midstream.migration.execution import SingleBox
from midstream.migration.history import MigrationRecord
from midstream.migration.in_part import copied
from midstream.migration.predict import prediction_text
from midstream.operators.base import Operator
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.cores import Columns, core_of
from midstream.optimizer.growth import growth
from midstream.optimizer.plans import Plan, plan_query


class Home(Protocol):
    """What a query asks of the session that it belongs to."""

    part_names: MutableMapping[Operator, str]
    turn: Turn

    @property
    def queries(self) -> Mapping[str, EmbeddedQuery]:
        """The queries that run."""

    @property
    def graph(self) -> SessionGraph:
        """The operators of the queries that run by one plan each."""

    @property
    def waiting(self) -> Waits:
        """The streams that queries wait for."""

    def drop(self, name: str) -> None:
        """Ends a query."""


class EmbeddedQuery(ContinuousQuery):
    """A continuous query of an embedded session."""

    def __init__(self, session: Home, name: str, cql: str, live: LiveQuery, emit_every: int | None, keep: bool) -> None:
        self.session = session
        self.name = name
        self.cql = cql
        self.live = live
        self.emit_every = emit_every
        self.keep = keep
        self.events: list[dict[str, Any]] = []
        self.core = core_of(live.plan.query, live.plan.emission)
        self.core_columns: Columns | None = None
        """The columns of its core, if it selects from it."""
        self.own = Begun()
        self.taken: MutableMapping[Operator, Begun] = WeakKeyDictionary()
        """When the operators that it took over from others began; its own began with it."""
        self._kept: list[pa.Table] = []
        self._fresh: list[pa.Table] = []
        self._released = 0

    @property
    def box(self) -> Box | None:
        """Its live operators, if others may have some of them: not while it migrates, and not while windows that moved
        from another plan may lack what that plan had no need of.
        """
        if not self.has_one_plan:
            return None
        own_until, box = self.live.own_until, self.execution.box
        return box if own_until == BEGINNING or box.floor(self.frontier) >= own_until else None

    @property
    def has_one_plan(self) -> bool:
        """Whether neither it migrates nor a copy of it does."""
        return isinstance(self.live.execution, SingleBox) and self.live.migrating_to is None

    @property
    def execution(self) -> SingleBox:
        """Its operators, if it runs by one plan, and where its results go."""
        assert isinstance(self.live.execution, SingleBox)
        return self.live.execution

    @property
    def frontier(self) -> int:
        """How far it is."""
        return self.live.frontier

    @property
    def start(self) -> int:
        """The instant from which on its results are whole."""
        return self.own.whole_from

    def begun(self, operator: Operator) -> Begun:
        """When an operator began to remember what it does."""
        return self.taken.get(operator, self.own)

    @property
    def plan(self) -> Plan:
        """The plan that runs."""
        return self.live.plan

    @property
    def shares(self) -> list[str]:
        """The parts of its plan that it runs together with other queries."""
        return sorted(self._shared)

    @property
    def _shared(self) -> dict[str, range]:
        """The operators of each part that it shares, inner parts first."""
        if self.session.queries.get(self.name) is not self or not self.has_one_plan:
            return {}
        box, graph, names = self.execution.box, self.session.graph, self.session.part_names
        shared = [i for i, operator in enumerate(box.operators) if len(graph.readers_of(operator)) > 1]
        return {name: box.inside(i) for i in shared if (name := names.get(box.operators[i])) is not None}

    def _states(self) -> Mapping[str, list[SortedState]]:
        """All that it remembers, by the smallest part that it shares; what is its own has no name."""
        parts = {i: name for name, inside in reversed(self._shared.items()) for i in inside}
        if not parts:
            return {"": list(self.live.execution.states())}
        operators = enumerate(self.execution.box.operators)
        return grouped((parts.get(i, ""), state) for i, operator in operators for state in operator.states)

    def explain(self) -> str:
        """The plan as it runs, with what it shares and with whom."""
        shape = f" {self.plan.text}" if self.plan.text else ""
        lines = [f"Plan{shape}", "", render_physical(self.plan.physical)]
        for name, inside in sorted(self._shared.items()):
            box, root = self.execution.box, inside[-1]
            readers = ", ".join(sorted(self.session.graph.readers_of(box.operators[root])))
            lines += ["", f"Shared {name}, read by {readers}", "", render_physical(box.nodes[root])]
        lines += [line for sentence in growth(self.plan.physical) for line in ("", f"Warning: {sentence}")]
        return "\n".join(lines)

    @property
    def statistics(self) -> dict[str, Any]:
        """Counts of what it did and holds; parts that it shares are listed apart."""
        held = self._states()
        return {
            "released": self._released,
            "waiting": sum(len(batch) for batch in self.live.release.waiting),
            "frontier": None if self.live.frontier in (BEGINNING, INFINITY) else self.live.frontier,
            "state_rows": sum(state.rows for state in held.get("", ())),
            "state_bytes": sum(state.bytes for state in held.get("", ())),
            "shared": {name: sum(state.rows for state in held.get(name, ())) for name in self.shares},
            "warnings": list(growth(self.plan.physical)),
            "waits_for": asdict(waits) if (waits := self.session.waiting.get(self.name)) else None,
        }

    @property
    def history(self) -> Records[StoredMigration]:
        """When it started and with what, and the plans it has migrated to."""
        events = (event_of(self.name, self.plan, event) for event in self.events)
        return Records((*events, *(migration_of(self.name, self.plan, record) for record in self.live.history)))

    @property
    def decisions(self) -> Records[StoredDecision]:
        """Nothing: a query in memory does not watch itself."""
        return Records()

    def table(self) -> pa.Table:
        """All results released so far, in order."""
        return self.results()

    def results(self) -> pa.Table:
        """All results released so far, in order; only those not yet polled if the query does not keep them."""
        with self.session.turn.taken("results"):
            return pa.concat_tables((self._kept if self.keep else self._fresh) or [self.live.table(None)])

    def poll(self) -> pa.Table:
        """The results released since the last poll."""
        with self.session.turn.taken("poll"):
            fresh, self._fresh = self._fresh, []
        return pa.concat_tables(fresh or [self.live.table(None)])

    def migrate(
        self,
        plan: Plan | str,
        strategy: str = "auto",
        *,
        part: str = "auto",
        trigger: str = "asked for",
        slots: Sequence[int] | None = None,
        queue: bool = False,
        verify: Duration | None = None,
    ) -> None:
        """Goes over to another plan while results keep coming; what it shared, it first takes over as its own.

        Only the part in which the plans differ migrates, unless `part` is "whole". A named strategy must be legal for
        both plans; with the part "smallest" it is enough that it is legal for the part, as it is for "auto". While
        another migration runs, it is refused, or with `queue` waits for the end of that one.

        With `verify`, a duration, a copy of the query migrates first, both are compared for so long after that, and the
        plan changes only if nothing differs.
        """
        if self.session.queries.get(self.name) is not self:
            raise MigrationError(f"query {self.name} has been dropped")
        if slots is not None:
            raise MigrationError("a session in memory has no slots", hint="leave slots out, or run on a checkpoint")
        with self.session.turn.taken("migrate"):
            target = plan_query(self.plan.query, plan, self.emit_every)
            self.go_on_alone()
            stretch = None if verify is None else ticks(verify, target.query.domain)
            self.live.migrate(target, self._possible(strategy), part=part, trigger=trigger, queue=queue, verify=stretch)

    def cancel_migration(self) -> None:
        """Goes back to the plan that it was migrating from; nothing is lost. What was queued behind is forgotten."""
        with self.session.turn.taken("cancel_migration"):
            self.live.cancel_migration()

    @property
    def migrating(self) -> str | None:
        """The plan it is migrating to, if it is."""
        target = self.live.migrating_to
        return None if target is None else target.text

    def _possible(self, strategy: str) -> str:
        """The strategy, if the windows still hold all that it asks for.

        Operators that were shared have forgotten what other readers are past. While the query waits for another stream,
        or for the next point of its grid, it may need some of that: its old plan has met it already, but a new plan
        could not be filled from the windows.
        """
        if not self.has_one_plan or strategy.startswith(("genmig", "parallel_track")):
            return strategy
        box = self.execution.box
        if all(operator.frontier <= box.floor(self.frontier) for operator in box.operators):
            return strategy
        if strategy == "auto":
            return "genmig"
        raise MigrationError(
            f"{strategy} cannot migrate query {self.name} now: parts it shares have discarded state that it needs",
            hint="use strategy genmig, which asks nothing of the past, or wait until its slowest stream has caught up",
        )

    def explain_migration(self, plan: Plan | str, *, part: str = "auto", preference: str = "least_silence") -> str:
        """Which part of the plan would migrate to another one, and what each strategy is predicted to take."""
        if self.migrating is not None:
            raise MigrationError(f"query {self.name} is migrating", hint="wait for the end of that migration")
        situation = self.live.situation(plan_query(self.plan.query, plan, self.emit_every))
        return prediction_text(situation, part, preference)

    def go_on_alone(self) -> None:
        """Shares nothing any more: goes on with copies of the states it shared, which cost nothing to make."""
        shared = self.shares
        if not shared:
            return
        self.live.execution = self.execution.beside(copied(self.execution.box), self.live.release)
        self.events.append({"event": "goes on alone", "at": self.frontier, "shared": shared})

    def drop(self) -> None:
        """Ends the query."""
        self.session.drop(self.name)

    def take(self, elements: Elements | None) -> None:
        """Takes what has been released: everything from the query's start on."""
        if elements is None:
            return
        elements = elements.clipped(self.start, INFINITY) if self.start > BEGINNING else elements
        if len(elements) == 0:
            return
        table = self.live.table(elements)
        self._released += table.num_rows
        self._fresh.append(table)
        if self.keep:
            self._kept.append(table)

    def __repr__(self) -> str:
        return f"Query({self.name!r}, {self.cql!r})"


def event_of(query: str, plan: Plan, event: Mapping[str, Any]) -> StoredMigration:
    """A query's start, its end, or that it shares nothing any more."""
    with_whom = ", ".join(event.get("shares") or event.get("shared") or ())
    note = f"shares {with_whom}" if event.get("shares") else f"shared {with_whom}" if with_whom else ""
    kind, period = str(event["event"]), Period(time=plan.domain.word)
    return StoredMigration(query, "", plan.text, "", kind, kind, None, period, note=note, record=event)


def migration_of(query: str, plan: Plan, record: MigrationRecord) -> StoredMigration:
    """A migration after its end."""
    told = {"event": "migrated", "record": record, **record.as_dict()}
    when = {"status": record.outcome, "start_batch": None, "end_batch": None}
    return past_migration(query, {**told, **when}, plan.domain.word)
