"""The changes of a Delta table, from its change data feed: a position is the last version that was read.

A table that is made again has another identity, which is the name of its only partition, so positions of the old one
are not taken for positions of the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from midstream.connectors.environment import hidden
from midstream.connectors.registry import Option
from midstream.connectors.source import Position, Positions, Source
from midstream.errors import JobError

FEED = "delta.enableChangeDataFeed"

AT_ONCE = 10
"""How many versions a batch takes at most; how many rows these have is not known before they are read."""

KINDS = {"insert": "insert", "update_postimage": "update", "delete": "delete"}


class DeltaChanges(Source):
    """A Delta table whose changes are kept."""

    options: ClassVar[Mapping[str, Option]] = {
        "path": Option(str, "The folder of the table, or its address in an object store.", needed=True, place="folder"),
        "storage": Option(dict, "Settings of the object store, such as its credentials."),
    }

    def __init__(self, path: str, storage: Mapping[str, str] | None = None) -> None:
        self.path, self._storage = path, dict(storage or {})

    @property
    def name(self) -> str:
        return hidden(f"delta table {self.path}")

    def schema(self) -> pa.Schema:
        own = pa.schema(self._table().schema().to_arrow())
        return pa.schema([*own, ("change", pa.string()), ("changed_at", pa.timestamp("us", "UTC"))])

    def partitions(self) -> Positions:
        return {str(self._table().metadata().id): -1}

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        table = self._table()
        if table.metadata().id != partition:
            raise JobError(
                f"{self.name} is another table than the one that was read",
                detail="it was made again under the same name",
                hint="give the stream another name to read it from its beginning",
            )
        last = int(table.version())
        return max(int(start), last if limit is None else min(last, int(start) + AT_ONCE))

    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        if start == end:
            return self.schema().empty_table()
        feed = self._table().load_cdf(starting_version=int(start) + 1, ending_version=int(end))
        found = pa.table(feed)
        kinds = found.column("_change_type").cast(pa.string())
        found = found.set_column(found.column_names.index("_change_type"), "_change_type", kinds)
        found = found.filter(pc.not_equal(kinds, "update_preimage"))
        plain = [f.name for f in found.schema if not pa.types.is_nested(f.type) and f.name != "_commit_version"]
        found = found.sort_by([("_commit_version", "ascending"), *((name, "ascending") for name in plain)])
        changes = [KINDS[kind] for kind in found.column("_change_type").to_pylist()]
        when = found.column("_commit_timestamp").cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        own = found.drop_columns(["_change_type", "_commit_version", "_commit_timestamp"])
        table = own.append_column("change", pa.array(changes, pa.string())).append_column("changed_at", when)
        return table.select(self.schema().names).cast(self.schema())

    def _table(self) -> Any:
        import deltalake
        from deltalake.exceptions import TableNotFoundError

        try:
            table = deltalake.DeltaTable(self.path, storage_options=self._storage)
        except TableNotFoundError:
            raise JobError(f"{self.name} is not there") from None
        if table.metadata().configuration.get(FEED) != "true":
            raise JobError(
                f"{self.name} does not keep its changes",
                hint=f"set its property {FEED} to true before its first row: changes before that are not known",
            )
        return table
