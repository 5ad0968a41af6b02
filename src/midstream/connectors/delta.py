"""A Delta table. A commit has rows and, as the version of a transaction, the instant before which the table has all.

The table is written as it was when it was asked: if somebody else has committed the same transaction since, the commit
fails. The current relation is no form of it, because rows cannot be removed and added in one commit here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pyarrow as pa

from midstream.checkpoint.outputs import numbers_in
from midstream.connectors.environment import hidden
from midstream.connectors.fitting import STOP, fitted, missing_columns, put_in
from midstream.connectors.forms import Form, require_distinct_names
from midstream.connectors.registry import ON_BAD, Option, form_option
from midstream.connectors.sink import Delivery

RULE = "delta.constraints."
"""What the names of a table's constraints begin with, among its properties."""


class Delta:
    """A Delta table, on this machine or in an object store; it is made if it is not there."""

    options: ClassVar[Mapping[str, Option]] = {
        "path": Option(str, "The folder of the table, or its address in an object store.", needed=True, place="folder"),
        "storage": Option(dict, "Settings of the object store, such as its credentials."),
        "form": form_option("rows", "changelog"),
        "on_bad": ON_BAD,
    }

    refusals = (ValueError,)

    def __init__(
        self, path: str, form: Form = "rows", storage: Mapping[str, str] | None = None, on_bad: str = STOP
    ) -> None:
        self.path, self.form, self.on_bad = path, form, on_bad
        self._opened: pa.Schema | None = None
        self._storage = dict(storage or {})
        self._table: Any = None

    @property
    def place(self) -> str:
        """Where it writes."""
        return self.path

    @property
    def name(self) -> str:
        """What the record of deliveries calls the sink."""
        return hidden(f"delta {self.path}")

    def require(self, schema: pa.Schema) -> None:
        """Refuses columns that a table cannot tell apart."""
        require_distinct_names(schema, self.name)

    def open(self, schema: pa.Schema) -> None:
        """Makes the table where it is missing; adds columns that it lacks."""
        if schema == self._opened:
            return
        import deltalake

        self.require(schema)
        self._table = deltalake.DeltaTable.create(self.path, schema, mode="ignore", storage_options=self._storage)
        there = [field.name for field in self._table.schema().fields]
        if missing := missing_columns(schema, there, self.name):
            self._table.alter.add_columns(deltalake.Schema.from_arrow(pa.schema(missing)).fields)
        self._opened = schema

    def last(self, delivery: Delivery) -> int | None:
        """Before which instant the table has had the query's results; None if it has none."""
        self._table.update_incremental()
        version = self._table.transaction_version(f"midstream/{delivery.whose}")
        return None if version is None else int(version)

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        """Adds rows and the instant, in one commit."""
        import deltalake

        columns, good = pa.schema(self._table.schema().to_arrow()), list[pa.Table]()
        with self._trial() as trial:
            put_in(self, delivery, table, lambda rows: good.append(trial(fitted(rows, columns))))
        said = {"midstream.query": delivery.query, "midstream.batch": str(delivery.batch_id)}
        transaction = deltalake.Transaction(f"midstream/{delivery.whose}", delivery.until)
        known = deltalake.CommitProperties(custom_metadata=said, app_transactions=[transaction])
        packed = deltalake.ColumnProperties(dictionary_enabled=False, encoding="DELTA_BINARY_PACKED")
        how = deltalake.WriterProperties(
            compression="SNAPPY", column_properties=dict.fromkeys(numbers_in(columns), packed)
        )
        deltalake.write_deltalake(
            self._table,
            pa.concat_tables([columns.empty_table(), *good]),
            mode="append",
            commit_properties=known,
            writer_properties=how,
        )

    @contextmanager
    def _trial(self) -> Iterator[Callable[[pa.Table], pa.Table]]:
        """Gives rows that the table takes, and fails for others: it has them written to an empty table like it."""
        import deltalake
        from deltalake.exceptions import DeltaError

        known = self._table.metadata().configuration
        rules = {name.removeprefix(RULE): text for name, text in known.items() if name.startswith(RULE)}
        if self.on_bad == STOP or not rules:
            yield lambda rows: rows
            return
        with TemporaryDirectory(prefix="midstream-") as folder:
            table = deltalake.DeltaTable.create(folder, self._table.schema())
            for name, text in rules.items():
                table.alter.add_constraint({name: text})

            def taken(rows: pa.Table) -> pa.Table:
                try:
                    deltalake.write_deltalake(table, rows, mode="append")
                except DeltaError as error:
                    raise ValueError(f"{error}") from None
                return rows

            yield taken
