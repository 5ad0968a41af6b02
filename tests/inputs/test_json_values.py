"""Any row can be told as JSON, so that burying one never fails."""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.inputs.json_values import json_texts

NO_TEXT = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
)
ODD = {
    "a year beyond 9999": pa.array([1_700_000_000_000_000_000], pa.timestamp("us")),
    "a zoned year beyond 9999": pa.array([1_700_000_000_000_000_000], pa.timestamp("us", "Europe/Berlin")),
    "a date before the year 1": pa.array([-2_500_000], pa.int32()).view(pa.date32()),
    "text that is not UTF-8": NO_TEXT,
    "a time within a list": pa.ListArray.from_arrays([0, 1], pa.array([2**62], pa.timestamp("us"))),
    "text within a struct": pa.StructArray.from_arrays([NO_TEXT], ["s"]),
}


@pytest.mark.parametrize("name", ODD)
def test_a_value_that_python_cannot_hold_is_told_by_its_type_and_what_is_stored(name):
    batch = pa.RecordBatch.from_arrays([pa.array([7]), ODD[name]], names=["k", "x"])
    ((told,),) = [[json.loads(text) for text in json_texts(batch)]]
    assert told["k"] == 7 and told["x"]["not_json"] == str(ODD[name].type) and len(told["x"]) == 2


def test_what_is_stored_reads_back():
    (text,) = json_texts(pa.RecordBatch.from_arrays([NO_TEXT], names=["x"]))
    assert base64.b64decode(json.loads(text)["x"]["base64"]) == b"\xff\xfe"
    (text,) = json_texts(pa.RecordBatch.from_arrays([ODD["a time within a list"]], names=["x"]))
    stored = pa.ipc.open_stream(base64.b64decode(json.loads(text)["x"]["arrow_base64"])).read_all()
    assert stored["value"].combine_chunks().flatten().view(pa.int64()).to_pylist() == [2**62]


@given(st.binary(max_size=12), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_every_row_becomes_a_text(content, number, null):
    offsets = pa.py_buffer(np.array([0, len(content)], np.int32))
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(content)])
    times = pa.array([None if null else number], pa.int64())
    columns = [text, times, *(times.view(kind) for kind in (pa.timestamp("us"), pa.duration("us"), pa.time64("us")))]
    (told,) = json_texts(pa.RecordBatch.from_arrays(columns, names=list("abcde")))
    assert list(json.loads(told)) == list("abcde")
    pa.array([told])
