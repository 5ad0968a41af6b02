"""Rows that were told as JSON read back as what they were."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.inputs.test_json_values import ODD

from midstream.errors import InputError
from midstream.inputs.json_rows import rows_of_texts
from midstream.inputs.json_values import json_texts

VALUES = {
    "integers": pa.array([1, None, -(2**63)]),
    "small integers": pa.array([1, None], pa.int16()),
    "floats": pa.array([0.1, float("inf"), None]),
    "truths": pa.array([True, None]),
    "texts": pa.array(["", "NULL", None, 'a"b\n']),
    "bytes": pa.array([b"\xff", None]),
    "decimals": pa.array([Decimal("1.20"), None], pa.decimal128(9, 2)),
    "times": pa.array([dt.datetime(2024, 5, 1, 12, 0, 0, 1), None], pa.timestamp("us")),
    "zoned times": pa.array([dt.datetime(2024, 5, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    "dates": pa.array([dt.date(2024, 5, 1), None]),
    "lists": pa.array([[1, 2], None]),
    **ODD,
}


@pytest.mark.parametrize("name", VALUES)
def test_what_was_told_reads_back(name: str) -> None:
    batch = pa.RecordBatch.from_arrays([VALUES[name]], names=["x"])
    found = rows_of_texts(json_texts(batch), batch.schema)
    assert found.column("x").combine_chunks().equals(VALUES[name])


@pytest.mark.parametrize("text", ['{"x": "word"}', '{"y": 1}', '{"x": 1.5}'])
def test_what_would_not_say_the_same_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="cannot be read back"):
        rows_of_texts([text], pa.schema([("x", pa.int64())]))
