"""The types of functions: laws of the common type, and what every function refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.borrowed import BORROWED
from midstream.algebra.borrowed_aggregates import AGGREGATES
from midstream.algebra.functions import AGGREGATE, SCALAR, SYNONYMS, Signature
from midstream.algebra.types import common_type, plain
from midstream.errors import QueryError

TYPES = [
    pa.null(),
    pa.bool_(),
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.decimal128(38, 30),
    pa.string(),
    pa.large_string(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.binary(),
    pa.date32(),
    pa.timestamp("ms"),
    pa.timestamp("us"),
    pa.timestamp("ns"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us", "Europe/Berlin"),
    pa.duration("us"),
    pa.list_(pa.int64()),
    pa.struct([("a", pa.int64())]),
]

RULES = {**SCALAR, **AGGREGATE}

types = st.sampled_from(TYPES)


@given(types, types)
def test_the_common_type_does_not_depend_on_the_order_but_for_the_zone(a: pa.DataType, b: pa.DataType) -> None:
    there, back = common_type(a, b), common_type(b, a)
    if there is not None and pa.types.is_timestamp(there) and there.tz:
        assert back is not None
        assert back.unit == there.unit
    else:
        assert there == back


@given(types)
def test_a_type_is_common_with_itself_and_with_null(a: pa.DataType) -> None:
    assert common_type(a, a) == plain(a)
    assert common_type(a, pa.null()) == plain(a)


@given(types, types)
def test_the_common_type_is_common_with_both(a: pa.DataType, b: pa.DataType) -> None:
    both = common_type(a, b)
    if both is not None:
        assert common_type(both, a) == both
        assert common_type(a, both) is not None


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=30)
@given(arguments=st.lists(types, max_size=4))
def test_every_rule_answers_or_refuses(name: str, arguments: list[pa.DataType]) -> None:
    try:
        signature = RULES[name](tuple(arguments))
    except QueryError as error:
        assert error.message
    else:
        assert isinstance(signature, Signature)
        assert len(signature.arguments) == len(arguments)
        assert not pa.types.is_null(signature.result)


@pytest.mark.parametrize(
    ("name", "arguments", "casts", "result"),
    [
        ("+", [pa.int32(), pa.int8()], [pa.int64(), pa.int64()], pa.int64()),
        ("+", [pa.decimal128(10, 2), pa.int64()], [pa.decimal128(38, 2)] * 2, pa.decimal128(38, 2)),
        ("*", [pa.decimal128(9, 2), pa.int8()], [pa.decimal128(38, 2), pa.decimal128(38, 0)], pa.decimal128(38, 2)),
        ("*", [pa.decimal128(10, 2), pa.float32()], [pa.float64()] * 2, pa.float64()),
        ("/", [pa.int64(), pa.int64()], [pa.float64()] * 2, pa.float64()),
        ("%", [pa.int8(), pa.null()], [pa.int64()] * 2, pa.int64()),
        ("-", [pa.timestamp("us"), pa.timestamp("us")], [pa.timestamp("us")] * 2, pa.duration("us")),
        ("+", [pa.date32(), pa.duration("us")], [pa.timestamp("us"), pa.duration("us")], pa.timestamp("us")),
        ("=", [pa.int32(), pa.float32()], [pa.float64()] * 2, pa.bool_()),
        ("=", [pa.date32(), pa.timestamp("us")], [pa.timestamp("us")] * 2, pa.bool_()),
        ("in", [pa.int32(), pa.int64(), pa.null()], [pa.int64()] * 3, pa.bool_()),
        ("concat", [pa.int64(), pa.string()], [pa.string()] * 2, pa.string()),
        ("round", [pa.int32()], [pa.int64()], pa.int64()),
        ("round", [pa.decimal128(10, 2), pa.int32()], [pa.decimal128(11, 2), pa.int64()], pa.decimal128(11, 2)),
        ("abs", [pa.decimal128(10, 2)], [pa.decimal128(10, 2)], pa.decimal128(10, 2)),
        ("sum", [pa.int16()], [pa.int64()], pa.int64()),
        ("sum", [pa.decimal128(10, 2)], [pa.decimal128(38, 2)], pa.decimal128(38, 2)),
        ("min", [pa.large_string()], [pa.string()], pa.string()),
        ("count", [], [], pa.int64()),
    ],
)
def test_arguments_are_cast_so(
    name: str, arguments: list[pa.DataType], casts: list[pa.DataType], result: pa.DataType
) -> None:
    assert RULES[name](tuple(arguments)) == Signature(tuple(casts), result)


def test_synonyms_lead_to_functions() -> None:
    assert set(SYNONYMS.values()) <= {*SCALAR, *AGGREGATES, *BORROWED, "if"}
    assert not set(SYNONYMS) & {*SCALAR, *AGGREGATES, *BORROWED}
