"""The changes of a table of PostgreSQL, as its log has them, in the order in which transactions were committed.

A replication slot of the server keeps the log from the position on that a manifest has; the slot moves on once the
manifest is there, never before. So the server may be asked for the same changes again, until they are taken in.

A position is one of the log, at the end of a transaction: transactions are taken as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from midstream.connectors.database import quoted
from midstream.connectors.postgres import PATIENCE, require_address
from midstream.connectors.registry import SCHEMA, Option
from midstream.connectors.source import Position, Positions, Source
from midstream.connectors.sources.pgoutput import DecodedChanges, decoded
from midstream.connectors.sources.postgres_snapshot import TableCopy
from midstream.connectors.values import rows_of_values
from midstream.errors import JobError
from midstream.inputs.ddl import schema_of_ddl

PART, ROWS = "changes", "rows"
"""The changes, and the rows that were there before."""

QUIET_BYTES = 16 * 2**20
"""How much of the log may hold no change of the table before the slot moves on all the same."""

COUNTED = 10_000
"""How many changes are looked for at least to say how many wait."""

AHEAD = 3
"""How many times as many changes as a batch takes are asked for: asking begins at the slot, before what is read."""

PUBLISHED = (
    "SELECT 1 FROM pg_publication_tables WHERE pubname = %s "
    "AND format('%%I.%%I', schemaname, tablename)::regclass = to_regclass(%s)"
)
"""Asks whether a publication has a table."""

PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', "
    "'publication_names', %s)"
)


class PostgresChanges(Source):
    """The changes of a table from now on; with a snapshot, after the rows that were there before."""

    options: ClassVar[Mapping[str, Option]] = {
        "url": Option(str, "Where the database is: postgresql://user:password@host/database.", needed=True),
        "table": Option(str, "The table whose changes are read.", needed=True),
        "slot": Option(str, "The replication slot and publication, made if missing; midstream_TABLE by default."),
        "snapshot": Option(bool, "Whether rows that are there when the job first starts are read, as insertions."),
        "schema": SCHEMA,
    }

    def __init__(self, url: str, table: str, schema: str, slot: str | None = None, snapshot: bool = False) -> None:
        self.url, self.table = url, table
        self.slot = slot or "midstream_" + re.sub(r"\W", "_", table).lower()
        self._schema = schema_of_ddl(schema, f"the schema of table {table}")
        self._copy = TableCopy(table, self.slot) if snapshot else None
        self._seen: tuple[int, int, DecodedChanges] | None = None
        """The changes that were last asked for, from which position on, and up to which."""
        self._connection: Any = None
        require_address(url)

    @property
    def name(self) -> str:
        return f"changes of postgres table {self.table}"

    def identity(self) -> str:
        with self._connected() as run:
            known = "SELECT system_identifier, to_regclass(%s)::oid FROM pg_control_system()"
            server, table = run.execute(known, [quoted(self.table)]).fetchone()
        if table is None:
            raise JobError(f"postgres table {self.table} is not there")
        return f"server {server}, table {table}"

    def schema(self) -> pa.Schema:
        return self._schema

    def partitions(self) -> Positions:
        with self._connected() as run:
            if not run.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [self.slot]).fetchone():
                run.execute(f"CREATE PUBLICATION {quoted(self.slot)} FOR TABLE {quoted(self.table)}")
            if self._confirmed(run) is None and self._copy is not None:
                self._copy.make(self.url)
            elif self._confirmed(run) is None:
                run.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.slot])
            begin: dict[str, Position] = {PART: self._confirmed(run) or 0}
            if self._copy is None:
                return begin
            if not self._copy.is_there(run):
                raise JobError(
                    f"postgres table {self.table} was not copied when slot {self.slot} was made",
                    hint="leave snapshot out, or give the stream another name and slot to begin with all rows",
                )
            return {ROWS: 0, **begin}

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        with self._connected() as run:
            if partition == ROWS and self._copy is not None:
                return self._copy.end(run, int(start), limit)
            ((now,),) = run.execute("SELECT pg_current_wal_flush_lsn() - '0/0'").fetchall()
            found = self._after(run, int(start), limit or 1)
        if limit is None:
            return int(now) if len(found.ends) or now - int(start) > QUIET_BYTES else start
        if not len(found.ends):
            return max(int(start), int(now))
        return int(found.positions[limit - 1] if len(found.positions) > limit else found.ends[-1])

    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        if partition == ROWS and self._copy is not None:
            with self._connected() as run:
                texts = self._copy.texts(run, int(start), int(end), self._schema.names)
            columns = [_plain(field.type, texts.column(field.name).combine_chunks()) for field in self._schema]
            return rows_of_values(columns, self._schema, lambda n: {"table": self.table, "row": int(start) + n + 1})
        if self._seen is None or not self._seen[0] <= int(start) <= int(end) <= self._seen[1]:
            with self._connected() as run:
                found = self._peeked(run, int(start), None, int(end))
        else:
            found = self._seen[2]
        found = found.between(int(start), int(end))
        columns = [self._column(field, found) for field in self._schema]
        at = found.positions
        return rows_of_values(columns, self._schema, lambda n: {"table": self.table, "position": int(at[n])})

    def require(self, starts: Positions) -> None:
        with self._connected() as run:
            self._require_at(run, int(starts[PART]))

    def commit(self, ends: Positions) -> None:
        with self._connected() as run:
            confirmed = self._confirmed(run)
            if confirmed is not None and confirmed < int(ends[PART]):
                run.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self.slot, _lsn(int(ends[PART]))])
            if self._copy is not None and int(ends.get(ROWS, 0)) >= self._copy.end(run, 0, None) > 0:
                self._copy.empty(run)

    def lag(self, partition: str, start: Position) -> int:
        """How many rows or changes wait, of which some are counted at most."""
        with self._connected() as run:
            if partition == ROWS and self._copy is not None:
                return max(0, self._copy.end(run, 0, None) - int(start))
            return len(self._after(run, int(start), COUNTED).positions)

    def _after(self, run: Any, start: int, limit: int) -> DecodedChanges:
        """Transactions after a position, about as many as have so many changes, or more."""
        if self._seen is not None and self._seen[0] <= start < self._seen[1]:
            known = self._seen[2].between(start, self._seen[1])
            if len(known.positions) >= limit:
                return known
        return self._peeked(run, start, limit if limit == 1 else limit * AHEAD)

    def _peeked(self, run: Any, start: int, limit: int | None, until: int | None = None) -> DecodedChanges:
        """Asks for the transactions after a position, up to another or to about as many as have so many changes."""
        self._require_at(run, start)
        upto = None if until is None else _lsn(until)
        while True:
            given = run.execute(PEEK, [self.slot, upto, limit, quoted(self.slot)], binary=True).fetchall()
            found = decoded([data for (data,) in given], self._schema.names).between(start, 2**63 - 1)
            if len(found.ends) or limit is None or len(given) < limit:
                self._seen = start, max([start, until or 0, *found.ends[-1:].tolist()]), found
                return found
            limit *= 4  # the slot is still at a position before the start, and there was no more than what lies between

    def _confirmed(self, run: Any) -> int | None:
        """The position of the slot; None if there is none."""
        text = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
        found = run.execute(text, [self.slot]).fetchone()
        return None if found is None else int(found[0])

    def _require_at(self, run: Any, start: int) -> None:
        """Refuses to go on behind a slot that is further, or gone: the server does not have the log before it."""
        confirmed = self._confirmed(run)
        if not run.execute(PUBLISHED, [self.slot, quoted(self.table)]).fetchone():
            raise JobError(
                f"{self.name} do not come any more: publication {self.slot} does not have the table",
                detail="it was dropped, made again under the same name, or taken out of the publication",
                hint="give the stream another name and slot to read what changes from now on",
            )
        if confirmed is None or confirmed > start:
            raise JobError(
                f"{self.name} cannot be read from {_lsn(start)} on",
                detail=f"slot {self.slot} is {'gone' if confirmed is None else 'at ' + _lsn(confirmed)}: "
                "it was dropped or made again, or another job reads it",
                hint="give the stream another name and slot to read what changes from now on",
            )

    def _column(self, field: pa.Field, found: DecodedChanges) -> Any:
        """The values of a column in changes; refuses those that are not known."""
        name = field.name
        if name not in found.columns:
            known = {"change": found.kinds, "changed_at": pa.array(found.times).cast(field.type)}
            return known.get(name, pa.nulls(len(found.positions), pa.string()))
        if found.unchanged[name].any():
            raise JobError(
                f"{self.name} do not have {name}, which is stored apart and was not changed",
                hint=f"ALTER TABLE {quoted(self.table)} REPLICA IDENTITY FULL, then drop the slot to begin again",
            )
        return _plain(field.type, found.columns[name])

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection that is kept; one that fails is left, so that servers may restart."""
        import psycopg

        if self._connection is None:
            self._connection = psycopg.connect(
                self.url, autocommit=True, connect_timeout=PATIENCE, client_encoding="utf8"
            )
        try:
            yield self._connection
        except psycopg.Error:
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_seen": None}


def _lsn(position: int) -> str:
    """A position as PostgreSQL writes it.

    >>> _lsn(2**32 + 255)
    '1/FF'
    """
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def _plain(kind: pa.DataType, texts: pa.Array) -> pa.Array | list[bytes | None]:
    """Values of a column; what PostgreSQL writes otherwise than others is put into their words."""
    if pa.types.is_binary(kind):
        return [bytes.fromhex(value[2:]) if value is not None else None for value in texts.to_pylist()]
    if pa.types.is_boolean(kind):
        return pc.if_else(pc.equal(texts, "t"), "true", pc.if_else(pc.equal(texts, "f"), "false", texts))
    return texts
