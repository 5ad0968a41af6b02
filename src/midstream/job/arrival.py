"""How rows arrive while Spark's streaming query runs: which columns they bring, and by which keys they are routed.

Both are fixed when it starts. A query that is added later is taken up with the next batch if what it reads arrives
already; otherwise Spark's query has to start anew between two batches. With `carry="all"` it never has to: all columns
arrive, and whoever needs rows by another key reads them through an exchange.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from midstream.algebra.declarations import StreamDeclaration
from midstream.distribution.fragments import STAY, Route
from midstream.job.driver import Driver
from midstream.job.needed import needed_columns
from midstream.job.running_query import RunningQuery

Carry = Literal["needed", "all"]


@dataclass(slots=True)
class Arrival:
    """What arrives; what is settled once on a checkpoint stays so, or its queries would be cut another way."""

    driver: Driver
    carry: Carry
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=dict)

    def __post_init__(self) -> None:
        manifest = self.driver.manifest
        carry = "all" if manifest and manifest.settings.carry == "all" else self.carry
        self.driver.state.settings = replace(self.driver.state.settings, carry=carry)

    def settled(self, streaming: bool) -> bool:
        """Whether a query must take its streams as they arrive."""
        return self.driver.state.settings.carry == "all" and (streaming or self.driver.manifest is not None)

    def begin(self, declarations: Sequence[StreamDeclaration]) -> Mapping[str, Sequence[str]]:
        """Settles what arrives from now on; gives the columns of each stream."""
        if self.driver.state.settings.carry == "all":
            for declaration in declarations:
                self.driver.state.routes.setdefault(declaration.name, STAY)
            self.columns = {d.name: list(d.columns.names) for d in declarations}
        else:
            self.columns = {d.name: needed_columns(self.driver.queries, d, self.driver.watchers) for d in declarations}
        self.routes = dict(self.driver.state.routes)
        return self.columns

    def serves(self, query: RunningQuery, declarations: Sequence[StreamDeclaration]) -> bool:
        """Whether all that a query reads arrives, and where it needs it."""
        for declaration in declarations:
            wanted = needed_columns({query.name: query}, declaration, self.driver.watchers)
            if not set(wanted) <= set(self.columns.get(declaration.name, ())):
                return False
        wanted_routes = query.staged.routes
        return all(self.routes.get(name, STAY) == route for name, route in wanted_routes.items())
