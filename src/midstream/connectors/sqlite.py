"""A table of a SQLite file. Times and decimals are text that sorts as they do; values that have parts are JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa

from midstream.connectors.database import FileDatabase, column, committed
from midstream.connectors.forms import json_column

PATIENCE = 30.0
"""For how many seconds a transaction waits for one of somebody else's."""


class Sqlite(FileDatabase):
    """A table of a SQLite file, which is made if it is not there."""

    kind = "sqlite"
    refusals = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, OverflowError)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction that is on the disk when it ends."""
        with closing(sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            with committed(connection, "BEGIN IMMEDIATE"):
                yield connection

    def types(self, run: Any, schema: pa.Schema) -> list[str]:
        return [_type(field.type) for field in schema]

    def insert(self, run: Any, table: pa.Table, into: str, instead: str) -> None:
        names = ", ".join(map(column, table.column_names))
        marks = ", ".join("?" for _ in table.column_names)
        rows = zip(*(_values(column) for column in table.columns), strict=True)
        run.executemany(f"INSERT INTO {into} ({names}) VALUES ({marks}) {instead}", rows)

    def value(self, scalar: pa.Scalar) -> Any:
        return _values(pa.chunked_array([pa.array([scalar.as_py()], scalar.type)]))[0]


def _type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "TEXT"


def _values(column: pa.ChunkedArray) -> Any:
    """Values as SQLite can keep them."""
    kind = column.type
    if pa.types.is_nested(kind):
        return json_column(column).to_pylist()
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string()).to_pylist()
    return column.to_pylist()
