"""Whatever users bring becomes the same plain table, or an error that names stream, column and row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from midstream.errors import InputError
from midstream.inputs import table_of, tables_of

ROWS = [{"ts": 1, "k": "a", "v": 1.5}, {"ts": 2, "k": None, "v": 2.0}]
TABLE = pa.table({"ts": [1, 2], "k": ["a", None], "v": [1.5, 2.0]})


@pytest.mark.parametrize(
    "given",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_batches(),
        TABLE.to_reader(),
        ROWS,
        TABLE.to_pydict(),
        {"ts": pa.array([1, 2]), "k": pa.chunked_array([["a"], [None]]), "v": [1.5, 2.0]},
        TABLE.to_pandas(),
        TABLE.to_pandas().set_index("ts"),
        pl.DataFrame(ROWS),
        pl.LazyFrame(ROWS),
    ],
    ids=lambda value: type(value).__module__.split(".")[0] + "." + type(value).__name__,
)
def test_every_kind_of_table_becomes_the_same_arrow_table(given):
    assert table_of("A", given).equals(TABLE)


def test_a_key_that_the_first_row_lacks_is_a_column_too():
    assert table_of("A", [{"ts": 1}, {"ts": 2, "k": "b"}]).to_pydict() == {"ts": [1, 2], "k": [None, "b"]}


@pytest.mark.parametrize(
    ("encoded", "plain"),
    [
        (pa.array(["x", None, "x"]).dictionary_encode(), pa.string()),
        (pa.array(["x", None], pa.large_string()), pa.string()),
        (pa.array(["x", None], pa.string_view()), pa.string()),
        (pa.array([b"x", None], pa.large_binary()), pa.binary()),
        (pa.array([b"x", None], pa.binary_view()), pa.binary()),
        (pa.array([["x"], None], pa.large_list(pa.string_view())), pa.list_(pa.string())),
        (pa.array([{"s": "x"}], pa.struct([("s", pa.large_string())])), pa.struct([("s", pa.string())])),
        (pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.int8())), pa.map_(pa.string(), pa.int8())),
        (pa.compute.run_end_encode(pa.array([1, 1, 2])), pa.int64()),
        (pa.array([dt.datetime(2024, 5, 1)], pa.timestamp("ns", "Asia/Tokyo")), pa.timestamp("us", "Asia/Tokyo")),
        (pa.array([dt.datetime(2024, 5, 1)], pa.timestamp("s")), pa.timestamp("us")),
        (pa.array([dt.timedelta(seconds=1)], pa.duration("ms")), pa.duration("us")),
        (pa.array([1.5], pa.float16()), pa.float32()),
        (pa.array([Decimal("1.50")], pa.decimal64(5, 2)), pa.decimal128(5, 2)),
        (pa.array([b"0" * 16], pa.uuid()), pa.binary(16)),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)
def test_encodings_become_plain_types_and_values_stay(encoded, plain):
    column = table_of("A", pa.table({"c": encoded})).column("c")
    assert column.type == plain
    expected = encoded.storage if isinstance(encoded, pa.ExtensionArray) else encoded
    assert [str(v) for v in column.to_pylist()] == [str(v) for v in expected.to_pylist()]


def test_polars_categories_and_enums_become_strings():
    frame = pl.DataFrame({"c": ["p", None], "e": ["p", "q"]}, schema={"c": pl.Categorical, "e": pl.Enum(["p", "q"])})
    assert table_of("A", frame).schema == pa.schema({"c": pa.string(), "e": pa.string()})


def test_pandas_missing_values_are_null_and_nullable_integers_stay_integers():
    frame = pd.DataFrame({"ts": pd.array([1, None], dtype="Int64"), "v": [float("nan"), 1.0]})
    table = table_of("A", frame)
    assert table.schema.types == [pa.int64(), pa.float64()]
    assert table.to_pydict() == {"ts": [1, None], "v": [None, 1.0]}


def test_nanoseconds_that_a_microsecond_cannot_hold_are_refused():
    table = pa.table({"ts": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(InputError, match=r"column 'ts' of stream A is timestamp\[ns\] and does not fit"):
        table_of("A", table)


@pytest.mark.parametrize("make", [pd.DataFrame, list], ids=["pandas", "rows"])
def test_mixed_types_are_refused_with_the_rows_that_differ(make):
    with pytest.raises(InputError) as caught:
        table_of("A", make([{"ts": 1, "k": "a"}, {"ts": 2, "k": None}, {"ts": 3, "k": 7}]))
    assert caught.value.message == "column 'k' of stream A mixes types"
    assert caught.value.detail == "row 0 is str, row 2 is int"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (42, "stream A is a int, which is not a table"),
        (None, "stream A is a NoneType, which is not a table"),
        (b"rows", "stream A is a bytes, which is not a table"),
        ([(1, 2)], "row 0 of stream A is a tuple, not a dict of columns"),
        ([{"ts": 1}, None], "row 1 of stream A is a NoneType, not a dict of columns"),
        ({"ts": [1], "k": [1, 2]}, "the columns of stream A differ in length"),
        ({"ts": 1}, "column 'ts' of stream A is a int, not a list of values"),
        ({"ts": "abc"}, "column 'ts' of stream A is a str, not a list of values"),
        ({1: [1]}, "stream A has a column whose name is 1, not text"),
        ({"ts": [2**70]}, "column 'ts' of stream A has values that no column can hold"),
        ({"ts": [object()]}, "column 'ts' of stream A has values that no column can hold"),
        (pa.table([[1], [2]], names=["k", "k"]), "stream A has two columns of the same name: k"),
        (pd.DataFrame([[1, 2]], columns=["k", "k"]), "stream A has two columns of the same name: k"),
        (
            [pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})],
            "the batches of stream A differ in their columns",
        ),
    ],
)
def test_what_is_not_a_table_is_refused(given, message):
    with pytest.raises(InputError) as caught:
        table_of("A", given)
    assert caught.value.message == message


def test_rows_and_batches_may_come_one_by_one():
    assert table_of("A", (row for row in ROWS)) == table_of("A", ROWS)
    assert table_of("A", iter(TABLE.to_batches(max_chunksize=1))) == table_of("A", TABLE)


def test_streams_come_by_name():
    assert list(tables_of({"A": ROWS, "B": TABLE})) == ["A", "B"]
    with pytest.raises(InputError, match="streams are given by name, not as a list"):
        tables_of([TABLE])  # type: ignore[arg-type]
