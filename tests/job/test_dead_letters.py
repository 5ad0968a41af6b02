"""Rows that cannot be used are buried, whatever they hold, and never fail their batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.inputs.test_json_values import ODD
from tests.job.chain import Chain

from midstream.api import ask
from midstream.checkpoint.lists import dead_letters_of


def dead_rows(chain: Chain) -> list[dict[str, Any]]:
    """What the dead-letter table has by now."""
    files = chain.driver.files
    return [
        row
        for named in dead_letters_of(files, chain.manifest)
        for row in pq.read_table(pa.BufferReader(files.read(named.path))).to_pylist()
    ]


@pytest.mark.parametrize("name", ODD)
def test_rows_are_put_in_order_whatever_they_hold(name: str, tmp_path: Path) -> None:
    value = ODD[name]
    batch = pa.RecordBatch.from_arrays(
        [pa.concat_arrays([value, pa.nulls(1, value.type), value]), pa.array([5, 5, 5])], names=["x", "ts"]
    )
    question = ask("SELECT x FROM A [NOW]", {"A": batch.slice(0, 0)})
    chain = Chain(question.plan, question.catalog, tmp_path)
    chain.batch({"A": batch})
    chain.batch({}, end=True)
    assert chain.results()["x"].combine_chunks().equals(pa.concat_arrays([pa.nulls(1, value.type), value, value]))


@pytest.mark.parametrize("name", ODD)
def test_a_late_row_is_buried_whatever_it_holds(name: str, tmp_path: Path) -> None:
    value = ODD[name]

    def rows(column: pa.Array, ts: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([column, pa.array([ts])], names=["x", "ts"])

    question = ask("SELECT x FROM A [NOW]", {"A": pa.Table.from_batches([rows(pa.nulls(1, value.type), 0)])})
    chain = Chain(question.plan, question.catalog, tmp_path)
    chain.batch({"A": rows(pa.nulls(1, value.type), 1000)})
    chain.batch({"A": rows(value, 5)})
    (dead,) = dead_rows(chain)
    assert dead["reason"] == "late" and json.loads(dead["row"])["x"]["not_json"] == str(value.type)
