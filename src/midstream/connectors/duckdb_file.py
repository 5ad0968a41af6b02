"""A table of a DuckDB file. Between transactions the file is closed, so that others can read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from midstream.connectors.database import Database, committed, quoted
from midstream.connectors.fitting import STOP
from midstream.connectors.forms import Form
from midstream.connectors.registry import TABLE, Option, form_option
from midstream.connectors.sink import Delivery


class DuckDB(Database):
    """A table of a DuckDB file, which is made if it is not there."""

    kind = "duckdb"
    refusals = (duckdb.IntegrityError, duckdb.DataError)
    options: ClassVar[Mapping[str, Option]] = {
        "path": Option(str, "The file.", needed=True, place="file"),
        **TABLE,
        "form": form_option("rows", "changelog", "current"),
    }

    def __init__(
        self, path: str, table: str, form: Form = "rows", key: Sequence[str] = (), on_bad: str = "stop"
    ) -> None:
        super().__init__(table, form, key, on_bad)
        self.path = path
        self._trial: duckdb.DuckDBPyConnection | None = None

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One transaction, after which the file is closed."""
        with closing(duckdb.connect(self.path)) as connection, committed(connection):
            yield connection

    def types(self, run: Any, schema: pa.Schema) -> list[str]:
        run.register("midstream_rows", schema.empty_table())
        return [described[1] for described in run.execute("DESCRIBE midstream_rows").fetchall()]

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        self._trial = None
        super().write(delivery, table)

    def put(self, run: Any, table: pa.Table, instead: str) -> None:
        """Tries rows in memory first: a refusal ends a transaction, which nothing before it survives."""
        if self.on_bad != STOP:
            if self._trial is None:
                self._trial = duckdb.connect()
                made = "SELECT sql FROM duckdb_tables() WHERE database_name = current_database() AND table_name = ?"
                self._trial.execute(run.execute(made, [self.table.rpartition(".")[2]]).fetchall()[0][0])
            self.insert(self._trial, table, quoted(self.table.rpartition(".")[2]), instead)
        self.insert(run, table, quoted(self.table), instead)

    def insert(self, run: Any, table: pa.Table, into: str, instead: str) -> None:
        names = ", ".join(map(quoted, table.column_names))
        run.register("midstream_rows", table)
        run.execute(f"INSERT INTO {into} ({names}) SELECT {names} FROM midstream_rows {instead}")
        run.unregister("midstream_rows")
