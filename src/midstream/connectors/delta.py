"""A Delta table. A commit has rows and, as the version of a transaction, the instant before which the table has all.

The table is written as it was when it was asked: if somebody else has committed the same transaction since, the commit
fails. The current relation is no form of it, because rows cannot be removed and added in one commit here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from midstream.checkpoint.outputs import numbers_in
from midstream.connectors.environment import hidden
from midstream.connectors.forms import Form, require_distinct_names
from midstream.connectors.registry import Option, form_option
from midstream.connectors.sink import Delivery
from midstream.errors import JobError


class Delta:
    """A Delta table, on this machine or in an object store; it is made if it is not there."""

    options: ClassVar[Mapping[str, Option]] = {
        "path": Option(str, "The folder of the table, or its address in an object store.", needed=True, place="folder"),
        "storage": Option(dict, "Settings of the object store, such as its credentials."),
        "form": form_option("rows", "changelog"),
    }

    def __init__(self, path: str, form: Form = "rows", storage: Mapping[str, str] | None = None) -> None:
        self.path, self.form = path, form
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

    def open(self, schema: pa.Schema) -> None:
        """Makes the table where it is missing; refuses one with other columns."""
        if self._table is not None:
            return
        import deltalake

        require_distinct_names(schema, self.name)
        self._table = deltalake.DeltaTable.create(self.path, schema, mode="ignore", storage_options=self._storage)
        there = [field.name for field in self._table.schema().fields]
        if there != schema.names:
            raise JobError(
                f"{self.name} has other columns",
                detail=f"the results have {', '.join(schema.names)}, the table {', '.join(there)}",
                hint="write to another table",
            )

    def last(self, delivery: Delivery) -> int | None:
        """Before which instant the table has had the query's results; None if it has none."""
        self._table.update_incremental()
        version = self._table.transaction_version(_application(delivery))
        return None if version is None else int(version)

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        """Adds rows and the instant, in one commit."""
        import deltalake

        said = {"midstream.query": delivery.query, "midstream.batch": str(delivery.batch_id)}
        transaction = deltalake.Transaction(_application(delivery), delivery.until)
        known = deltalake.CommitProperties(custom_metadata=said, app_transactions=[transaction])
        packed = deltalake.ColumnProperties(dictionary_enabled=False, encoding="DELTA_BINARY_PACKED")
        how = deltalake.WriterProperties(
            compression="SNAPPY", column_properties=dict.fromkeys(numbers_in(table.schema), packed)
        )
        deltalake.write_deltalake(self._table, table, mode="append", commit_properties=known, writer_properties=how)


def _application(delivery: Delivery) -> str:
    return f"midstream/{delivery.history}/{delivery.query}/{delivery.identity}"
