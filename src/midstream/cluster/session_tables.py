"""The tables of a session: streams whose rows are changes, which queries read by name as what they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from midstream.algebra.declarations import Catalog
from midstream.inputs.tables import table_view
from midstream.language.foreign import to_cql
from midstream.language.over_queries import with_queries


class SessionTables:
    """A session that knows which of its streams have the changes of tables."""

    def __init__(self) -> None:
        self._tables: dict[str, str] = {}
        """The queries that are the tables, by name."""

    def table(self, name: str, *, key: Sequence[str] = (), changes: str = "upserts", op: str | None = None) -> Self:
        """Says that a stream has the changes of a table: queries added later read the table by its name, and no window.

        `changes` are "rows" that stay, "upserts", of which the last one of each key is there, or "debezium": those,
        and deletions, as the column `op` says (`change` by default).
        """
        self._tables[name] = table_view(name, key, changes, op)
        return self

    def _standing_alone(self, cql: str, catalog: Catalog, dialect: str | None) -> str:
        """The text of a query in this language, with the tables and queries that it reads."""
        if dialect is not None:
            cql = to_cql(cql, dialect, {name: stream.time for name, stream in catalog.streams.items()})
        others = [stream for stream in catalog.streams if stream not in self._tables]
        return with_queries(cql, {**catalog.queries, **self._tables}, others)
