"""The rows of an Iceberg table: each once, and never those of a table that has lost some."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from midstream.cluster.sources import Source, connect
from midstream.errors import JobError
from midstream.testing import check_source

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed: pip install 'midstream[iceberg]'")
pytest.importorskip("sqlalchemy", reason="catalogs in files need sqlalchemy: pip install 'midstream[iceberg]'")

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    made = load_catalog("default", **settings(tmp_path))
    made.create_namespace("sales")
    return made


def settings(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def source_in(folder: Path) -> Source:
    return connect("iceberg", catalog=settings(folder), table="sales.orders")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "name": [f"n{number}" for number in ids]}, schema=SCHEMA)


def test_a_table_that_grows_holds_the_law_of_sources(tmp_path, catalog):
    catalog.create_table("sales.orders", SCHEMA)
    ids = count()

    def write(number: int) -> list[dict[str, Any]]:
        new = [next(ids) for _ in range(number)]
        for start in range(0, number, 7):  # snapshots are read as a whole
            catalog.load_table("sales.orders").append(rows(*new[start : start + 7]))
        return [{"id": n, "name": f"n{n}"} for n in new]

    check_source(lambda: source_in(tmp_path), write)


def test_a_table_that_has_lost_rows_is_refused(tmp_path, catalog):
    table, source = catalog.create_table("sales.orders", SCHEMA), source_in(tmp_path)
    table.append(rows(1, 2))
    first = table.current_snapshot()
    ((part, start),) = source.partitions().items()
    read = source.end(part, start)
    assert source.lag(part, start) == 2
    assert source.read(part, start, read).column("changed_at").to_pylist()[0].timestamp() * 1000 == first.timestamp_ms
    table.append(rows(3))
    later = source.end(part, read)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    with pytest.raises(JobError, match="does not have snapshot number 2, the last to be read"):
        source.require({part: later})
    table.delete("id = 1")
    with pytest.raises(JobError, match="has lost rows that were read, or may be\n  detail: snapshot .* overwrite"):
        source.end(part, read)
    catalog.drop_table("sales.orders")
    with pytest.raises(JobError, match="iceberg table sales.orders is not there"):
        source.partitions()
    catalog.create_table("sales.orders", SCHEMA)
    with pytest.raises(JobError, match="is another table than the one that was read"):
        source.require({part: read})
