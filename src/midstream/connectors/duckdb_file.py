"""A table of a DuckDB file. Between transactions the file is closed, so that others can read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from midstream.connectors.database import FileDatabase, column, committed, quoted
from midstream.connectors.fitting import STOP
from midstream.connectors.sink import Delivery
from midstream.errors import JobError

TRIAL = "midstream_trial"
"""What the database in memory is called in which rows are tried."""

KEYS = """
SELECT constraint_type, constraint_column_names FROM duckdb_constraints()
WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE', 'FOREIGN KEY') AND [database_name, schema_name, table_name] = $1
UNION ALL SELECT 'INDEX', expressions::VARCHAR[] FROM duckdb_indexes()
WHERE is_unique AND [database_name, schema_name, table_name] = $1
"""
"""The keys of a table: columns, or expressions of an index."""


class DuckDB(FileDatabase):
    """A table of a DuckDB file, which is made if it is not there."""

    kind = "duckdb"
    refusals = (duckdb.IntegrityError, duckdb.DataError)
    _trial: duckdb.DuckDBPyConnection | None = None
    """Tables like those of the file, in which rows are tried."""

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One transaction, after which the file is closed."""
        with closing(duckdb.connect(self.path)) as connection, committed(connection):
            yield connection

    def types(self, run: Any, schema: pa.Schema) -> list[str]:
        run.register("midstream_rows", schema.empty_table())
        return [described[1] for described in run.execute("DESCRIBE midstream_rows").fetchall()]

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        try:
            super().write(delivery, table)
        finally:
            trial, self._trial = self._trial, None
            if trial is not None:
                trial.close()

    def put(self, run: Any, table: pa.Table, instead: str) -> None:
        """Tries rows in memory first: a refusal ends a transaction, which nothing before it survives."""
        if self.on_bad != STOP:
            if self._trial is None:
                self._trial = self._tables_like(run)
                self._bring(run, self._trial, table)
            self.insert(self._trial, table, f"{TRIAL}.{quoted(self.table)}", instead)
        self.insert(run, table, quoted(self.table), instead)

    def _tables_like(self, run: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """Empty tables in memory with the types, defaults and constraints of those in the file."""
        (file,) = run.execute("SELECT current_database()").fetchall()[0]
        trial = run.cursor()
        trial.execute(f"DETACH DATABASE IF EXISTS {TRIAL}")  # somebody else may have kept the file open
        trial.execute(f"ATTACH ':memory:' AS {TRIAL}")
        trial.execute(f"COPY FROM DATABASE {quoted(file)} TO {TRIAL} (SCHEMA)")
        return trial

    def _bring(self, run: duckdb.DuckDBPyConnection, trial: duckdb.DuckDBPyConnection, table: pa.Table) -> None:
        """Brings what the table has that rows may clash with: those that are alike in what must be unique."""
        target = quoted(self.table)
        types = {name: kind for name, kind, *_ in run.execute(f"DESCRIBE {target}").fetchall()}
        typed = ", ".join(f"TRY_CAST({column(n)} AS {types[n]}) AS {column(n)}" for n in table.column_names)
        run.register("midstream_rows", table)
        place = [TRIAL, *f"main.{self.table}".split(".")[-2:]]
        for kind, parts in trial.execute(KEYS, [place]).fetchall():
            if kind == "FOREIGN KEY":
                raise JobError(f"{self.name} has a foreign key, so rows cannot be tried", hint='use on_bad = "stop"')
            unique = ", ".join(parts if kind == "INDEX" else map(column, parts))
            rows = f"SELECT {typed} FROM midstream_rows UNION ALL BY NAME SELECT * FROM {target} WHERE false"
            there = f"SELECT * FROM {target} WHERE ({unique}) IN (SELECT ({unique}) FROM ({rows}))"
            trial.register("midstream_there", run.sql(there).to_arrow_table())
            trial.execute(f"INSERT OR IGNORE INTO {TRIAL}.{target} BY NAME SELECT * FROM midstream_there")
        run.unregister("midstream_rows")

    def insert(self, run: Any, table: pa.Table, into: str, instead: str) -> None:
        names = ", ".join(map(column, table.column_names))
        run.register("midstream_rows", table)
        run.execute(f"INSERT INTO {into} ({names}) SELECT {names} FROM midstream_rows {instead}")
        run.unregister("midstream_rows")
