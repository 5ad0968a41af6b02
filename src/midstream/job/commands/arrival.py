"""Which columns rows bring while a job runs.

In this process rows come whole. On Spark the columns are fixed when its query starts. A query that is added later is
taken up with the next batch if what it reads arrives already; otherwise Spark's query has to restart between two
batches. With `carry="all"` it never has to. By which keys rows are routed is decided for each batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from midstream.algebra.declarations import StreamDeclaration
from midstream.distribution.fragments import STAY
from midstream.job.events import SettingsChanged, StreamsArrive
from midstream.job.job import Job
from midstream.job.queries.running_query import RunningQuery
from midstream.job.watchers import needed_columns

Carry = Literal["needed", "all"]


@dataclass(slots=True)
class Arrival:
    """What arrives."""

    job: Job
    carry: Carry
    whole: bool = False
    """Whether rows come whole at no cost: they are in this process already."""
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        manifest = self.job.manifest
        carry = "all" if manifest and manifest.settings.carry == "all" else self.carry
        self.job.apply(SettingsChanged({"carry": carry}))

    def routes_fixed(self, streaming: bool) -> bool:
        """Whether a query must take its streams as they arrive."""
        return self.job.state.settings.carry == "all" and (streaming or self.job.manifest is not None)

    def begin(self, declarations: Sequence[StreamDeclaration]) -> Mapping[str, Sequence[str]]:
        """Settles what arrives from now on; gives the columns of each stream."""
        if self.job.state.settings.carry == "all":
            self.job.apply(StreamsArrive({declaration.name: STAY for declaration in declarations}))
        if self.whole or self.job.state.settings.carry == "all":
            self.columns = {d.name: list(d.columns.names) for d in declarations}
        else:
            self.columns = {d.name: needed_columns(self.job.queries, d, self.job.watchers) for d in declarations}
        return self.columns

    def serves(self, query: RunningQuery, declarations: Sequence[StreamDeclaration]) -> bool:
        """Whether all that a query reads arrives."""
        for declaration in declarations:
            wanted = needed_columns({query.name: query}, declaration, self.job.watchers)
            if not set(wanted) <= set(self.columns.get(declaration.name, ())):
                return False
        return True
