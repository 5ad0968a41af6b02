"""A folder in partitions on Spark: tasks write its files, and the driver has only their names."""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds

from midstream.cluster.sinks import Delivery, connect


def test_tasks_write_the_files_of_a_folder_in_partitions_once(spark, tmp_path, monkeypatch):
    def in_the_driver(*_: Any) -> NoReturn:
        raise AssertionError("the driver writes rows")

    table = pa.table({"k": range(40), "place": [f"p{k % 3}" for k in range(40)], "valid_from": range(40)})
    whose = Delivery("q", "i", "c", "h", 3, 0, 40, table.schema)
    monkeypatch.setattr("midstream.connectors.hive.write_parts", in_the_driver)
    for _ in range(2):
        connect("hive", path=str(tmp_path), by=["place"]).deliver(spark.createDataFrame(table).repartition(4), whose)
    found = ds.dataset(tmp_path, format="parquet", partitioning="hive").to_table().to_pylist()
    assert sorted((row["k"], row["place"]) for row in found) == [(k, f"p{k % 3}") for k in range(40)]
    assert len(list(tmp_path.rglob("*.parquet"))) == 3
