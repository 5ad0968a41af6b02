"""Expressions over columns: by hand where a rule is easy to get wrong, against the oracle everywhere."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from tests.operators.typed_expressions import SCHEMA, bound, random_batch, random_call, random_cast, random_expression

from midstream.algebra.declarations import Catalog, ScalarFunction, functions_by_name
from midstream.algebra.expressions import TRUE, Call, Case, Cast, Column, Expression, Literal, call
from midstream.algebra.functions import SCALAR
from midstream.algebra.semantics.scalars import evaluator
from midstream.algebra.semantics.values import python_values
from midstream.errors import InputError, InternalError
from midstream.operators.expressions import CompiledExpression, Predicate
from midstream.operators.scalars import KERNELS

INTEGER, DOUBLE, TEXT, BOOLEAN = pa.int64(), pa.float64(), pa.string(), pa.bool_()
NAN = float("nan")


def number(value: Any) -> Literal:
    return Literal(value, INTEGER)


def text(value: Any) -> Literal:
    return Literal(value, TEXT)


def evaluate(expression: Expression, **columns: pa.Array) -> list[Any]:
    batch = pa.RecordBatch.from_arrays(list(columns.values()) or [pa.nulls(1)], list(columns) or ["none"])
    result = CompiledExpression(expression, batch.schema)(batch)
    assert len(result) == batch.num_rows
    assert result.type == expression.type
    return list(result.to_pylist())


def on_texts(function: str, *arguments: Any, texts: list[str | None]) -> list[Any]:
    literals = [text(a) if isinstance(a, str) else number(a) for a in arguments]
    return evaluate(bound(function, Column("s", TEXT), *literals), s=pa.array(texts, TEXT))


def outcome(run: Any) -> Any:
    try:
        return run()
    except InputError as problem:
        return problem


def agree(want: Any, got: Any) -> bool:
    if isinstance(want, InputError) or isinstance(got, InputError):
        return isinstance(want, InputError) and isinstance(got, InputError)
    return len(want) == len(got) and all(map(same, want, got))


def same(want: Any, got: Any) -> bool:
    if isinstance(want, float) and isinstance(got, float):
        return want == got or (math.isnan(want) and math.isnan(got)) or math.isclose(want, got, rel_tol=1e-13)
    return type(want) is type(got) and bool(want == got)


def check_against_oracle(expression: Expression, batch: pa.RecordBatch) -> None:
    rows = list(zip(*[python_values(c) for c in batch.columns], strict=True))
    by_row = evaluator(expression, batch.schema.names, Catalog({}))
    want = outcome(lambda: [by_row(row) for row in rows])
    got = outcome(lambda: CompiledExpression(expression, batch.schema)(batch))
    if isinstance(got, pa.Array):
        got.validate(full=True)
        assert got.type == expression.type
        got = python_values(got)
    assert agree(want, got), f"{expression}\nwant {want}\ngot  {got}"


def test_every_function_of_the_language_has_a_kernel() -> None:
    assert set(KERNELS) == set(SCALAR)


@pytest.mark.parametrize("function", sorted(SCALAR))
def test_each_function_agrees_with_the_oracle(function: str) -> None:
    for seed in range(15):
        chance = random.Random(f"{function} {seed}")
        check_against_oracle(random_call(chance, function, 0), random_batch(chance, 8))


def test_casts_agree_with_the_oracle() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        check_against_oracle(random_cast(chance, 0), random_batch(chance, 8))


@given(st.integers(0, 2**32))
def test_any_expression_agrees_with_the_oracle(seed: int) -> None:
    chance = random.Random(seed)
    check_against_oracle(random_expression(chance, 2), random_batch(chance, 5))


@given(st.integers(0, 2**32))
def test_a_predicate_is_true_where_its_expression_is(seed: int) -> None:
    chance = random.Random(seed)
    function = chance.choice(["and", "or", "not", "=", "<", ">=", "<>", "in", "is_null", "like"])
    expression, batch = random_call(chance, function, 2), random_batch(chance, 20)
    got = outcome(lambda: Predicate(expression, SCHEMA)(batch))
    want = outcome(lambda: CompiledExpression(expression, SCHEMA)(batch))
    if isinstance(want, InputError):
        assert isinstance(got, InputError)
    else:
        assert got.dtype == np.bool_
        assert got.tolist() == [value is True for value in want.to_pylist()]


def test_truth_has_three_values() -> None:
    truths = [True, False, None]
    a = pa.array([x for x in truths for _ in truths])
    b = pa.array([y for _ in truths for y in truths])
    left, right = Column("a", BOOLEAN), Column("b", BOOLEAN)
    assert evaluate(call("and", left, right), a=a, b=b) == [True, False, None, False, False, False, None, False, None]
    assert evaluate(call("or", left, right), a=a, b=b) == [True, True, True, True, False, None, True, None, None]
    assert evaluate(call("not", left), a=pa.array(truths)) == [False, True, None]


def test_in_with_a_null_among_the_values_is_never_false() -> None:
    needles = pa.array([1, 2, None])
    column = Column("a", INTEGER)
    assert evaluate(call("in", column, number(1), number(None)), a=needles) == [True, None, None]
    assert evaluate(call("in", column, number(1), number(3)), a=needles) == [True, False, None]


def test_zeros_are_found_by_value_and_nan_is_not() -> None:
    values = pa.array([0.0, -0.0, NAN])
    found = call("in", Column("a", DOUBLE), Literal(-0.0, DOUBLE), Literal(NAN, DOUBLE))
    assert evaluate(found, a=values) == [True, True, False]


@pytest.mark.parametrize(
    ("function", "left", "right"), [("+", 2**63 - 1, 1), ("-", -(2**63), 1), ("*", 2**62, 2), ("*", -(2**63), -1)]
)
def test_integer_overflow_is_an_error_that_names_the_expression(function: str, left: int, right: int) -> None:
    expression = bound(function, Column("a", INTEGER), Column("b", INTEGER))
    with pytest.raises(InputError, match="integer overflow in") as raised:
        evaluate(expression, a=pa.array([1, left]), b=pa.array([1, right]))
    assert str(expression) in str(raised.value)


@pytest.mark.parametrize("function", ["negate", "abs"])
def test_the_least_integer_has_no_opposite(function: str) -> None:
    with pytest.raises(InputError, match="integer overflow"):
        evaluate(bound(function, Column("a", INTEGER)), a=pa.array([-(2**63)]))


@pytest.mark.parametrize("kind", [INTEGER, DOUBLE, pa.decimal128(38, 2)])
def test_dividing_by_zero_gives_null(kind: pa.DataType) -> None:
    a, b = Column("a", kind), Column("b", kind)
    sevens = pa.array([7, -7, 7, None]).cast(kind)
    others = pa.array([2, 2, 0, 1]).cast(kind)
    assert evaluate(bound("/", a, b), a=sevens, b=others) == [3.5, -3.5, None, None]
    assert evaluate(bound("%", a, b), a=sevens, b=others) == [1, -1, None, None]


def test_decimals_keep_all_their_digits() -> None:
    wide, narrow = pa.decimal128(38, 10), pa.decimal128(38, 2)
    a = pa.array([Decimal("12345678901234567890.1234567890")], wide)
    b = pa.array([Decimal("0.01")], narrow)
    product = bound("*", Column("a", wide), Column("b", narrow))
    assert evaluate(product, a=a, b=b) == [Decimal("123456789012345678.901234567890")]
    largest = pa.array([Decimal("9" * 38)], pa.decimal128(38, 0))
    with pytest.raises(InputError, match="decimal overflow"):
        evaluate(bound("+", Column("a", largest.type), Column("a", largest.type)), a=largest)


def test_outside_a_domain_there_is_no_value() -> None:
    values = pa.array([-1.0, 0.0, 1.0, NAN])
    column = Column("a", DOUBLE)
    assert evaluate(bound("sqrt", column), a=values)[:3] == [None, 0.0, 1.0]
    assert evaluate(bound("ln", column), a=values)[:3] == [None, None, 0.0]
    assert evaluate(bound("log10", column), a=values)[:3] == [None, None, 0.0]
    assert math.isnan(evaluate(bound("sqrt", column), a=values)[3])


def test_rounding_goes_away_from_zero_at_the_half() -> None:
    values = pa.array([0.5, -0.5, 2.5, 2.675, -1.25, 0.49999999999999994, 1e300])
    column = Column("a", DOUBLE)
    assert evaluate(bound("round", column), a=values) == [1.0, -1.0, 3.0, 3.0, -1.0, 0.0, 1e300]
    assert evaluate(bound("round", column, number(2)), a=values)[3] == 2.68
    integers = pa.array([15, 25, -25, 14])
    assert evaluate(bound("round", Column("a", INTEGER), number(-1)), a=integers) == [20, 30, -30, 10]


def test_substrings_are_counted_in_code_points_from_one() -> None:
    assert on_texts("substring", 0, 2, texts=["abc", "éàü", None]) == ["a", "é", None]
    assert on_texts("substring", 2, texts=["abc", "éàü", ""]) == ["bc", "àü", ""]
    assert on_texts("substring", -2, texts=["abc"]) == ["bc"]
    assert on_texts("substring", -2, texts=["a"]) == ["a"]
    assert on_texts("substring", -2, 1, texts=["abc"]) == ["b"]
    assert on_texts("substring", 2, -1, texts=["abc"]) == [""]
    assert on_texts("left", 2, texts=["éàü", "a"]) == ["éà", "a"]
    assert on_texts("right", 2, texts=["éàü", "a"]) == ["àü", "a"]
    assert on_texts("right", 0, texts=["abc"]) == [""]
    assert on_texts("length", texts=["éàü", "", None]) == [3, 0, None]
    assert on_texts("reverse", texts=["aé"]) == ["éa"]


def test_a_backslash_in_like_is_a_letter() -> None:
    assert on_texts("like", "a\\%", texts=["a\\b", "a%", "ab"]) == [True, False, False]
    assert on_texts("like", "a_c%", texts=["abc", "aéc\nd", "ac"]) == [True, True, False]
    assert on_texts("ilike", "A%", texts=["abc", "Abc", "b"]) == [True, True, False]


def test_replacing_nothing_changes_nothing() -> None:
    assert on_texts("replace", "", "x", texts=["abc"]) == ["abc"]
    assert on_texts("replace", "b", "xx", texts=["abcb"]) == ["axxcxx"]


def test_changing_case_follows_unicode() -> None:
    assert on_texts("upper", texts=["straße", "abc", None]) == ["STRASSE", "ABC", None]
    assert on_texts("lower", texts=["ÀB", "ABC"]) == ["àb", "abc"]


def test_concat_skips_nulls_and_the_operator_does_not() -> None:
    columns = {"s": pa.array(["a", None, None]), "t": pa.array(["b", "c", None])}
    s, t = Column("s", TEXT), Column("t", TEXT)
    assert evaluate(bound("concat", s, t), **columns) == ["ab", "c", ""]
    assert evaluate(bound("||", s, t), **columns) == ["ab", None, None]


def test_a_wrong_regular_expression_is_the_users_mistake() -> None:
    with pytest.raises(InputError, match="not a regular expression"):
        on_texts("regexp_matches", "(", texts=["a"])


def test_settings_may_differ_from_row_to_row() -> None:
    columns = {"s": pa.array(["abc", "abc", "abc", None]), "n": pa.array([1, 2, None, 1])}
    assert evaluate(bound("left", Column("s", TEXT), Column("n", INTEGER)), **columns) == ["a", "ab", None, None]
    patterns = {"p": pa.array(["a%", "%c", "x", None])}
    assert evaluate(bound("like", text("abc"), Column("p", TEXT)), **patterns) == [True, True, False, None]


BERLIN = pa.timestamp("us", "Europe/Berlin")


def utc(*texts: str) -> pa.Array:
    moments = [dt.datetime.fromisoformat(t).replace(tzinfo=dt.UTC) for t in texts]
    return pa.array(moments, BERLIN)


def shown(values: list[Any]) -> list[str]:
    return [v.astimezone(dt.UTC).strftime("%m-%d %H:%M") for v in values]


def test_clocks_are_read_in_their_zone() -> None:
    t = Column("t", BERLIN)
    values = utc("2024-03-31 00:59", "2024-03-31 01:00", "2050-07-01 22:30")
    assert evaluate(bound("hour", t), t=values) == [1, 3, 0]
    assert evaluate(bound("day", t), t=values) == [31, 31, 2]
    assert evaluate(Cast(t, pa.date32()), t=values)[2] == dt.date(2050, 7, 2)


def test_truncation_stays_on_its_side_of_a_clock_set_back() -> None:
    t = Column("t", BERLIN)
    values = utc("2024-10-27 00:30", "2024-10-27 01:30")
    assert shown(evaluate(bound("date_trunc", text("hour"), t), t=values)) == ["10-27 00:00", "10-27 01:00"]
    assert shown(evaluate(bound("date_trunc", text("day"), t), t=values)) == ["10-26 22:00", "10-26 22:00"]


def test_weeks_begin_on_monday_and_days_count_from_sunday() -> None:
    column = Column("d", pa.date32())
    days = pa.array([dt.date(2024, 3, 31), dt.date(2024, 4, 1)])
    assert evaluate(bound("dayofweek", column), d=days) == [0, 1]
    weeks = [dt.datetime(2024, 3, 25), dt.datetime(2024, 4, 1)]
    assert evaluate(bound("date_trunc", text("week"), column), d=days) == weeks


def test_casts_to_integers_cut_towards_zero_and_refuse_what_is_too_large() -> None:
    column = Column("a", DOUBLE)
    assert evaluate(Cast(column, INTEGER), a=pa.array([1.9, -1.9, None])) == [1, -1, None]
    for value in (2.0**63, -1e30, NAN):
        with pytest.raises(InputError, match="cannot cast"):
            evaluate(Cast(column, INTEGER), a=pa.array([value]))
        assert evaluate(Cast(column, INTEGER, True), a=pa.array([value, 2.0])) == [None, 2]


def test_texts_are_read_strictly() -> None:
    column = Column("s", TEXT)
    numbers = pa.array(["12", "+4", " 1", "0x10", "1_0", "", "99999999999999999999"])
    assert evaluate(Cast(column, INTEGER, True), s=numbers) == [12, 4, None, None, None, None, None]
    with pytest.raises(InputError, match="cannot cast ' 1' to int64"):
        evaluate(Cast(column, INTEGER), s=numbers)
    dates = pa.array(["2024-02-29", "2024-02-30", "24-01-01"])
    assert evaluate(Cast(column, pa.date32(), True), s=dates) == [dt.date(2024, 2, 29), None, None]


def test_values_are_written_as_the_language_writes_them() -> None:
    floats = pa.array([1.0, 0.1, 1e-7, 1e16, NAN, 584408573252320.8])
    written = ["1.0", "0.1", "1e-07", "1e+16", "nan", "584408573252320.8"]
    assert evaluate(Cast(Column("a", DOUBLE), TEXT), a=floats) == written
    moments = pa.array([dt.datetime(2024, 1, 2, 3, 4, 5), dt.datetime(2024, 1, 2, 3, 4, 5, 60)])
    assert evaluate(Cast(Column("t", moments.type), TEXT), t=moments) == [
        "2024-01-02 03:04:05",
        "2024-01-02 03:04:05.00006",
    ]


def test_case_does_not_fail_on_rows_that_another_branch_answers() -> None:
    column = Column("s", TEXT)
    is_number = bound("regexp_matches", column, text("^[0-9]+$"))
    case = Case(((is_number, Cast(column, INTEGER)),), number(-1))
    assert evaluate(case, s=pa.array(["12", "x", None])) == [12, -1, -1]


def test_and_or_and_coalesce_stop_at_the_part_that_decides() -> None:
    column = Column("s", TEXT)
    is_number = bound("regexp_matches", column, text("^[0-9]+$"))
    large = call(">", Cast(column, INTEGER), number(10))
    values = pa.array(["12", "x", "3"])
    assert evaluate(call("and", is_number, large), s=values) == [True, False, False]
    assert evaluate(call("or", call("not", is_number), large), s=values) == [True, True, False]
    known = Case(((is_number, number(0)),), number(None))
    first = bound("coalesce", Case(((call("not", is_number), number(7)),), number(None)), Cast(column, INTEGER))
    assert evaluate(first, s=values) == [12, 7, 3]
    assert evaluate(known, s=values) == [0, None, 0]
    with pytest.raises(InputError, match="cannot cast 'x'"):
        evaluate(call("and", large, is_number), s=values)


def test_a_constant_that_fails_does_so_only_when_there_is_a_row() -> None:
    expression = Cast(text("x"), INTEGER)
    assert evaluate(expression, a=pa.array([], INTEGER)) == []
    with pytest.raises(InputError, match="cannot cast 'x'"):
        evaluate(expression, a=pa.array([1]))


def test_constants_are_repeated() -> None:
    assert evaluate(bound("+", number(1), number(2)), a=pa.array([0, 0])) == [3, 3]
    assert evaluate(Literal(None, TEXT), a=pa.array([0, 0])) == [None, None]


def test_columns_are_found_by_name_and_slices_are_respected() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(range(10)), pa.array(range(10, 20))], ["a", "b"]).slice(3, 4)
    total = CompiledExpression(bound("+", Column("b", INTEGER), Column("a", INTEGER)), batch.schema)
    assert total(batch).to_pylist() == [16, 18, 20, 22]
    mask = Predicate(call("<", Column("a", INTEGER), number(5)), batch.schema)(batch)
    assert mask.tolist() == [True, True, False, False]
    with pytest.raises(InternalError, match="no column z"):
        CompiledExpression(Column("z", INTEGER), batch.schema)


def test_predicates_count_null_as_false() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, None, 3])], ["a"])
    above = call(">", Column("a", INTEGER), number(1))
    assert Predicate(above, batch.schema)(batch).tolist() == [False, False, True]
    assert Predicate(call("not", above), batch.schema)(batch).tolist() == [True, False, False]
    assert Predicate(TRUE, batch.schema)(batch).tolist() == [True, True, True]


double = ScalarFunction("Twice", lambda x: pc.multiply(x, 2), INTEGER)


def test_user_functions_take_and_give_columns() -> None:
    schema = pa.schema([("a", INTEGER)])
    batch = pa.RecordBatch.from_arrays([pa.array([1, None])], schema=schema)
    twice = Call("twice", (Column("a", INTEGER),), INTEGER)
    compiled = CompiledExpression(twice, schema, functions_by_name([double]))
    assert compiled(batch).to_pylist() == [2, None]
    on_constant = Call("twice", (number(4),), INTEGER)
    assert CompiledExpression(on_constant, schema, functions_by_name([double]))(batch).to_pylist() == [8, 8]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[:1], "function bad gave 1 values for 2 rows"),
        (lambda x: x.cast(DOUBLE), "function bad gave double, but it is declared to return int64"),
        (lambda x: [1, 2], "function bad gave a list, not an Arrow array"),
    ],
)
def test_user_functions_are_held_to_their_declaration(function: Any, message: str) -> None:
    schema = pa.schema([("a", INTEGER)])
    functions = functions_by_name([ScalarFunction("bad", function, INTEGER)])
    compiled = CompiledExpression(Call("bad", (Column("a", INTEGER),), INTEGER), schema, functions)
    with pytest.raises(InputError) as raised:
        compiled(pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=schema))
    assert message in str(raised.value)


def test_compiled_expressions_travel_between_processes() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], ["a"])
    column = Column("a", INTEGER)
    plain = Predicate(call(">", column, number(1)), batch.schema)
    assert pickle.loads(pickle.dumps(plain))(batch).tolist() == [False, True]
    twice = CompiledExpression(Call("twice", (column,), INTEGER), batch.schema, functions_by_name([double]))
    assert cloudpickle.loads(cloudpickle.dumps(twice))(batch).to_pylist() == [2, 4]
