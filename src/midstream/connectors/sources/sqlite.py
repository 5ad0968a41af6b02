"""The rows of a table of a SQLite file, in the order in which they were added, which is that of their `rowid`.

One transaction at a time writes to such a file, so the row ids that are there never come after those that follow. Rows
may be removed once they were read, but not the last of them: the next one would get its number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.database import quoted
from midstream.connectors.registry import SCHEMA, Option
from midstream.connectors.source import Position, Positions, Source
from midstream.connectors.values import rows_of_values
from midstream.errors import JobError
from midstream.inputs.ddl import schema_of_ddl

PATIENCE = 30.0
"""For how many seconds a reader waits for somebody who writes."""


class SqliteRows(Source):
    """A table of a SQLite file that grows."""

    options: ClassVar[Mapping[str, Option]] = {
        "path": Option(str, "The file.", needed=True, place="file"),
        "table": Option(str, "The table whose rows are read; rows are only ever added to it.", needed=True),
        "schema": SCHEMA,
    }

    def __init__(self, path: str, table: str, schema: str) -> None:
        self.path, self.table = path, table
        self._schema = schema_of_ddl(schema, f"the schema of table {table}")

    @property
    def name(self) -> str:
        return f"sqlite table {self.table}"

    def schema(self) -> pa.Schema:
        return self._schema

    def partitions(self) -> Positions:
        return {"rows": 0}

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        within = f"SELECT rowid AS at FROM {quoted(self.table)} WHERE rowid > ? ORDER BY rowid LIMIT ?"
        ((last,),) = self._run(f"SELECT max(at) FROM ({within})", start, -1 if limit is None else limit)
        return start if last is None else int(last)

    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        names = ", ".join(["rowid", *map(quoted, self._schema.names)])
        text = f"SELECT {names} FROM {quoted(self.table)} WHERE rowid > ? AND rowid <= ? ORDER BY rowid"
        ids, *columns = list(zip(*self._run(text, start, end), strict=True)) or [()] * (1 + len(self._schema))
        return rows_of_values(columns, self._schema, lambda place: {"table": self.table, "rowid": ids[place]})

    def require(self, starts: Positions) -> None:
        ((last,),) = self._run(f"SELECT max(rowid) FROM {quoted(self.table)}")
        if starts["rows"] > (last or 0):  # type: ignore[operator]
            raise JobError(
                f"{self.name} has rows up to number {last or 0}, and those up to {starts['rows']} were read",
                detail="it was emptied or made again, or its last rows were removed",
                hint="restore it, or give the stream another name to read the table from its beginning",
            )

    def lag(self, partition: str, start: Position) -> int:
        ((count,),) = self._run(f"SELECT count(*) FROM {quoted(self.table)} WHERE rowid > ?", start)
        return int(count)

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        if not Path(self.path).is_file():
            raise JobError(f"{self.name} cannot be read: there is no file {self.path}")
        with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as connection:
            try:
                return connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if "no such" in str(error):
                    raise JobError(f"{self.name} of {self.path} cannot be read: {error}") from None
                raise
