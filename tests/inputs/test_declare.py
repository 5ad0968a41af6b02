"""Columns and a time column make a declaration; what cannot be one says why."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from midstream.algebra.declarations import ScalarFunction
from midstream.errors import InputError, QueryError
from midstream.inputs import catalog_of, declare

INTEGER = pa.schema({"ts": pa.int64(), "k": pa.string()})
MOMENT = pa.schema({"at": pa.timestamp("ns", "UTC"), "k": pa.large_string()})


def test_a_declaration_has_plain_columns():
    assert declare("B", MOMENT, "at").visible == pa.schema({"at": pa.timestamp("us", "UTC"), "k": pa.string()})


def test_one_time_column_for_all_or_one_per_stream():
    catalog = catalog_of({"A": INTEGER, "B": MOMENT}, {"A": "ts", "B": "at"})
    assert [s.time for s in catalog.streams.values()] == ["ts", "at"]
    assert catalog_of({"A": INTEGER}, "ts").streams["A"].time == "ts"


@pytest.mark.parametrize("lateness", ["5 seconds", dt.timedelta(seconds=5), {"B": "5 seconds"}], ids=str)
def test_lateness_is_kept_in_ticks(lateness):
    assert catalog_of({"B": MOMENT}, "at", lateness=lateness).streams["B"].lateness == 5_000_000


def test_functions_are_found_by_name_in_any_case():
    double = ScalarFunction("Double", lambda x: x, pa.int64())
    assert catalog_of({"A": INTEGER}, functions=[double]).function("DOUBLE") is double


@pytest.mark.parametrize(
    ("schema", "time", "message"),
    [
        (INTEGER, "when", "stream A has no time column 'when'"),
        (INTEGER, {"B": "ts"}, "no time column is named for stream A"),
        (INTEGER, "k", "time column 'k' of stream A must be an integer or a timestamp, not string"),
        (pa.schema({"ts": pa.float64()}), "ts", "must be an integer or a timestamp, not double"),
        (pa.schema({"ts": pa.date32()}), "ts", r"must be an integer or a timestamp, not date32\[day\]"),
        (pa.schema({}), "ts", "stream A has no time column 'ts'"),
        ({"ts": "int"}, "ts", "stream A is described by a dict, not by a pyarrow Schema"),
    ],
)
def test_a_stream_without_usable_time_is_refused(schema, time, message):
    with pytest.raises(InputError, match=message):
        declare("A", schema, time)


def test_time_or_lateness_of_a_stream_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="time is given for C, which is not among the streams"):
        catalog_of({"A": INTEGER}, {"A": "ts", "C": "ts"})
    with pytest.raises(InputError, match="lateness is given for C"):
        catalog_of({"A": INTEGER}, lateness={"C": 5})


@pytest.mark.parametrize(("lateness", "error"), [(-1, InputError), ("soon", QueryError), ("", QueryError)])
def test_a_lateness_that_is_no_duration_is_refused(lateness, error):
    with pytest.raises(error):
        declare("A", INTEGER, "ts", lateness)
