"""Tables of databases as sinks: results, and the record of what the table has had, change in one transaction.

The record is the table `midstream_deliveries` of the same database: for each target, history and query, the instant
before which the target has had all results. A transaction raises it only if it is not beyond the start of what is
written, so of two that write the same, one is refused.

The current relation is kept as the rows that are valid at the last instant for which all results are known: rows that
have ended are removed, new ones added, or, with a key, put in the place of the old ones. It belongs to one query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.fitting import STOP, missing_columns, put_in
from midstream.connectors.forms import TO, Form, instant_of, require_distinct_names
from midstream.connectors.registry import TABLE, Option
from midstream.connectors.sink import Delivery, UntakenResults, raced, require_named
from midstream.errors import JobError

RECORD = "midstream_deliveries"
INSTEAD = "midstream run JOB.toml --replace (session.query(..., replace=True)) puts another in its place"
"""What helps where a table cannot have the results that a query has given."""
WHOSE = "target = {0} AND history = {0} AND query = {0} AND identity = {0}"
OTHERS = "target = {0} AND NOT (history = {0} AND query = {0})"


def quoted(name: str) -> str:
    """A name as SQL has it; parts of a qualified one stand for themselves.

    >>> quoted("sales.paid")
    '"sales"."paid"'
    """
    return ".".join(map(column, name.split(".")))


def column(name: str) -> str:
    """The name of a column as SQL has it, which has no parts.

    >>> column("a.b")
    '"a.b"'
    """
    return '"' + name.replace('"', '""') + '"'


class Database(ABC):
    """A table of a database. What differs between databases are their connections, types, and how rows go in."""

    kind: ClassVar[str]
    mark: ClassVar[str] = "?"
    """What stands for a value in a statement."""
    refusals: tuple[type[Exception], ...] = ()
    """What says that the database does not take a row, because of a type or a constraint."""

    def __init__(self, table: str, form: Form = "rows", key: Sequence[str] = (), on_bad: str = "stop") -> None:
        if key and form != "current":
            raise JobError(f"a key belongs to the form 'current', and the table {table} has {form!r}")
        self.table, self.form, self.key, self.on_bad = table, form, list(key), on_bad
        self._opened: pa.Schema | None = None
        self._had: dict[tuple[str, ...], int] = {}
        """What the table has had, once it was asked: what others write later, a transaction notices."""

    @property
    def name(self) -> str:
        """What the record of deliveries calls the sink."""
        return f"{self.kind} table {self.table}"

    @abstractmethod
    def transaction(self) -> Any:
        """A context whose value runs statements by `execute`; it commits at its end, and undoes all on an error."""

    @abstractmethod
    def types(self, run: Any, schema: pa.Schema) -> list[str]:
        """The types of columns for values of Arrow types."""

    @abstractmethod
    def insert(self, run: Any, table: pa.Table, into: str, instead: str) -> None:
        """Adds rows to a table; `instead` is what follows an INSERT to replace rows by their key, or empty."""

    def value(self, scalar: pa.Scalar) -> Any:
        """A value as a statement is given it."""
        return scalar.as_py()

    def require(self, schema: pa.Schema) -> None:
        """Refuses columns that a table cannot tell apart, or that lack one of the key."""
        require_distinct_names(schema, f"{self.kind} table {self.table}")
        require_named(self, "the key", self.key, schema)

    def open(self, schema: pa.Schema) -> None:
        """Makes the table and the record where they are missing; adds columns that the table lacks."""
        if schema == self._opened:
            return
        self.require(schema)
        with self.transaction() as run:
            run.execute(
                f"CREATE TABLE IF NOT EXISTS {RECORD} (target TEXT NOT NULL, history TEXT NOT NULL, "
                "query TEXT NOT NULL, identity TEXT NOT NULL, until BIGINT NOT NULL, batch BIGINT NOT NULL, "
                "PRIMARY KEY (target, history, query, identity))"
            )
            columns = self._columns(run, schema)
            keys = [f"PRIMARY KEY ({_names(self.key)})"] if self.key else []
            run.execute(f"CREATE TABLE IF NOT EXISTS {quoted(self.table)} ({', '.join(columns + keys)})")
            there = [one[0] for one in run.execute(f"SELECT * FROM {quoted(self.table)} LIMIT 0").description]
            missing = missing_columns(schema, there, self.name)
            for added in self._columns(run, pa.schema(missing)) if missing else ():
                run.execute(f"ALTER TABLE {quoted(self.table)} ADD COLUMN {added}")
        self._opened = schema

    def _columns(self, run: Any, schema: pa.Schema) -> list[str]:
        return [f"{column(name)} {kind}" for name, kind in zip(schema.names, self.types(run, schema), strict=True)]

    def last(self, delivery: Delivery) -> int | None:
        """Before which instant the table has had the query's results; None if it has none."""
        if (known := self._had.get(tuple(self._whose(delivery)))) is not None:
            return known
        with self.transaction() as run:
            found = run.execute(
                self._said(f"SELECT until FROM {RECORD} WHERE {WHOSE}"), self._whose(delivery)
            ).fetchone()
        return None if found is None else int(found[0])

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        """Adds rows and raises the record, in one transaction."""
        self._had.clear()
        with self.transaction() as run:
            if self.form == "current":
                self._take_over(run, delivery)
            self._raise(run, delivery)
            instead = self._instead(table) if self.key else ""
            if table.num_rows:
                put_in(self, delivery, table, lambda rows: self.put(run, rows, instead))
            if self.form == "current":
                now = self.value(instant_of(table.schema.field(TO).type, delivery.now))
                run.execute(self._said(f"DELETE FROM {quoted(self.table)} WHERE {quoted(TO)} <= {{0}}"), [now])
        self._had[tuple(self._whose(delivery))] = delivery.until

    def put(self, run: Any, table: pa.Table, instead: str) -> None:
        """Adds all of some rows or, if one is refused, none."""
        if self.on_bad == STOP:
            self.insert(run, table, quoted(self.table), instead)
            return
        run.execute("SAVEPOINT midstream")
        try:
            self.insert(run, table, quoted(self.table), instead)
        except self.refusals:
            run.execute("ROLLBACK TO SAVEPOINT midstream")
            raise
        run.execute("RELEASE SAVEPOINT midstream")

    def _raise(self, run: Any, delivery: Delivery) -> None:
        """Raises the record to the end of a delivery; refuses if it is beyond its start."""
        marks = ", ".join("{0}" for _ in range(6))
        text = (
            f"INSERT INTO {RECORD} (target, history, query, identity, until, batch) VALUES ({marks}) "
            "ON CONFLICT (target, history, query, identity) DO UPDATE SET until = excluded.until, "
            f"batch = excluded.batch WHERE {RECORD}.until <= {{0}} RETURNING until"
        )
        values = [*self._whose(delivery), delivery.until, delivery.batch_id, delivery.since]
        if run.execute(self._said(text), values).fetchone() is None:
            raise raced(self, delivery)

    def _take_over(self, run: Any, delivery: Delivery) -> None:
        """Empties the table if it has the relation of a query that this one has replaced; refuses any other's."""
        whose = self._whose(delivery)
        found = run.execute(self._said(f"SELECT query FROM {RECORD} WHERE {OTHERS}"), whose[:3]).fetchone()
        if found is not None:
            raise JobError(
                f"{self.name} has the current relation of query {found[0]}, of this job or another",
                hint="give each query a table of its own",
            )
        replaced = "target = {0} AND identity <> {0}"
        if run.execute(self._said(f"SELECT 1 FROM {RECORD} WHERE {replaced}"), [whose[0], whose[3]]).fetchone():
            run.execute(f"DELETE FROM {quoted(self.table)}")
            run.execute(self._said(f"DELETE FROM {RECORD} WHERE {replaced}"), [whose[0], whose[3]])

    def _instead(self, table: pa.Table) -> str:
        """What follows an INSERT to replace rows by their key; refuses rows that have one in common."""
        empty = next((name for name in self.key if table.column(name).null_count), None)
        if empty is not None:
            raise UntakenResults(
                f"{self.name} cannot have a row whose key {empty} is null",
                hint=f"leave such rows out (WHERE {empty} IS NOT NULL), or name a value for them (COALESCE): {INSTEAD}",
            )
        counts = table.group_by(self.key).aggregate([([], "count_all")])
        if counts.num_rows < table.num_rows:
            twice = next(row for row in counts.to_pylist() if row["count_all"] > 1)
            shown = ", ".join(f"{name} = {twice[name]!r}" for name in self.key)
            raise UntakenResults(
                f"{self.name} cannot have two rows of the key {shown}",
                detail="both are valid at the same instant",
                hint=f"give the query a text with one row of each key: {INSTEAD}; or write to another table, by a key "
                "of all columns that tell rows apart, such as those of GROUP BY",
            )
        rest = [column(name) for name in table.column_names if name not in self.key]
        return f"ON CONFLICT ({_names(self.key)}) DO UPDATE SET " + ", ".join(f"{n} = excluded.{n}" for n in rest)

    def _whose(self, delivery: Delivery) -> list[str]:
        return [self.table, delivery.history, delivery.query, delivery.identity]

    def _said(self, statement: str) -> str:
        escaped = statement.replace("%", "%%") if self.mark == "%s" else statement
        return escaped.replace("{0}", self.mark)


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(column, names))


class FileDatabase(Database):
    """A table of a database that is a file, which is made if it is not there."""

    options: ClassVar[Mapping[str, Option]] = {"path": Option(str, "The file.", needed=True, place="file"), **TABLE}

    def __init__(
        self, path: str, table: str, form: Form = "rows", key: Sequence[str] = (), on_bad: str = "stop"
    ) -> None:
        super().__init__(table, form, key, on_bad)
        self.path = path


@contextmanager
def committed(connection: Any, begin: str = "BEGIN") -> Iterator[Any]:
    """A transaction of a connection that runs statements itself."""
    connection.execute(begin)
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
