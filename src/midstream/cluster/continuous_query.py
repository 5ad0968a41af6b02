"""What every continuous query of a session has, wherever it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from midstream.algebra.declarations import Catalog
from midstream.algebra.physical import render_physical
from midstream.algebra.statistics import Statistics
from midstream.algebra.time import size
from midstream.checkpoint.plotting import change_of_record, plot_results
from midstream.checkpoint.stored import StoredDecision, StoredMigration
from midstream.checkpoint.subscriptions import Subscription
from midstream.errors import JobError
from midstream.html import Records, preformatted, section, table
from midstream.inputs import Duration
from midstream.optimizer.plans import Plan


class ContinuousQuery:
    """A continuous query: its plan, its results so far, its migrations and decisions."""

    name: str
    cql: str

    @property
    def plan(self) -> Plan:
        """The plan that runs."""
        raise NotImplementedError

    @property
    def migrating(self) -> str | None:
        """The plan it is migrating to, if it is."""
        raise NotImplementedError

    def explain(self) -> str:
        """The plan as it runs, in words."""
        raise NotImplementedError

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
        """Migrates to another plan while results keep coming.

        Only the part in which the plans differ migrates, unless `part` is "whole". A named strategy must be legal for
        both plans; with the part "smallest" it is enough that it is legal for the part, as it is for "auto". With
        `verify`, a duration, a copy of the query migrates first, both are compared for so long after that, and the plan
        changes only if nothing differs. On a checkpoint, `slots` names those that migrate, each by itself; in memory,
        `queue` lets a migration wait for the end of another.
        """
        raise NotImplementedError

    def explain_migration(self, plan: Plan | str, *, part: str = "auto", preference: str = "least_silence") -> str:
        """Which part of the plan would migrate to another one, and what each strategy is predicted to take."""
        raise NotImplementedError

    def cancel_migration(self) -> None:
        """Goes back to the plan before the migration under way; nothing is lost or doubled."""
        raise NotImplementedError

    def switch(self) -> None:
        """Lets the text that `session.replace(…, verify=…)` runs beside it take its place, whatever was found."""
        raise JobError("no other text runs beside a query in memory", hint="give the session a checkpoint")

    @property
    def history(self) -> Records[StoredMigration]:
        """Its migrations and other changes, oldest first, as `ms.open` gives them."""
        raise NotImplementedError

    @property
    def decisions(self) -> Records[StoredDecision]:
        """What was decided about its plan, also to stay, oldest first, as `ms.open` gives it."""
        raise NotImplementedError

    @property
    def statistics(self) -> dict[str, Any]:
        """Counts of what it did and holds."""
        raise NotImplementedError

    def results(self) -> Any:
        """All results released so far: an Arrow table, on Spark a DataFrame."""
        raise NotImplementedError

    def table(self) -> pa.Table:
        """All results released so far, in order, in this process."""
        raise NotImplementedError

    def current(self) -> pa.Table:
        """On a checkpoint: the results that are valid at the last instant for which all are known."""
        self._is_elsewhere("current")

    def subscribe(self, since: int | None = None) -> Subscription:
        """On a checkpoint: results as they are released, from an instant on, in ticks; also by `async for`."""
        self._is_elsewhere("subscribe")

    def poll(self) -> pa.Table:
        """In memory: the results released since the last poll."""
        self._is_elsewhere("poll")

    @property
    def plans(self) -> Mapping[int, Plan]:
        """On a checkpoint: the plan that each slot runs."""
        self._is_elsewhere("plans")

    @property
    def quarantine(self) -> dict[str, Any] | None:
        """On a checkpoint: why and since which batch it takes in nothing; None if it is at work."""
        self._is_elsewhere("quarantine")

    def resume(self) -> None:
        """On a checkpoint: goes on after a quarantine, as if the rows since it was stopped had never come."""
        self._is_elsewhere("resume")

    @property
    def observed(self) -> Statistics:
        """On a checkpoint: what is known of its streams and operators, as the optimizer reads it."""
        self._is_elsewhere("observed")

    def _is_elsewhere(self, name: str) -> NoReturn:
        raise JobError(f"query {self.name} has no `{name}` where it runs")

    def to_pandas(self) -> Any:
        """All results released so far as a pandas DataFrame."""
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """All results released so far as a Polars DataFrame."""
        from midstream.inputs.frames import polars_of

        return polars_of(self.table())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All results released so far, for whatever reads Arrow."""
        return self.table().__arrow_c_stream__(requested_schema)

    def _drawn(self) -> str:
        """The operators of the plan."""
        return render_physical(self.plan.physical)

    def plot(self) -> Any:
        """Draws what it did before, during and after its migrations, as a figure of matplotlib."""
        return plot_results(self.table(), [change_of_record(change) for change in self.history if change.strategy])

    def _repr_html_(self) -> str:
        moving = f", migrating to {self.migrating}" if self.migrating else ""
        plan = preformatted(self._drawn())
        shape = self.plan.text or "without joins"
        changes = self.history._repr_html_()
        return section(f"query {self.name}", preformatted(self.cql), section(f"plan {shape}{moving}", plan), changes)


def session_html(where: str, queries: Iterable[ContinuousQuery], catalog: Catalog) -> str:
    """A session as notebooks show it: its queries and streams."""

    def row(query: ContinuousQuery) -> list[Any]:
        known = query.statistics
        plan = query.plan.text or "without joins"
        moving = f" → {query.migrating}" if query.migrating else ""
        return [query.name, f"{plan}{moving}", f"{known['state_rows']:,} rows", size(known["state_bytes"])]

    streams = [[s.name, ", ".join(s.columns.names), s.time] for s in catalog.streams.values()]
    return section(
        where,
        table(["query", "plan", "state", "size"], [row(query) for query in queries]),
        table(["stream", "columns", "time"], streams),
    )
