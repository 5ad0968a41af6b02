"""An Iceberg table. A commit has rows and, as a property of the table, the instant before which it has all results.

The table is written as it was when it was asked: if somebody else has committed since, the commit fails. For that its
client must not try again by itself, which would write the same rows after the other's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.checkpoint.outputs import parquet_bytes
from midstream.connectors.environment import hidden
from midstream.connectors.fitting import STOP, fitted, missing_columns, put_in
from midstream.connectors.forms import Form, require_distinct_names
from midstream.connectors.registry import ON_BAD, Option, form_option
from midstream.connectors.sink import Delivery
from midstream.errors import JobError

RETRIES = "commit.retry.num-retries"


class Iceberg:
    """A table of an Iceberg catalog; it is made if it is not there."""

    options: ClassVar[Mapping[str, Option]] = {
        "catalog": Option(dict, "Settings of the catalog, such as name, type, uri and warehouse.", needed=True),
        "table": Option(str, "The table that results are written to, with its namespace: sales.paid.", needed=True),
        "form": form_option("rows", "changelog"),
        "on_bad": ON_BAD,
    }
    refusals = (ValueError,)

    def __init__(self, catalog: Mapping[str, str], table: str, form: Form = "rows", on_bad: str = STOP) -> None:
        if "." not in table:
            raise JobError(f"the table {table} of the sink 'iceberg' has no namespace", hint="write sales.paid")
        self.table, self.form, self.on_bad = table, form, on_bad
        self._opened: pa.Schema | None = None
        self.name = hidden(f"iceberg table {table}")
        self._settings = dict(catalog)
        self._catalog: Any = None
        self._table: Any = None

    def require(self, schema: pa.Schema) -> None:
        """Refuses columns that a table cannot tell apart."""
        require_distinct_names(schema, self.name)

    def open(self, schema: pa.Schema) -> None:
        """Makes the table where it is missing; adds columns that it lacks."""
        if schema == self._opened:
            return
        from pyiceberg.catalog import load_catalog

        self.require(schema)
        catalog = load_catalog(**{"name": "default", **self._settings})
        catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
        table = catalog.create_table_if_not_exists(self.table, schema, properties={RETRIES: "0"})
        there = [field.name for field in table.schema().fields]
        if missing := missing_columns(schema, there, self.name):
            with table.update_schema() as update:
                update.union_by_name(pa.schema(missing))
        if table.properties.get(RETRIES) != "0":
            table.transaction().set_properties({RETRIES: "0"}).commit_transaction()
        self._catalog, self._opened = catalog, schema

    def last(self, delivery: Delivery) -> int | None:
        """Before which instant the table has had the query's results; None if it has none."""
        self._table = self._catalog.load_table(self.table)
        until = self._table.properties.get(f"midstream.{delivery.key}")
        return None if until is None else int(until)

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        """Adds rows and the instant, in one commit."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        columns, good = schema_to_pyarrow(self._table.schema()), list[pa.Table]()
        put_in(self, delivery, table, lambda rows: good.append(fitted(rows, columns)))
        rows = pa.concat_tables([columns.empty_table(), *good])
        said = {"midstream.query": delivery.query, "midstream.batch": str(delivery.batch_id)}
        with self._table.transaction() as transaction:
            if self._table.spec().is_unpartitioned():
                with transaction.update_snapshot(said).fast_append() as files:
                    files.append_data_file(_data_file(self._table, rows))
            else:
                transaction.append(rows, snapshot_properties=said)
            transaction.set_properties({f"midstream.{delivery.key}": str(delivery.until)})


def _data_file(table: Any, rows: pa.Table) -> Any:
    """Writes a file of the table as results are written elsewhere, which takes a third of its client's time."""
    from pyiceberg.io import pyarrow as known
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema, path = table.schema(), table.location_provider().new_data_location(f"{uuid4()}.parquet")
    content = parquet_bytes(rows)
    with table.io.new_output(path).create() as file:
        file.write(content)
    statistics = known.data_file_statistics_from_parquet_metadata(
        pq.read_metadata(pa.BufferReader(content)),
        known.compute_statistics_plan(schema, table.properties),
        known.parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=content.size,
        spec_id=table.spec().spec_id,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
