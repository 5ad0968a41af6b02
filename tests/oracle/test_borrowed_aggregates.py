"""Aggregates that DuckDB computes: the engine piece by piece, the oracle and DuckDB's own grouping agree."""

from __future__ import annotations

import datetime as dt
import random
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import midstream as ms
from midstream.algebra.borrowed_aggregates import BORROWED_AGGREGATES, PLAIN, in_sql, type_of_form
from midstream.algebra.database import type_of
from midstream.algebra.plan import Aggregate, walk_plan
from midstream.inputs import catalog_of
from midstream.language import parse

ONE = "median mad skewness kurtosis kurtosis_pop entropy product bit_and bit_or bit_xor histogram sem geomean"
TWO = (
    "corr covar_pop covar_samp regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy"
    " regr_syy weighted_avg"
)
CALLS: dict[str, str] = {
    **{f"{name}(i)": "" for name in ONE.split()},
    **{f"{name}(i, f)": "" for name in TWO.split()},
    "median(DISTINCT i)": "",
    "median(i) FILTER (WHERE f > 0.2)": "",
    "regr_count(i, f) FILTER (WHERE i > 100)": "",
    "mode(i)": "mode(i ORDER BY i)",
    "mode() WITHIN GROUP (ORDER BY i)": "mode(i ORDER BY i)",
    "arg_max(s, ts)": "arg_max(s, ts ORDER BY n)",
    "min_by(s, ts)": "arg_min(s, ts ORDER BY n)",
    "arg_max(u, ts, 2)": "arg_max(u, ts, 2 ORDER BY n)",
    "quantile_cont(f, 0.25)": "",
    "quantile_cont(f, [0.25, 0.5])": "",
    "percentile_cont(0.3) WITHIN GROUP (ORDER BY f)": "quantile_cont(f, 0.3)",
    "percentile_disc(0.75) WITHIN GROUP (ORDER BY f DESC)": "quantile_disc(f, 0.75 ORDER BY f DESC)",
    "percentile_disc(0.25) WITHIN GROUP (ORDER BY i DESC)": "quantile_disc(i, 0.25 ORDER BY i DESC)",
    "quantile_cont(f, [0.2, 0.7] ORDER BY f DESC)": "",
    "mode() WITHIN GROUP (ORDER BY i DESC)": "mode(i ORDER BY i DESC)",
    "array_agg(DISTINCT 'a' ORDER BY 'a')": "list(DISTINCT 'a')",
    "string_agg(s, ',' ORDER BY 7.5, s)": "string_agg(s, ',' ORDER BY s)",
    "quantile(i, 0.5)": "quantile_disc(i, 0.5)",
    "first(i)": "first(i ORDER BY n)",
    "first(u ORDER BY f DESC NULLS LAST)": "first(u ORDER BY f DESC NULLS LAST, n)",
    "first(i IGNORE NULLS)": "any_value(i ORDER BY n)",
    "last(i ORDER BY ts, i NULLS FIRST)": "",
    "last(i IGNORE NULLS)": "last(i ORDER BY n) FILTER (WHERE i IS NOT NULL)",
    "any_value(s)": "any_value(s ORDER BY n)",
    "array_agg(u)": "list(u ORDER BY n)",
    "array_agg(DISTINCT i)": "list(DISTINCT i ORDER BY i)",
    "array_agg(DISTINCT i ORDER BY i DESC)": "list(DISTINCT i ORDER BY i DESC)",
    "array_agg({'u': u, 's': s} ORDER BY u)": "list({'u': u, 's': s} ORDER BY u)",
    "collect_list(i)": "coalesce(list(i ORDER BY n) FILTER (WHERE i IS NOT NULL), [])",
    "collect_set(i)": "coalesce(list(DISTINCT i ORDER BY i) FILTER (WHERE i IS NOT NULL), [])",
    "string_agg(s)": "string_agg(s ORDER BY n)",
    "string_agg(s, '; ' ORDER BY u DESC)": "",
    "listagg(s, '|') WITHIN GROUP (ORDER BY u)": "string_agg(s, '|' ORDER BY u)",
    "json_agg(u)": "to_json(list(u ORDER BY n))",
    "json_object_agg(u, i)": "to_json(map(list(u ORDER BY u), list(i ORDER BY u)))",
    "topk(i, 2)": "list(i ORDER BY i DESC) FILTER (WHERE i IS NOT NULL)[1:2]",
    "topkdistinct(i, 2)": "list(DISTINCT i ORDER BY i DESC) FILTER (WHERE i IS NOT NULL)[1:2]",
    "count_distinct(i)": "count(DISTINCT i)",
    "sum0(i)": "coalesce(sum(i), 0)",
    "array_concat_agg([i, u])": "flatten(list([i, u] ORDER BY n))",
    "latest_by_offset(i)": "last(i ORDER BY n) FILTER (WHERE i IS NOT NULL)",
    "earliest_by_offset(i)": "any_value(i ORDER BY n)",
    "map_agg(u, i)": "map(list(u ORDER BY u), list(i ORDER BY u))",
    "map_agg(f, u) FILTER (WHERE f = 0.5)": "CASE WHEN bool_or(f = 0.5)"
    " THEN map([0.5::DOUBLE], [last(u ORDER BY n) FILTER (WHERE f = 0.5)]) END",
    "collect_map(map([0], [u]))": "map([0], [last(u ORDER BY n)])",
    "json_agg(s ORDER BY u DESC)": "to_json(list(s ORDER BY u DESC))",
    "json_object_agg(k, u)": "to_json(map([any_value(k)], [last(u ORDER BY n)]))",
    "max(i, 2)": "",
    "min(s, 2)": "",
    "earliest_by_offset(i, 2)": "list(i ORDER BY n) FILTER (WHERE i IS NOT NULL)[1:2]",
    "latest_by_offset(i, 2)": "list(i ORDER BY n) FILTER (WHERE i IS NOT NULL)[-2:]",
    "earliest_by_offset(i, 2, FALSE)": "list(i ORDER BY n)[1:2]",
    "latest_by_offset(i, FALSE)": "last(i ORDER BY n)",
    "earliest_by_offset(i, FALSE)": "first(i ORDER BY n)",
    "any_value(i, TRUE)": "any_value(i ORDER BY n)",
    "first(i, TRUE)": "any_value(i ORDER BY n)",
    "first(i, FALSE)": "first(i ORDER BY n)",
    "last(i, TRUE)": "last(i ORDER BY n) FILTER (WHERE i IS NOT NULL)",
    "topk(i, s, 2)": "(list({'sort_col': i, 'col0': s} ORDER BY i DESC, n) FILTER (WHERE i IS NOT NULL))[1:2]",
    "attr(k)": "k",
    "attr(s)": "CASE WHEN count(DISTINCT s) = 1 AND count(s) = count(*) THEN any_value(s) END",
    "percentile_approx(i, 0.5, 100)": "quantile_disc(i, 0.5)",
    "any(i > 2)": "bool_or(i > 2)",
    "sum(NULL)": "NULL",
    "count(i) FILTER (i > 2)": "count(i) FILTER (WHERE i > 2)",
    "sum(INTERVAL '1 hour' * i)": "to_hours(sum(i)::BIGINT)",
    "avg(INTERVAL '1 hour' * u)": "avg(to_hours(u))",
    "max(INTERVAL '1 hour' * u)": "max(to_hours(u))",
    "array_agg(INTERVAL '1 day' * u)": "list(to_days(u::INTEGER) ORDER BY n)",
    "bool_and(i > 2)": "",
    "bool_or(i > 8)": "",
    "count_if(i > 2)": "",
    "count_if(i > 2) FILTER (WHERE f > 0.2)": "count(*) FILTER (WHERE i > 2 AND f > 0.2)",
    "approx_count_distinct(i)": "count(DISTINCT i)",
    "sum(i ORDER BY ts)": "",
}
"""Calls in the language, and in DuckDB where it writes them differently; `n` is there the order of the rows."""


