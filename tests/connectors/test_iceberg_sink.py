"""An Iceberg table has each result once, also while clients are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from midstream.cluster.sinks import Delivery, connect
from midstream.connectors.sink import deliver
from midstream.errors import JobError
from midstream.testing import check_sink

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed: pip install 'midstream[iceberg]'")
pytest.importorskip("sqlalchemy", reason="catalogs in files need sqlalchemy: pip install 'midstream[iceberg]'")

ROWS = pa.table({"k": [1, 2], "valid_from": [1, 4], "valid_to": [3, None]})


def catalog_in(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def read(folder: Path, table_name: str) -> list[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog

    table = load_catalog("default", **catalog_in(folder)).load_table(table_name)
    rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return rows


def delivery(**changed: Any) -> Delivery:
    known: dict[str, Any] = {"query": "q", "identity": "i", "checkpoint": "c", "history": "h", "batch_id": 3}
    return Delivery(**{**known, "since": 0, "until": 10, "schema": ROWS.schema, **changed})


@pytest.mark.slow
@pytest.mark.parametrize("form", ["rows", "changelog"])
def test_an_iceberg_table_has_each_result_once(tmp_path, form):
    def made(place: str) -> Any:
        return connect("iceberg", catalog=catalog_in(tmp_path), table=f"law.{place}", form=form)

    check_sink(made, lambda place: read(tmp_path, f"law.{place}"), kills=5)


def test_a_delivery_that_comes_twice_or_in_a_race_is_written_once(tmp_path):
    sinks = [connect("iceberg", catalog=catalog_in(tmp_path), table="sales.paid") for _ in range(3)]
    for sink in sinks:
        sink.open(ROWS.schema)
        sink.last(delivery())
    sinks[0].write(delivery(), ROWS)
    with pytest.raises(Exception, match="Requirement failed"):
        sinks[1].write(delivery(), ROWS)
    deliver(sinks[2], ROWS, delivery())
    assert sorted(row["k"] for row in read(tmp_path, "sales.paid")) == [1, 2]
    other = connect("iceberg", catalog=catalog_in(tmp_path), table="sales.paid")
    with pytest.raises(JobError, match="has no column ts, which all results have"):
        deliver(other, pa.table({"k": [1], "ts": [1]}), delivery(since=10, until=20))
    with pytest.raises(JobError, match="has no namespace"):
        connect("iceberg", catalog={}, table="paid")
