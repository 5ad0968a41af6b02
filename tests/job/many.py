"""Several queries on the path of a batch without Spark, coming and going between batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.job.chain import Chain

from midstream.algebra.declarations import Catalog
from midstream.job.commands.adding import Adding
from midstream.job.events import QueryAdded, QueryWithdrawn
from midstream.job.outputs.results import results_of_query
from midstream.job.plans.local_plans import resumed
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.exchange import Layout
from midstream.language import parse
from midstream.optimizer.plans import plan_query


@dataclass
class Many(Chain):
    """All streams of a catalog with all columns, and any queries over them; a checkpoint with manifests is resumed."""

    relation: Any = None
    catalog: Catalog = None  # type: ignore[assignment]
    folder: Path = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self._open()
        self.driver.open(self.resize)
        self.adding = Adding(self.driver, self.catalog.functions)
        self.driver.streams = dict(enumerate(self.catalog.streams.values()))
        schemas = {port: declared.columns for port, declared in self.driver.streams.items()}
        self.layout = self.driver.arriving = Layout.of(schemas)
        manifest = self.driver.manifest
        for name, entry in manifest.queries.items() if manifest else ():
            self.add(name, entry.cql, every=entry.emit_every)

    def add(self, name: str, cql: str, **options: Any) -> RunningQuery:
        """A query, taken up with the next batch."""
        relation = parse(cql, self.catalog)
        query = self.adding.query(name, cql, relation, **options)
        if self.driver.manifest is not None:
            state, known = self.driver.state, self.driver.manifest.account(name).plans
            query = resumed(query, known, lambda plan: state.target(query, plan_query(relation, plan)))
        self.driver.apply(QueryAdded(query))
        return query

    def drop(self, name: str) -> None:
        """Drops a query, with its state."""
        self.driver.apply(QueryWithdrawn(name))

    def migrate_query(self, name: str, plan: str, strategy: str) -> None:
        """Starts a migration of one of the queries."""
        query = self.driver.queries[name]
        self.driver.begin_migration(
            name, self.driver.state.target(query, plan_query(query.plan.query, plan)), strategy, "a test"
        )

    def history(self, name: str) -> list[Mapping[str, Any]]:
        """A query's history."""
        return list(self.manifest.account(name).history)

    def table(self, name: str) -> pa.Table:
        """What a query has released by now."""
        return results_of_query(self.driver.files, self.manifest, name, self.driver.queries[name].plan)

    @property
    def stored(self) -> int:
        """How many rows all states hold, each segment counted once."""
        return sum({e.place: e.rows for e in self.manifest.entries()}.values())
