"""The public contract: the names users rely on, and what they give."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import midstream as ms

A = pa.table({"ts": [10, 50], "k": ["a", "a"]})
B = pa.table({"ts": [20, 70], "k": ["a", "a"]})
JOIN = "SELECT A.k FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k"
INTERVALS = [(20, 111), (50, 121), (70, 111), (70, 151)]


def intervals(result):
    return sorted(zip(result["valid_from"].to_pylist(), result["valid_to"].to_pylist(), strict=True))


@pytest.mark.parametrize("answer", [ms.reference, ms.run], ids=["reference", "embedded"])
class TestBothAnswers:
    """What holds for the oracle holds for the engine."""

    def test_a_join_is_valid_where_its_parts_are(self, answer):
        result = answer(JOIN, {"A": A, "B": B}, time="ts")
        assert result.column_names == ["k", "valid_from", "valid_to"]
        assert intervals(result) == INTERVALS

    def test_frames_of_other_libraries_answer_alike(self, answer):
        assert intervals(answer(JOIN, {"A": A.to_pandas(), "B": pl.from_arrow(B)})) == INTERVALS

    def test_timestamps_keep_their_zone(self, answer):
        ts = pd.to_datetime(["2024-05-01 12:00"]).tz_localize("Europe/Berlin")
        result = answer("SELECT v FROM A [RANGE '1 minute']", {"A": pd.DataFrame({"ts": ts, "v": [1]})})
        assert result.schema.field("valid_from").type == pa.timestamp("us", "Europe/Berlin")
        assert result["valid_to"][0].as_py() == ts[0] + dt.timedelta(minutes=1, microseconds=1)

    def test_what_never_ends_has_a_null_end(self, answer):
        assert answer("SELECT k FROM A [UNBOUNDED]", {"A": A})["valid_to"].to_pylist() == [None, None]

    def test_streams_have_a_time_instead_of_an_interval(self, answer):
        result = answer("SELECT ISTREAM k FROM A [RANGE 5]", {"A": A})
        assert result.column_names == ["k", "ts"] and result["ts"].to_pylist() == [10, 50]

    def test_a_scalar_function_of_the_user_is_called_with_columns(self, answer):
        shout = ms.ScalarFunction("shout", lambda k: pc.utf8_upper(k), pa.string())
        result = answer("SELECT shout(k) AS s FROM A [NOW]", {"A": A}, functions=[shout])
        assert result["s"].to_pylist() == ["A", "A"]

    def test_an_aggregate_of_the_user_is_fed_columns(self, answer):
        class Longest:
            def initialize(self):
                return 0

            def iterate(self, state, column):
                return max(state, pc.max(pc.utf8_length(column)).as_py())

            def terminate(self, state):
                return state

        longest = ms.AggregateFunction("longest", Longest, pa.int64())
        rows = [{"ts": 1, "k": "abc"}, {"ts": 2, "k": "z"}]
        result = answer("SELECT longest(k) AS n FROM A [NOW]", {"A": rows}, functions=[longest])
        assert sorted(result["n"].to_pylist()) == [1, 3]

    @pytest.mark.parametrize(
        ("call", "expected"),
        [
            ("listed(v)", [None, 1.0, 1.0, 2.0, 2.0]),
            ("listed(DISTINCT v)", [None, 1.0, 2.0]),
            ("listed(DISTINCT v) FILTER (WHERE k <> 'd')", [None, 1.0, 2.0]),
            ("listed(DISTINCT k, v)", ["a", "b", "b", "c", "d"]),
            ("listed(DISTINCT v) FILTER (WHERE k = 'x')", []),
        ],
    )
    @pytest.mark.parametrize("more", ["", ", max(k) AS most, listed(k) AS others"])
    def test_an_aggregate_of_the_user_sees_rows_in_the_order_of_its_arguments(self, answer, call, expected, more):
        """Whatever their times, and whatever else is asked: a snapshot has no order."""

        class Listed:
            def initialize(self):
                return []

            def iterate(self, state, column, *_):
                return state + column.to_pylist()

            def terminate(self, state):
                return str(state)

        rows = {"ts": [1, 2, 3, 4, 5], "k": ["d", "b", "c", "b", "a"], "v": [2.0, None, 1.0, 1.0, 2.0]}
        query = f"SELECT {call} AS x{more} FROM A [HOP 10, 10]"
        listed = ms.AggregateFunction("listed", Listed, pa.string())
        assert answer(query, {"A": rows}, functions=[listed])["x"].to_pylist() == [str(expected)]

    def test_a_function_of_the_user_that_fails_is_named(self, answer):
        def fail(*_):
            raise RuntimeError("no")

        scalar = ms.ScalarFunction("f", fail, pa.int64())
        aggregate = ms.AggregateFunction("g", fail, pa.int64())
        for query, name in (
            ("SELECT f(k) AS x FROM A [NOW]", "function f"),
            ("SELECT g(k) AS x FROM A [NOW]", "aggregate g"),
        ):
            with pytest.raises(ms.InputError, match=f"{name} failed") as caught:
                answer(query, {"A": A}, functions=[scalar, aggregate])
            assert caught.value.detail == "RuntimeError: no"

    def test_an_empty_stream_answers_with_no_rows(self, answer):
        result = answer(JOIN, {"A": A.slice(0, 0), "B": B})
        assert result.num_rows == 0 and result.schema.field("k").type == pa.string()

    @pytest.mark.parametrize(
        ("query", "inputs", "time", "error"),
        [
            ("SELECT x FROM A [NOW]", {"A": A}, "ts", ms.QueryError),
            ("SELECT k FROM C [NOW]", {"A": A}, "ts", ms.QueryError),
            ("SELECT k FROM A [NOW]", {"A": A}, "when", ms.InputError),
            ("SELECT k FROM A [NOW]", {"A": 5}, "ts", ms.InputError),
            ("SELECT k FROM A [NOW]", {"A": [{"ts": 1, "k": 1}, {"ts": 2, "k": "x"}]}, "ts", ms.InputError),
        ],
    )
    def test_mistakes_are_midstream_errors(self, answer, query, inputs, time, error):
        with pytest.raises(error) as caught:
            answer(query, inputs, time=time)
        assert isinstance(caught.value, ms.MidstreamError)


def test_plans_are_equivalent_and_usable():
    streams = {"A": A, "B": B, "C": A}
    query = "SELECT A.k FROM A [RANGE 100], B [RANGE 100], C [RANGE 100] WHERE A.k = B.k AND B.k = C.k"
    expected = ms.reference(query, streams)
    found = ms.plans(query, {name: table.schema for name, table in streams.items()})
    assert len({p.text for p in found}) == len(found) > 1
    for plan in found:
        assert ms.snapshot_equal(ms.run(query, streams, plan=plan), expected)
        assert ms.snapshot_equal(ms.run(query, streams, plan=plan.text), expected)


def test_a_plan_of_another_query_is_refused():
    other = ms.plans("SELECT A.k FROM A [RANGE 7]", {"A": A.schema})[0]
    with pytest.raises(ms.QueryError):
        ms.run("SELECT A.k FROM A [RANGE 8]", {"A": A}, plan=other)


def test_progress_counts_every_row():
    seen: list[int] = []
    ms.run(JOIN, {"A": A, "B": B}, batch_rows=3, progress=seen.append)
    assert seen == [3, 1]


def test_an_engine_that_does_not_exist_is_refused():
    with pytest.raises(ms.InputError, match="cannot run on 'abacus'"):
        ms.run(JOIN, {"A": A, "B": B}, on="abacus")


@pytest.mark.parametrize(
    ("at", "strategy", "message"),
    [
        ("noon", "genmig", "a migration starts at a time, not at 'noon'"),
        (True, "genmig", "a migration starts at a time"),
        (5, "gen_mig", "unknown migration strategy 'gen_mig'"),
    ],
)
def test_a_migration_that_nobody_could_do_is_refused_at_once(at, strategy, message):
    with pytest.raises(ms.MigrationError, match=message):
        ms.Migration(at=at, plan="(A B)", strategy=strategy)


def test_everything_in_all_is_there():
    assert all(getattr(ms, name) is not None for name in ms.__all__)
    with pytest.raises(AttributeError):
        ms.nonsense  # noqa: B018


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_rows": 0},
        {"batch_rows": 2.5},
        {"batch_rows": None},
        {"batch_rows": True},
        {"time": None},
        {"time": 5},
        {"strategy": "fastest"},
        {"migrations": ["(B A)"]},
        {"migrations": ms.Migration(at=1, plan="(B A)")},
        {"functions": [len]},
        {"lateness": float("nan")},
        {"lateness": {"A": None}},
        {"emit_every": 10**30},
        {"emit_every": 0},
        {"emit_every": float("inf")},
    ],
    ids=str,
)
def test_arguments_of_a_wrong_kind_are_refused_as_ours(wrong):
    with pytest.raises(ms.MidstreamError):
        ms.run(JOIN, {"A": A, "B": B}, **wrong)


def test_a_stream_has_a_text_for_a_name():
    with pytest.raises(ms.InputError, match="5 cannot name a stream"):
        ms.run("SELECT k FROM A", {5: A})  # type: ignore[dict-item]


@pytest.mark.parametrize("kind", [ms.ScalarFunction, ms.AggregateFunction])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("f", len, "int"), "function f returns an Arrow type"),
        (("f", 5, pa.int64()), "function f cannot be called"),
        ((5, len, pa.int64()), "the name of a function is a text, not 5"),
    ],
)
def test_functions_that_nobody_could_call_are_refused(kind, given, message):
    with pytest.raises(ms.QueryError, match=message):
        kind(*given)


def test_a_function_has_a_name_of_its_own():
    first, other = (ms.ScalarFunction(name, lambda column: column, pa.string()) for name in ("first", "FIRST"))
    with pytest.raises(ms.QueryError, match="two functions of the same name: first"):
        ms.run(JOIN, {"A": A, "B": B}, functions=[first, other])


def test_a_full_run_gives_all_there_is_to_tell():
    rows = [{"ts": ts, "k": ts % 3} for ts in (*range(200), 100)]
    query = "SELECT A.k FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
    inputs = {"A": rows, "B": rows[:200:5], "C": rows[:200:20]}
    settings: dict[str, Any] = {
        "plan": "((A B) C)",
        "migrations": [ms.Migration(at=100, plan="(A (B C))")],
        "lateness": 5,
    }
    with pytest.warns(ms.DeadLetterWarning):
        result = ms.run(query, inputs, full=True, **settings)
    assert [record.outcome for record in result.history] == ["done"]
    assert [len(letters) for letters in result.dead_letters] == [1]
    assert len(result) == result.table.num_rows > 0
    assert ms.snapshot_equal(ms.run(query, {**inputs, "A": rows[:200]}, **settings), result.table)
