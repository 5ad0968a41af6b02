"""A continuous query of a session in this process, and what happened to it, in the values that checkpoints give too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import pyarrow as pa

from midstream.algebra.physical import render_physical
from midstream.algebra.time import BEGINNING, INFINITY, ticks
from midstream.checkpoint.stored import Period, StoredDecision, StoredMigration
from midstream.checkpoint.stored_queries import past_migration
from midstream.cluster.continuous_query import ContinuousQuery
from midstream.cluster.local.live_query import LiveQuery
from midstream.cluster.local.session_streams import SessionStream
from midstream.cluster.local.shared_parts import SharedParts
from midstream.errors import MigrationError
from midstream.html import Records
from midstream.inputs import Duration
from midstream.job.gate import Turn
from midstream.job.outputs.progress import Waits
from midstream.migration.execution import SingleBox
from midstream.migration.history import MigrationRecord
from midstream.migration.predict import prediction_text
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.optimizer.fixed_plan import fixed
from midstream.optimizer.growth import growth
from midstream.optimizer.plans import Plan, plan_query
from midstream.scheduling.sharing import core_of, grown_box, taps_in, whole


class Home(Protocol):
    """What a query asks of the session that it belongs to."""

    parts: SharedParts
    streams: dict[str, SessionStream]
    turn: Turn

    @property
    def queries(self) -> Mapping[str, EmbeddedQuery]:
        """The queries that run."""

    @property
    def waiting(self) -> Waits:
        """The streams that queries wait for."""

    def drop(self, name: str) -> None:
        """Ends a query."""


class EmbeddedQuery(ContinuousQuery):
    """A continuous query of an embedded session."""

    def __init__(
        self, session: Home, name: str, cql: str, live: LiveQuery, start: int, emit_every: int | None, keep: bool
    ) -> None:
        self.session = session
        self.name = name
        self.cql = cql
        self.live = live
        self.start = start
        self.emit_every = emit_every
        self.keep = keep
        self.events: list[dict[str, Any]] = []
        self.core = core_of(live.plan.query, live.plan.emission)
        self.since: dict[str, int] = {}
        self.forgotten_before = BEGINNING
        self._kept: list[pa.Table] = []
        self._fresh: list[pa.Table] = []
        self._released = 0

    @property
    def box(self) -> Box | None:
        """Its live operators, if others may have part of them: not while it migrates, or a copy of it does, and not
        while windows that moved from another plan may lack what that plan had no need of.
        """
        execution = self.live.execution
        if not isinstance(execution, SingleBox) or self.live.migrating_to is not None:
            return None
        own_until = self.live.own_until
        return execution.box if own_until == BEGINNING or execution.box.floor(self.frontier) >= own_until else None

    @property
    def frontier(self) -> int:
        """How far it is."""
        return self.live.frontier

    @property
    def whole_from(self) -> int:
        """The instant from which on its states hold all that they would if it had always run."""
        return max(self.start, self.forgotten_before)

    def run_rest(self, upper: Box) -> None:
        """Goes on with what is left after a part of it has been cut out."""
        live = self.live
        assert isinstance(live.execution, SingleBox)
        live.plan = fixed(live.plan, upper.plan)
        live.execution = live.execution.beside(upper, live.release)

    @property
    def plan(self) -> Plan:
        """The plan that runs."""
        return self.live.plan

    @property
    def shares(self) -> list[str]:
        """The shared parts that it reads, directly or through others."""
        return sorted(self.session.parts.below(self.live.sources))

    def explain(self) -> str:
        """The plan as it runs, with what it shares and with whom."""
        shape = f" {self.plan.text}" if self.plan.text else ""
        lines = [f"Plan{shape}", "", render_physical(self.plan.physical)]
        for name in self.shares:
            part = self.session.parts.named[name]
            lines += ["", f"Shared {name}, read by {', '.join(sorted(part.readers))}", "", render_physical(part.plan)]
        whole_plan = whole(self.plan.physical)
        lines += [line for sentence in growth(whole_plan) for line in ("", f"Warning: {sentence}")]
        return "\n".join(lines)

    @property
    def statistics(self) -> dict[str, Any]:
        """Counts of what it did and holds; parts that it shares are listed apart."""
        states = list(self.live.execution.states())
        return {
            "released": self._released,
            "waiting": sum(len(batch) for batch in self.live.release.waiting),
            "frontier": None if self.live.frontier in (BEGINNING, INFINITY) else self.live.frontier,
            "state_rows": sum(state.rows for state in states),
            "state_bytes": sum(state.bytes for state in states),
            "shared": {name: self.session.parts.named[name].rows for name in self.shares},
            "warnings": list(growth(whole(self.plan.physical))),
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
            self._know_starts()
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

        A part that was shared has forgotten what its own streams are past. While the query waits for another stream, or
        for the next point of its grid, it may need some of that: its old plan has met it already, but a new plan could
        not be filled from the windows.
        """
        execution = self.live.execution
        answered = execution.box.floor(self.frontier) if isinstance(execution, SingleBox) else self.frontier
        if answered >= self.forgotten_before or strategy.startswith(("genmig", "parallel_track")):
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
        alone = fixed(self.plan, whole(self.plan.physical))
        return prediction_text(replace(situation, old=alone), part, preference)

    def go_on_alone(self) -> None:
        """Shares nothing any more: goes on with copies of the states it shared, which cost nothing to make."""
        execution, parts = self.live.execution, self.session.parts
        if not isinstance(execution, SingleBox) or not taps_in(execution.box.plan):
            return
        sources, shared = self.live.sources, self.shares
        self.forgotten_before = max(self.forgotten_before, *(parts.named[name].frontier for name in shared))
        grown = grown_box(execution.box, {name: part.box for name, part in parts.named.items()})
        self.run_rest(grown)
        self.events.append({"event": "goes on alone", "at": self.frontier, "shared": shared})
        parts.leave(self.name, sources)

    def _know_starts(self) -> None:
        """Knows how late the rows of its windows start, also of those that came to a part or before it was there."""
        streams, starts = self.session.streams, self.live.starts
        for source in self.live.sources:
            latest = streams[source.stream.name].latest
            if latest > BEGINNING:
                starts[source.stream.alias] = max(starts.get(source.stream.alias, latest), latest)

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
