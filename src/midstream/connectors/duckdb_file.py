"""A table of a DuckDB file. Between transactions the file is closed, so that others can read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from midstream.connectors.database import Database, committed, quoted
from midstream.connectors.forms import Form
from midstream.connectors.registry import TABLE, Option, form_option


class DuckDB(Database):
    """A table of a DuckDB file, which is made if it is not there."""

    kind = "duckdb"
    options: ClassVar[Mapping[str, Option]] = {
        "path": Option(str, "The file.", needed=True, place="file"),
        **TABLE,
        "form": form_option("rows", "changelog", "current"),
    }

    def __init__(self, path: str, table: str, form: Form = "rows", key: Sequence[str] = ()) -> None:
        super().__init__(table, form, key)
        self.path = path

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One transaction, after which the file is closed."""
        with closing(duckdb.connect(self.path)) as connection, committed(connection):
            yield connection

    def types(self, run: Any, schema: pa.Schema) -> list[str]:
        run.register("midstream_rows", schema.empty_table())
        return [described[1] for described in run.execute("DESCRIBE midstream_rows").fetchall()]

    def insert(self, run: Any, table: pa.Table, into: str, instead: str) -> None:
        names = ", ".join(map(quoted, table.column_names))
        run.register("midstream_rows", table)
        run.execute(f"INSERT INTO {into} ({names}) SELECT {names} FROM midstream_rows {instead}")
        run.unregister("midstream_rows")
