"""The rows that are appended to an Iceberg table: a position is the number of the last snapshot that was read.

Only snapshots that append are read. One that rewrites files and no rows is passed over; one that deletes or overwrites
is refused, because what it removed was read as rows already. The identity of the table is the name of its only
partition, so positions of one that was made again are not taken for its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.environment import hidden
from midstream.connectors.registry import Option
from midstream.connectors.source import Position, Positions, Source
from midstream.errors import JobError

AT = "changed_at"
"""The column of the time of a snapshot, unless the table has one of that name."""


class IcebergRows(Source):
    """A table of an Iceberg catalog that grows."""

    options: ClassVar[Mapping[str, Option]] = {
        "catalog": Option(dict, "Settings of the catalog, such as name, type, uri and warehouse.", needed=True),
        "table": Option(str, "The table whose new rows are read, with its namespace: sales.orders.", needed=True),
    }

    def __init__(self, catalog: Mapping[str, str], table: str) -> None:
        self.table, self._settings = table, dict(catalog)
        self._catalog: Any = None

    @property
    def name(self) -> str:
        return hidden(f"iceberg table {self.table}")

    def schema(self) -> pa.Schema:
        own = pa.schema([(field.name, _plain(field.type)) for field in self._loaded().schema().as_arrow()])
        return own if AT in own.names else own.append(pa.field(AT, pa.timestamp("us", "UTC")))

    def partitions(self) -> Positions:
        return {str(self._loaded().metadata.table_uuid): 0}

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        reached, rows = int(start), 0
        for snapshot in self._after(partition, int(start)):
            if limit is not None and rows >= limit:
                break
            reached, rows = snapshot.sequence_number, rows + int(snapshot.summary["added-records"] or 0)
        return reached

    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        schema, table = self.schema(), self._loaded()
        found = [schema.empty_table()]
        for snapshot in self._after(partition, int(start)):
            if snapshot.sequence_number <= int(end) and _operation(snapshot) == "append":
                number = snapshot.snapshot_id
                scan = table.incremental_append_scan().from_snapshot_id_inclusive(number)
                rows = scan.to_snapshot_id_inclusive(number).to_arrow()
                if AT not in rows.column_names:
                    times = pa.array([snapshot.timestamp_ms * 1000] * rows.num_rows, schema.field(AT).type)
                    rows = rows.append_column(AT, times)
                found.append(rows.select(schema.names).cast(schema))
        return pa.concat_tables(found)

    def require(self, starts: Positions) -> None:
        for partition, start in starts.items():
            self._after(partition, int(start))

    def lag(self, partition: str, start: Position) -> int:
        return sum(int(one.summary["added-records"] or 0) for one in self._after(partition, int(start)))

    def _after(self, partition: str, start: int) -> list[Any]:
        """The snapshots after a position, in order; refuses those that do more than to add rows, and gaps."""
        table = self._loaded()
        if str(table.metadata.table_uuid) != partition:
            raise self._refused("is another table than the one that was read", "it was made again under the same name")
        found, snapshot = list[Any](), table.current_snapshot()
        while snapshot is not None and snapshot.sequence_number > start:
            if _operation(snapshot) not in ("append", "replace"):
                did = f"snapshot {snapshot.snapshot_id} is one of the operation {_operation(snapshot)}"
                raise self._refused(
                    "has lost rows that were read, or may be", f"{did}; only rows that are added are read"
                )
            found.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
            if parent is not None and snapshot is None:
                raise self._refused("does not have all snapshots any more", "those that were not read have expired")
        if start and (snapshot is None or snapshot.sequence_number < start):
            raise self._refused(f"does not have snapshot number {start}, the last to be read", "it was rolled back")
        return found[::-1]

    def _refused(self, what: str, why: str) -> JobError:
        return JobError(f"{self.name} {what}", detail=why, hint="give the stream another name to read what there is")

    def _loaded(self) -> Any:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if self._catalog is None:
            self._catalog = load_catalog(**{"name": "default", **self._settings})
        try:
            table = self._catalog.load_table(self.table)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise JobError(f"{self.name} is not there") from None
        if table.metadata.format_version < 2:
            raise JobError(f"{self.name} is of version 1 of the format, whose snapshots have no numbers")
        return table

    def close(self) -> None:
        self._catalog = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_catalog": None}


def _operation(snapshot: Any) -> str:
    return str(snapshot.summary.operation.value) if snapshot.summary is not None else "unknown"


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type with offsets of 32 bits, as streams have them.

    >>> _plain(pa.large_list(pa.large_string()))
    ListType(list<item: string>)
    """
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    return kind