@cache
def database() -> duckdb.DuckDBPyConnection:
    """One for all calls: to make one takes longer than to ask it."""
    return duckdb.connect()


def rows_of(chance: random.Random) -> pa.Table:
    """Rows of two groups in three windows; `u` is different in every row."""
    count = 40
    return pa.table(
        {
            "ts": pa.array(sorted(chance.randrange(60) for _ in range(count))),
            "k": [chance.choice("ab") for _ in range(count)],
            "i": pa.array([chance.choice([None, 1, 2, 3, 7, 9]) for _ in range(count)], pa.int64()),
            "f": pa.array([chance.choice([None, 0.1, 0.25, 0.5, 4.0]) for _ in range(count)], pa.float64()),
            "s": pa.array([chance.choice([None, "x", "y", "zz"]) for _ in range(count)], pa.string()),
            "u": chance.sample(range(1000), count),
        }
    )


def comparable(row: dict[str, Any]) -> tuple[Any, ...]:
    """A group, the end of its window, and its value, whose last digits do not count."""
    return row["k"], row["valid_from"], _rounded(row["it"])


def _rounded(value: Any) -> Any:
    if isinstance(value, pa.MonthDayNano):
        return dt.timedelta(value.days, microseconds=value.nanoseconds / 1000)
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    if value != value:
        return "not a number"
    return round(float(value), 9) if isinstance(value, int | float) and not isinstance(value, bool) else value


