"""The rows that a table of PostgreSQL has when a job first reads its changes, so that both together are the table.

A slot shows the table as it is where the changes of the slot begin, but only while the slot is made. So the rows are
copied then, into a table beside it, numbered; there they stay until they are taken in. The slot gets its name when the
copy is whole: whoever is interrupted before that begins again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midstream.connectors.database import column, quoted

NUMBER, AT = "midstream_row", "midstream_at"
"""The columns that the copy has more: the number of a row, and when it was copied."""

KNOWN = {"change": "'insert'", "changed_at": AT}
"""What is known of a row besides its columns."""


@dataclass(frozen=True, slots=True)
class TableCopy:
    """The copy of a table."""

    table: str
    slot: str

    @property
    def place(self) -> str:
        """The name of the copy, quoted."""
        return quoted(".".join([*self.table.split(".")[:-1], f"{self.slot}_rows"]))

    def is_there(self, run: Any) -> bool:
        """Whether the table was copied."""
        return run.execute("SELECT to_regclass(%s)", [self.place]).fetchone()[0] is not None

    def make(self, url: str) -> None:
        """Makes the slot, and the copy of the table where it begins."""
        import psycopg

        begun = f"{self.slot}_begun"
        known: dict[str, Any] = {"replication": "database", "autocommit": True}
        with psycopg.connect(url, **known) as making, psycopg.connect(url) as copying:
            cursor = psycopg.ClientCursor(making)
            cursor.execute(f"CREATE_REPLICATION_SLOT {quoted(begun)} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT")
            (found,) = cursor.fetchall()
            copying.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            copying.execute(f"SET TRANSACTION SNAPSHOT '{found[2]}'")
            copying.execute(f"DROP TABLE IF EXISTS {self.place}")
            numbered = f"row_number() OVER () AS {NUMBER}, now() AS {AT}"
            copying.execute(f"CREATE TABLE {self.place} AS SELECT {numbered}, t.* FROM {quoted(self.table)} t")
            copying.commit()
            cursor.execute("SELECT pg_copy_logical_replication_slot(%s, %s, false)", [begun, self.slot])

    def end(self, run: Any, start: int, limit: int | None) -> int:
        """The number of the last row, or of the one that lies so many behind another."""
        (last,) = run.execute(f"SELECT max({NUMBER}) FROM {self.place}").fetchone()
        return max(start, min(last or 0, start + limit) if limit is not None else last or 0)

    def texts(self, run: Any, start: int, end: int, names: Sequence[str]) -> pa.Table:
        """The rows between two numbers, as texts; columns that the table lacks are null."""
        there = {
            name
            for (name,) in run.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
                [self.place],
            ).fetchall()
        }
        named = [column(name) if name in there else KNOWN.get(name, "NULL") for name in names]
        chosen = ", ".join(f"({value})::text" for value in named)
        within = f"WHERE {NUMBER} > %s AND {NUMBER} <= %s ORDER BY {NUMBER}"
        rows = run.execute(f"SELECT {chosen} FROM {self.place} {within}", [start, end]).fetchall()
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        return pa.table([pa.array(column, pa.string()) for column in columns], names=list(names))

    def empty(self, run: Any) -> None:
        """Gives the space of rows that were taken in back; that there was a copy stays known."""
        run.execute(f"TRUNCATE {self.place}")
