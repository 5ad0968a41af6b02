"""A table of a PostgreSQL database. Rows go in by COPY, those of a key through a temporary table and an upsert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as csv

from midstream.connectors.database import Database, column
from midstream.connectors.environment import conceal
from midstream.connectors.forms import Form, json_column
from midstream.connectors.registry import TABLE, Option
from midstream.errors import JobError

PATIENCE = 10
"""For how many seconds a connection is waited for."""


class Postgres(Database):
    """A table of a PostgreSQL database. Each transaction has a connection of its own, so that servers may restart."""

    kind, mark = "postgres", "%s"
    options: ClassVar[Mapping[str, Option]] = {
        "url": Option(str, "Where the database is: postgresql://user:password@host/database.", needed=True),
        **TABLE,
    }

    def __init__(
        self, url: str, table: str, form: Form = "rows", key: Sequence[str] = (), on_bad: str = "stop"
    ) -> None:
        super().__init__(table, form, key, on_bad)
        require_address(url)
        self._url = url
        import psycopg

        self.refusals = (psycopg.IntegrityError, psycopg.DataError)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """One transaction of a new connection."""
        import psycopg

        with psycopg.connect(self._url, connect_timeout=PATIENCE, application_name="midstream") as connection:
            yield connection

    def types(self, run: Any, schema: pa.Schema) -> list[str]:
        return [type_of(field.type) for field in schema]

    def insert(self, run: Any, table: pa.Table, into: str, instead: str) -> None:
        names = ", ".join(map(column, table.column_names))
        if not instead:
            _copy(run, table, into, names)
            return
        run.execute(f"CREATE TEMPORARY TABLE midstream_rows ON COMMIT DROP AS SELECT {names} FROM {into} LIMIT 0")
        _copy(run, table, "midstream_rows", names)
        run.execute(f"INSERT INTO {into} ({names}) SELECT {names} FROM midstream_rows {instead}")
        run.execute("DROP TABLE midstream_rows")


def require_address(url: str) -> None:
    """Refuses what is no address; what is secret in it is hidden from now on."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    conceal(url, "url")
    try:
        known = conninfo_to_dict(url)
    except ProgrammingError:
        known = None
    if known is None or url.count("@") > 1:
        raise JobError(
            "the url of 'postgres' is no address of a database",
            hint="write postgresql://user:password@host:5432/database; in a password, %40 for @ and %2F for /",
        )
    if known.get("password"):
        conceal(str(known["password"]), "password")


def _copy(run: Any, table: pa.Table, into: str, names: str) -> None:
    """Adds rows as CSV: there a null is nothing at all, and a text stands in quotation marks."""
    content = pa.BufferOutputStream()
    columns = {name: written(table.column(name)) for name in table.column_names}
    csv.write_csv(pa.table(columns), content, csv.WriteOptions(include_header=False))
    with run.cursor() as cursor, cursor.copy(f"COPY {into} ({names}) FROM STDIN (FORMAT csv)") as copy:
        copy.write(memoryview(content.getvalue()))


def written(column: pa.ChunkedArray) -> Any:
    """A column as CSV can hold it, in words that PostgreSQL reads."""
    kind = column.type
    if pa.types.is_nested(kind):
        return json_column(column)
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if pa.types.is_decimal(kind) or pa.types.is_time(kind):
        return column.cast(pa.string())
    return column


_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_uint64, "NUMERIC(20)"),
    (pa.types.is_integer, "BIGINT"),
    (pa.types.is_duration, "BIGINT"),
    (pa.types.is_floating, "DOUBLE PRECISION"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
    (pa.types.is_binary, "BYTEA"),
    (pa.types.is_large_binary, "BYTEA"),
    (pa.types.is_nested, "JSONB"),
)


def type_of(kind: pa.DataType) -> str:
    """The type of a column for values of an Arrow type.

    >>> type_of(pa.int32()), type_of(pa.decimal128(10, 2)), type_of(pa.timestamp("us"))
    ('BIGINT', 'NUMERIC(10, 2)', 'TIMESTAMP')
    """
    if pa.types.is_decimal(kind):
        return f"NUMERIC({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ"
    return next((name for is_kind, name in _TYPES if is_kind(kind)), "TEXT")