@pytest.mark.parametrize("written", list(CALLS))
def test_an_aggregate_means_what_it_means_in_duckdb(written: str) -> None:
    rows = rows_of(random.Random(written))
    query = f"SELECT k, {written} AS it FROM S [TUMBLE 20] GROUP BY k"
    connection = database()
    connection.register("s", rows.append_column("n", pa.array(range(rows.num_rows))))
    sql = f"SELECT k, ts // 20 * 20 + 20 AS valid_from, {CALLS[written] or written} AS it FROM s GROUP BY ALL"
    expected = sorted(map(comparable, connection.sql(sql).to_arrow_table().to_pylist()), key=str)
    for found in (ms.run(query, {"S": rows}), ms.run(query, {"S": rows}, batch_rows=7)):
        assert sorted(map(comparable, found.to_pylist()), key=str) == expected


@pytest.mark.parametrize(
    "written", ["array_agg(i)", "median(f)", "string_agg(s, ',' ORDER BY u)", "last(u)", "corr(i, f)"]
)
@pytest.mark.parametrize("window", ["RANGE 10", "HOP 12, 3", "ROWS 5", "UNBOUNDED"])
def test_an_aggregate_follows_every_window_as_the_oracle_does(written: str, window: str) -> None:
    rows = rows_of(random.Random(f"{written} {window}"))
    query = f"SELECT k, {written} AS it FROM S [{window}] GROUP BY k"
    expected = ms.reference(query, {"S": rows})
    for batch_rows in (7, 1000):
        assert ms.snapshot_equal(ms.run(query, {"S": rows}, batch_rows=batch_rows), expected)


def test_a_value_that_is_too_large_is_an_error_of_the_input() -> None:
    rows = pa.table({"ts": [1], "u": pa.array([2**63 + 5], pa.uint64())})
    for run in (ms.run, ms.reference):
        with pytest.raises(ms.InputError, match="cannot compute"):
            run("SELECT first(u) AS it FROM S [UNBOUNDED]", {"S": rows})


def test_every_aggregate_is_called() -> None:
    catalog = catalog_of({"S": rows_of(random.Random(0)).schema}, "ts")
    called = {
        named.call.function
        for written in CALLS
        for plan in walk_plan(parse(f"SELECT {written} AS it FROM S [NOW]", catalog))
        if isinstance(plan, Aggregate)
        for named in plan.aggregates
    }
    # A scalar sub-query gets its value by it.
    assert set(BORROWED_AGGREGATES) - called == {"only_value"}


def test_many_rows_over_many_pieces_are_computed_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midstream.operators.borrowed_aggregates.MOST_ROWS", 5)
    rows = rows_of(random.Random(1))
    query = "SELECT k, array_agg(u) AS it FROM S [RANGE 10] GROUP BY k"
    assert ms.snapshot_equal(ms.run(query, {"S": rows}), ms.reference(query, {"S": rows}))


@pytest.mark.parametrize("form", ["list({0})", "first({0})", "list({0} ORDER BY {0} DESC)", "max({0})"])
def test_a_type_that_is_known_is_the_one_that_duckdb_would_tell(form: str) -> None:
    assert all(type_of_form(form, (kind,)) == type_of(in_sql(form, 1), (kind,)) for kind in PLAIN)
