"""Values as Spark, Flink and RisingWave mean them, and forms of SQL whose meaning DuckDB or the test says."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import midstream as ms
from midstream.api import ask
from midstream.language.foreign import to_cql

T = pa.table(
    {
        "a": [1, 2, None, 3],
        "b": ["x", "y", "x", None],
        "ys": [[1, 2], [3], [4, 5, 6], []],
        "m": pa.array([[(0, 10), (1, 20)], [], [], []], pa.map_(pa.int64(), pa.int64())),
    }
)


def rows(query: str, dialect: str | None = None) -> list[tuple[Any, ...]]:
    found = ms.run(query, {"t": T}, time=None, dialect=dialect).drop_columns(["valid_from", "valid_to"])
    return [tuple(row.values()) for row in found.to_pylist()]


SPARK = [
    ("array(1, 2, 3)[0]", 1),
    ("array(array(1, 2), array(3))[0][1]", 2),
    ("split('a,b', ',')[1]", "b"),
    ("(array(4))[0]", 4),
    ("array(1)[-1]", None),
    ("map('k', 7)['k']", 7),
    ("map(0, 'a', 1, 'b')[1]", "b"),
    ("transform(array(5, 6), (y, i) -> y + i)", [5, 7]),
    ("filter(array(5, 6), (y, i) -> i = 0)", [5]),
    ("slice(array(1, 2, 3), 2, 2)", [2, 3]),
    ("slice(array(1, 2, 3), -2, 2)", [2, 3]),
    ("slice(array(1, 2, 3), -4, 2)", []),
    ("split('oneAtwoB', '[AB]')", ["one", "two", ""]),
    ("3 ^ 5", 6),
    ("1 + 2 ^ 1", 2),
    (r"regexp_extract('a12', '(\\d+)')", "12"),
    (r"'it\'s'", "it's"),
    (r"'a\nb'", "a\nb"),
    (r"r'\d'", r"\d"),
    ('"two"', "two"),
    (r"'axb' LIKE 'a\_b'", False),
    (r"'a_b' LIKE 'a\_b'", True),
    ("concat('a', NULL)", None),
    ("concat('a', concat('b', 1))", "ab1"),
    ("concat(array(1), array(2))", [1, 2]),
    ("log(1)", 0.0),
    ("weekday(DATE '2009-07-30')", 3),
    ("substring('Spark SQL', 0, 5)", "Spark"),
    ("sequence(5, 3)", [5, 4, 3]),
    ("sort_array(array(2, NULL, 1))", [None, 1, 2]),
    ("url_encode('a b')", "a+b"),
    ("1L + 2S", 3),
    ("1.5D", 1.5),
    ("aggregate(array(1, 2), 10, (s, y) -> s + y)", 13),
    ("exists(array(), y -> y > 2)", False),
    ("exists(array(1, NULL), y -> y > 2)", None),
    ("forall(array(), y -> y > 2)", True),
    ("struct(1 AS x, 'q' AS y)", {"x": 1, "y": "q"}),
    ("map_filter(map(1, 2, 3, 9), (k, v) -> v > 5)", [(3, 9)]),
    ("transform_keys(map(1, 'a'), (k, v) -> k + 1)", [(2, "a")]),
    ("zip_with(array('a'), array('d', 'e'), (x, y) -> concat(x, y))", ["ad", None]),
    ("add_months('2016-08-31', 1)", dt.date(2016, 9, 30)),
    ("date_trunc('YEAR', '2015-03-05T09:32:05.359')", dt.datetime(2015, 1, 1)),
    ("format_string('%d-%s', 1, 'a')", "1-a"),
    ("ceil(3.1411, 3)", 3.142),
    ("size(map(1, 2))", 1),
    ("from_json('{\"a\": 1}', 'a INT').a", 1),
    ("str_to_map('a:1,b:2')", [("a", "1"), ("b", "2")]),
    ("'Spark' LIKE ANY ('%x', 'S%')", True),
]


@pytest.mark.parametrize(
    "values",
    [
        "VALUES (1, 2), (3, 4)",
        "VALUES (1, 2), (3, 4) AS t",
        "VALUES (1, 2), (3, 4) t",
        "VALUES (1, 2), (3, 4) AS t(col1, b)",
    ],
)
def test_columns_of_values_count_from_1_in_spark(values: str) -> None:
    assert rows(f"SELECT col1 FROM {values} ORDER BY col1", "spark") == [(1,), (3,)]
    assert rows(f"SELECT x.a, col1 FROM t AS x JOIN {values} ON x.a = col1 WHERE x.a < 3", "spark") == [(1, 1)]


@pytest.mark.parametrize(("value", "expected"), SPARK)
def test_a_value_of_spark_is_what_spark_says(value: str, expected: object) -> None:
    assert rows(f"SELECT {value} AS r", "spark") == [(expected,)]


def test_an_element_of_a_map_column_is_that_of_its_key_and_of_a_list_column_that_of_its_place() -> None:
    assert rows("SELECT m[1], ys[1], t.ys[0] FROM t WHERE a = 1", "spark") == [(20, 2, 1)]


@pytest.mark.parametrize(
    ("dialect", "order", "first"), [("spark", "a", None), ("flink", "a", None), ("flink", "a DESC", 3)]
)
def test_nulls_come_first_where_they_do_elsewhere(dialect: str, order: str, first: int | None) -> None:
    assert rows(f"SELECT a FROM t ORDER BY {order} LIMIT 1", dialect) == [(first,)]
    ranked = rows(f"SELECT a, rank() OVER (ORDER BY {order}) FROM t", dialect)
    assert [a for a, rank in ranked if rank == 1] == [first]


def test_nulls_come_first_in_descending_orders_of_risingwave() -> None:
    assert rows("SELECT a FROM t ORDER BY a DESC LIMIT 1", "risingwave") == [(None,)]
    assert rows("SELECT a FROM t ORDER BY a LIMIT 1", "risingwave") == [(1,)]
    assert to_cql("SELECT k FROM s ORDER BY ts DESC LIMIT 1", "risingwave", "ts").endswith("ORDER BY ts DESC LIMIT 1")


@pytest.mark.parametrize("dialect", ["flink", "risingwave"])
def test_whole_numbers_are_divided_into_whole_ones_where_they_are_elsewhere(dialect: str) -> None:
    divided = "-7 / 2, 7 / 0, 7 / 2.0, sum(a) / count(*), INTERVAL '1' HOUR / 2"
    assert rows(f"SELECT {divided} FROM t", dialect) == [(-3, None, 3.5, 1, dt.timedelta(minutes=30))]
    assert rows("SELECT 7 / 2", "spark") == rows("SELECT 7 / 2") == [(3.5,)]


def test_an_average_of_whole_numbers_is_one_in_flink() -> None:
    query = "SELECT avg(a), avg(a) FILTER (WHERE a > 1), avg(DISTINCT a), avg(a + 0.5) FROM t"
    assert rows(query.replace("a > 1", "a > 2"), "flink") == [(2, 3, 2, 2.5)]
    assert rows("SELECT avg(a) OVER (ORDER BY a ROWS 1 PRECEDING) FROM t WHERE a > 1", "flink") == [(2,), (2,)]
    assert rows("SELECT avg(a) FROM t WHERE a > 1", "risingwave") == [(2.5,)]


def test_structs_in_lists_give_columns_in_flink() -> None:
    structs = {"t": pa.table({"n": ["x"], "l": [[{"a": 1}, {"a": 2}]]})}
    query = "SELECT n, b FROM t CROSS JOIN UNNEST(l) AS u(b)"
    found = ms.run(query, structs, time=None, dialect="flink").select(["n", "b"])
    assert [tuple(row.values()) for row in found.to_pylist()] == [("x", 1), ("x", 2)]
    assert rows("SELECT a, y FROM t, UNNEST(ys) AS u(y) WHERE a = 1", "flink") == [(1, 1), (1, 2)]


def test_views_say_when_their_rows_come() -> None:
    query = "CREATE VIEW v AS SELECT a FROM t EMIT ON WINDOW CLOSE; SELECT count(*) FROM v EMIT CHANGES;"
    assert rows(query, "risingwave") == [(4,)]


RISINGWAVE = [
    ("format('Testing %s, %s, %%', 'one', 'two')", "Testing one, two, %"),
    ("'abc' SIMILAR TO '%(b|d)%'", True),
    ("'abc' NOT SIMILAR TO '(b|c)%'", True),
    ("'abc' SIMILAR TO 'a.c'", False),
    ("string_to_array('a b', '')", ["a b"]),
    ("string_to_array('a b', NULL)", ["a", " ", "b"]),
    ("string_to_array('a b', ' ', 'a')", [None, "b"]),
    ("substr('hello', -3)", "hello"),
    ("substring('hello', 0, 3)", "he"),
    ("EXTRACT(SECOND FROM TIMESTAMP '1970-01-01 00:00:10.5')", 10.5),
    (r"'axb' LIKE 'a\_b'", False),
    (r"'a!_b' LIKE 'a!_b' ESCAPE '!'", False),
    ("concat_ws(',', 1, 1.01, 'A', TRUE, NULL)", "1,1.01,A,t"),
    ("concat('a', NULL, FALSE, ARRAY[1, 2])", "af{1,2}"),
]


@pytest.mark.parametrize(("value", "expected"), RISINGWAVE)
def test_a_value_of_risingwave_is_what_it_says(value: str, expected: object) -> None:
    assert rows(f"SELECT {value} AS r", "risingwave") == [(expected,)]


def test_lists_in_lists_and_matches_with_flags_give_rows_in_risingwave() -> None:
    assert rows("SELECT unnest(ARRAY[ARRAY[1, 2], ARRAY[3]])", "risingwave") == [(1,), (2,), (3,)]
    assert rows("SELECT x FROM unnest(ARRAY[4, 5]) AS u(x)", "risingwave") == [(4,), (5,)]
    assert rows("SELECT regexp_matches('abAB', 'b', 'i')", "risingwave") == [(["b"],), (["B"],)]
    assert rows("SELECT unnest(regexp_matches('#1 #2', '#.', 'g'))", "risingwave") == [("#1",), ("#2",)]
    assert rows("SELECT regr_slope(a, a) FROM t WHERE a = 1", "risingwave") == [(None,)]


def test_functions_of_lists_are_aggregates_in_risingwave() -> None:
    query = "SELECT aggregate:array_sum(v), aggregate:array_reverse(v ORDER BY v) FROM (VALUES (3), (5), (4)) AS t(v)"
    assert rows(query, "risingwave") == [(12, [5, 4, 3])]


def test_series_and_matches_give_rows_in_risingwave() -> None:
    assert rows("SELECT a, generate_series(1, a) FROM t WHERE a < 3", "risingwave") == [(1, 1), (2, 1), (2, 2)]
    assert rows("SELECT x FROM generate_series(1, 2) AS s(x)", "risingwave") == [(1,), (2,)]
    assert rows("SELECT regexp_matches('abab', 'a(b)')", "risingwave") == [(["b"],), (["b"],)]


def test_a_join_within_an_amount_of_time_is_one_of_windows_of_that_size() -> None:
    s = {name: pa.table({"ts": times, "k": [1] * len(times)}) for name, times in (("a", [1, 9, 30]), ("b", [3, 12]))}
    pairs = "SELECT a.ts AS x, b.ts AS y FROM a{} JOIN b{} ON a.k = b.k"
    found = ms.run(pairs.format("", " WITHIN 4"), s, time="ts")
    assert found.equals(ms.run(pairs.format(" [RANGE 4]", " [RANGE 4]"), s, time="ts"))
    assert sorted(zip(*(found[c].to_pylist() for c in "xy"), strict=True)) == [(1, 3), (9, 12)]
    with pytest.raises(ms.QueryError, match="inner join of two streams"):
        ms.run("SELECT a.k FROM a LEFT JOIN b WITHIN 4 ON a.k = b.k", s, time="ts")


def test_maps_are_collected_and_the_last_value_of_a_key_counts() -> None:
    maps = pa.array([{"x": 1, "y": 2}, None, {"x": 3}], pa.map_(pa.string(), pa.int64()))
    s = {"a": pa.table({"ts": [1, 2, 3], "m": maps})}
    found = ms.run("SELECT collect_map(m) AS m FROM a [UNBOUNDED]", s, time="ts")
    assert dict(found["m"].to_pylist()[-1]) == {"x": 3, "y": 2}
    assert ms.snapshot_equal(found, ms.reference("SELECT collect_map(m) AS m FROM a [UNBOUNDED]", s, time="ts"))


def test_corresponding_columns_are_those_that_both_sides_have() -> None:
    sides = "SELECT 1 AS a, 2 AS b, 3 AS c UNION ALL CORRESPONDING{} SELECT 4 AS c, 5 AS d, 6 AS a"
    assert sorted(rows(sides.format(""))) == [(1, 3), (6, 4)]
    assert sorted(rows(sides.format(" BY (c, A)"))) == [(3, 1), (4, 6)]
    with pytest.raises(ms.QueryError, match="columns that both sides have"):
        rows(sides.format(" BY (c, b)"))


def test_the_field_of_a_struct_may_stand_behind_an_arrow() -> None:
    assert rows("SELECT s->x->y, s->x->y = 5 FROM (SELECT {'x': {'y': 5}} AS s)") == [(5, True)]
    with pytest.raises(ms.QueryError, match="has no field z"):
        rows("SELECT s->z FROM (SELECT {'x': 1} AS s)")


def test_versions_are_looked_up_when_a_row_comes() -> None:
    streams = {
        "s": pa.table({"ts": [2, 4], "k": [1, 1], "a": [11, 13]}),
        "v": pa.table({"ts": [1, 3], "k": [1, 1], "b": [10, 12]}),
    }
    query = "SELECT a, b FROM s LEFT JOIN v FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = v.k AND a > b"
    found = ms.run(query, streams, time="ts", dialect="risingwave")
    assert found.select(["a", "b"]).to_pylist() == [{"a": 11, "b": 10}, {"a": 13, "b": 12}]


def test_versions_with_a_window_are_the_rows_of_that_time() -> None:
    streams = {
        "s": pa.table({"ts": [2, 4], "a": [11, 13]}),
        "v": pa.table({"ts": [1, 3], "b": [10, 12]}),
    }
    query = "SELECT a, b FROM s JOIN v [UNBOUNDED] FOR SYSTEM_TIME AS OF PROCTIME() ON a > b"
    found = ms.run(query, streams, time="ts", dialect="risingwave").select(["a", "b"]).to_pylist()
    assert found == [{"a": 11, "b": 10}, {"a": 13, "b": 10}, {"a": 13, "b": 12}]
    with pytest.raises(ms.QueryError, match="versions are told apart"):
        ms.run(query.replace("[UNBOUNDED]", ""), streams, time="ts", dialect="risingwave")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("k INT, b INT", [(11, 10), (13, 10), (13, 12)]),
        ("k INT, b INT, PRIMARY KEY (k)", [(11, 10), (13, 12)]),
        ("k INT PRIMARY KEY, b INT", [(11, 10), (13, 12)]),
        ("k INT, b STRUCT<x INT, y INT>, PRIMARY KEY (k, b) NOT ENFORCED", [(11, 10), (13, 10), (13, 12)]),
    ],
)
def test_rows_of_a_declared_table_are_told_apart_by_its_key(columns: str, expected: list[tuple[int, int]]) -> None:
    streams = {
        "s": pa.table({"ts": [2, 4], "k": [1, 1], "a": [11, 13]}),
        "v": pa.table({"ts": [1, 3], "k": [1, 1], "b": [10, 12]}),
    }
    query = (
        f"CREATE TABLE v ({columns}); SELECT a, b FROM s BROADCAST JOIN v FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = v.k"
    )
    found = ms.run(query, streams, time="ts", dialect="risingwave").select(["a", "b"]).to_pylist()
    assert [tuple(row.values()) for row in found] == expected


def test_intervals_without_months_have_sums_and_an_order() -> None:
    amounts = pa.array([(0, 1, 0), None, (0, 0, 10**9)], pa.month_day_nano_interval())
    table = {"s": pa.table({"ts": [1, 2, 3], "i": amounts})}
    found = ms.run("SELECT min(i), max(i), sum(i), sum(i + i) FROM s [UNBOUNDED]", table, time="ts").to_pylist()[-1]
    second, day = dt.timedelta(seconds=1), dt.timedelta(days=1)
    assert list(found.values())[:4] == [second, day, day + second, 2 * (day + second)]


def test_of_rows_that_are_as_near_an_asof_join_takes_the_least() -> None:
    streams = {
        "s": pa.table({"ts": [1], "k": [1], "x": [3]}),
        "v": pa.table({"ts": [1, 2, 3], "k": [1, 1, 1], "y": [3, 3, 3], "id": [6, 1, 5]}),
    }
    v = "(SELECT k, y, id FROM v [UNBOUNDED])"
    query = f"SELECT x, id FROM s [UNBOUNDED] ASOF JOIN {v} AS v ON s.k = v.k AND s.x <= v.y"
    found = ms.run(query, streams, time="ts")
    assert found.to_pylist()[-1] == {"x": 3, "id": 1, "valid_from": 2, "valid_to": None}
    assert ms.snapshot_equal(found, ms.reference(query, streams, time="ts"))


def test_a_text_that_does_not_end_is_refused_in_every_dialect() -> None:
    with pytest.raises(ms.QueryError, match="missing '"):
        to_cql("SELECT 'a", "spark")
    with pytest.raises(ms.QueryError, match="missing '"):
        to_cql("SELECT 'a", "flink")


SAME = [
    "SELECT lag(a, 0 + 1) OVER (ORDER BY a NULLS LAST), ntile(1 + 1) OVER (ORDER BY a NULLS LAST) FROM t",
    "SELECT sum(a) OVER (ORDER BY a NULLS LAST ROWS BETWEEN 1 + 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT quantile_cont(a, 0.2 + 0.3), quantile_disc(a, [0.1 + 0.1, 0.5]) FROM t",
    "SELECT array_agg(DISTINCT abs(-2) ORDER BY abs(-2)), array_agg(a ORDER BY length('x'), a) FROM t",
    "SELECT a FROM t ORDER BY a NULLS LAST LIMIT 1 + 1",
    "SELECT TIMESTAMP '2020-01-31 00:00:00' + INTERVAL '1 month' * a, DATE '2020-01-01' + a * INTERVAL '1' HOUR FROM t",
    "SELECT TIMESTAMP '2020-01-31 00:00:00' - INTERVAL (a + 1) DAY, DATE '2020-01-31' + INTERVAL '1 month' * 2 FROM t",
    "SELECT INTERVAL '1 day' * 2, 3 * INTERVAL '1 hour', INTERVAL '1' DAY * -0.5",
    "SELECT x.a, y.b FROM t x LEFT JOIN LATERAL (SELECT b FROM t WHERE t.a < x.a) y ON y.b = 'x'",
    "SELECT x.a, y.b FROM t x LEFT JOIN LATERAL (SELECT max(b) AS b FROM t WHERE t.a < x.a) y ON y.b <> x.b",
    "SELECT x.a, y.c FROM t x LEFT JOIN LATERAL (SELECT b, a FROM t WHERE t.a < x.a LIMIT 9) y(b, c) ON y.c = x.a - 1",
    "SELECT list_reduce(ys, lambda s, y: s + y, 100), list_reduce(ys, lambda s, y: s * y, 0.5) FROM t",
    "SELECT list_transform(ys, lambda y: list_transform([1, 2], lambda z, i: z * 10 + y + i)) FROM t",
    "SELECT list_transform(ys, lambda y: list_reduce(ys, lambda s, z: s + z * y, 0)) FROM t",
    "SELECT {'x': 1, 'y': 2} = row(1, 2), {'x': 1, 'y': 2} < row(1, 3)",
    "SELECT MAP {1: 'a'} = MAP {1: 'a'}, ys[1:2], list_slice(ys, 1, 2) FROM t",
    "SELECT TIMESTAMP '2020-01-31 00:00:00' + INTERVAL '1 month' * (a / 2) FROM t",
    "SELECT INTERVAL '1 hour' / 4, avg(INTERVAL '1 minute' * a) FROM t",
    "SELECT max(a, 2), min(b, 5), sum(NULL::INTEGER) FROM t",
    "SELECT b FROM t EXCEPT SELECT 'x'",
    "SELECT string_agg(b, '-' ORDER BY b) FROM t",
    "SELECT b, a, GROUPING_ID(b, a) FROM t GROUP BY CUBE (b, a)",
]


@pytest.mark.parametrize("query", SAME)
def test_duckdb_gives_the_same_rows(query: str) -> None:
    database = duckdb.connect()
    database.register("t", T)
    expected = database.sql(query).fetchall()
    assert sorted(map(repr, rows(query))) == sorted(map(repr, (tuple(_plain(v) for v in row) for row in expected)))


def _plain(value: Any) -> Any:
    """Numbers of a literal with a point are doubles here, and exact in DuckDB."""
    return float(value) if type(value).__name__ == "Decimal" else value


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("GROUP BY b, a WITH ROLLUP", "GROUP BY ROLLUP (b, a)"),
        ("GROUP BY b, a WITH CUBE", "GROUP BY CUBE (b, a)"),
        ("GROUP BY b, a GROUPING SETS ((b), (a), ())", "GROUP BY GROUPING SETS ((b), (a), ())"),
    ],
)
def test_sets_of_groups_may_stand_behind_their_keys(written: str, same: str) -> None:
    database = duckdb.connect()
    database.register("t", T)
    expected = database.sql(f"SELECT b, a, count(*) FROM t {same}").fetchall()
    assert sorted(map(repr, rows(f"SELECT b, a, count(*) FROM t {written}"))) == sorted(map(repr, expected))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("count(DISTINCT a, b)", 2),
        ("count(a, b)", 2),
        ("count(DISTINCT b, a) FILTER (WHERE a > 1)", 1),
        ("count(DISTINCT a % 1, b)", 2),
    ],
)
def test_rows_without_a_null_are_counted_by_several_columns(value: str, expected: int) -> None:
    assert rows(f"SELECT {value} FROM t") == [(expected,)]


def test_a_struct_is_compared_with_a_row_by_places_and_with_other_fields_not_at_all() -> None:
    struct = "{'x': 1, 'y': 2}"
    assert rows(f"SELECT {struct} = (1, 2), (1, 3) = {struct}, {struct} IN ((3, 4), (1, 2))") == [(True, False, True)]
    with pytest.raises(ms.QueryError, match="= needs values of one type"):
        rows("SELECT {'x': 1} = {'z': 1}")
    nested = "{'x': 1, 'y': {'z': 2, 'w': 3}}"
    assert rows(f"SELECT {nested} = (1, (2, 3)), {nested} < (1, (2, 4)), {nested} IN ((1, (2, 9)))") == [
        (True, True, False)
    ]
    with pytest.raises(ms.QueryError, match="rows of 2 and of 3"):
        rows("SELECT {'x': 1, 'y': 2} = (1, 2, 3)")


def test_a_number_under_a_cast_to_decimal_is_read_exactly() -> None:
    found = rows(
        "SELECT 12345678987654321.2345678987654321::DECIMAL(33, 16), CAST(-0.1 AS DECIMAL(3, 2)), 1e2::DECIMAL(5, 1)"
    )
    assert found == [(Decimal("12345678987654321.2345678987654321"), Decimal("-0.10"), Decimal("100.0"))]


@pytest.mark.parametrize("written", ["grouping_id()", "grouping__id"])
def test_the_number_of_a_grouping_may_be_of_all_its_keys(written: str) -> None:
    query = "SELECT b, a, {} AS g FROM t GROUP BY CUBE (b, a) HAVING count(*) > 0"
    assert sorted(map(repr, rows(query.format(written)))) == sorted(map(repr, rows(query.format("grouping_id(b, a)"))))
    assert {g for _, _, g in rows(query.format(written))} == {0, 1, 2, 3}


def test_functions_that_give_rows_of_json_do_so_in_select_and_in_from() -> None:
    assert rows("SELECT a, jsonb_array_elements_text('[1, \"b\"]') FROM t WHERE a = 1") == [(1, "1"), (1, "b")]
    assert rows('SELECT * FROM jsonb_each_text(\'{"a": 1, "b": "c"}\')') == [("a", "1"), ("b", "c")]
    assert rows("SELECT k, v FROM json_each('{\"a\": [1]}') AS j(k, v)") == [("a", "[1]")]


def test_a_function_of_values_gives_one_row_in_from() -> None:
    assert rows("SELECT x FROM abs(-1) AS f(x)") == rows("SELECT abs FROM abs(-1)") == [(1,)]
    assert rows("SELECT a, x FROM t, upper(b) AS f(x) WHERE a < 3") == [(1, "X"), (2, "Y")]


def test_not_like_any_holds_if_one_is_not_like_it() -> None:
    found = "SELECT 'a' NOT LIKE ANY (['a', NULL]), 'a' NOT LIKE ANY (['b', NULL]), 'a' NOT LIKE ALL (['b', 'a'])"
    assert rows(found) == [(None, True, False)]
    with pytest.raises(ms.QueryError, match="LIKE ANY takes patterns, no sub-query"):
        rows("SELECT b FROM t WHERE b LIKE ANY (SELECT b FROM t)")


@pytest.mark.parametrize(
    "call", ["to_char(a, '999')", "quarter(a)", "months_between(a, a)", "trunc(a, 'MM')", "max(a, b)"]
)
def test_what_is_no_time_or_number_is_refused_before_any_row_comes(call: str) -> None:
    with pytest.raises(ms.QueryError, match=r"does not take int64"):
        rows(f"SELECT {call} FROM t")


def test_minus_is_except_and_a_name_elsewhere() -> None:
    assert rows("SELECT b FROM t WHERE b = 'x' MINUS SELECT 'y'") == [("x",)]
    assert rows("SELECT minus FROM (SELECT 1 AS minus) AS q") == [(1,)]


@pytest.mark.parametrize(
    ("written", "moved"),
    [
        ("'1-2' YEAR TO MONTH", dt.datetime(2021, 3, 1)),
        ("'2:30' HOUR TO MINUTE", dt.datetime(2020, 1, 1, 2, 30)),
        ("'-1 2:03:04.5' DAY TO SECOND", dt.datetime(2019, 12, 30, 21, 56, 55, 500000)),
    ],
)
def test_an_interval_reaches_from_one_unit_to_another(written: str, moved: dt.datetime) -> None:
    assert rows(f"SELECT TIMESTAMP '2020-01-01 00:00:00' + INTERVAL {written}") == [(moved,)]


def test_an_interval_between_units_has_a_number_for_each() -> None:
    with pytest.raises(ms.QueryError, match="has not the numbers of DAY TO SECOND"):
        rows("SELECT INTERVAL '1 2' DAY TO SECOND")
    with pytest.raises(ms.QueryError, match="there is nothing from MONTH TO DAY"):
        rows("SELECT INTERVAL '1 2' MONTH TO DAY")


def test_names_of_pivoted_columns_need_no_as() -> None:
    query = "SELECT one_s, two_s FROM (SELECT a, b FROM t) PIVOT (sum(a) s FOR b IN ('x' one, 'y' AS two))"
    assert rows(query) == [(1, 2)]


def test_columns_are_pivoted_by_several_keys() -> None:
    pivot = "PIVOT (sum(n) FOR (b, a) IN (('x', 1) AS one, ('y', 2)))"
    assert rows(f"SELECT one, \"('y', 2)\" FROM (SELECT a, b, 7 AS n FROM t) {pivot}") == [(7, 7)]


@pytest.mark.parametrize("emit", ["EMIT CHANGES", "emit on window close;"])
def test_when_results_are_given_is_no_part_of_a_query(emit: str) -> None:
    assert rows(f"SELECT a FROM t WHERE a = 1 {emit}") == rows(f"SELECT a FROM t AS emit WHERE a = 1 {emit}") == [(1,)]


def test_flinks_objects_of_json_have_values_behind_a_word() -> None:
    assert rows("SELECT JSON_OBJECT('k' VALUE 1, 'j' VALUE 'x')", "flink") == [('{"k":1,"j":"x"}',)]
    assert rows("SELECT JSON_OBJECTAGG(KEY b VALUE a) FROM t WHERE a < 3", "flink") == [('{"x":1,"y":2}',)]
    assert rows("SELECT JSON_OBJECT(b VALUE a) FROM t WHERE a = 1") == [('{"x":1}',)]


def test_an_outer_join_of_elements_keeps_rows_none_of_whose_elements_fits() -> None:
    query = "SELECT x.b, u.y FROM t x LEFT JOIN LATERAL unnest(x.ys) AS u(y) ON u.y > 4 WHERE x.a IS NULL OR x.a < 3"
    assert sorted(map(repr, rows(query))) == ["('x', 5)", "('x', 6)", "('x', None)", "('y', None)"]


def test_elements_and_keys_of_json_are_rows() -> None:
    assert rows("SELECT x FROM jsonb_array_elements_text('[1, \"b\"]') AS j(x)") == [("1",), ("b",)]
    assert rows('SELECT x FROM json_object_keys(\'{"a": 1, "b": 2}\') AS j(x)') == [("a",), ("b",)]


def test_intervals_of_several_units_add_up_and_parts_of_months_are_refused() -> None:
    moved = rows("SELECT TIMESTAMP '2020-01-01 00:00:00' + INTERVAL 1 YEAR 2 MONTHS, INTERVAL 1 HOUR 30 MINUTES")
    assert moved == [(dt.datetime(2021, 3, 1), dt.timedelta(minutes=90))]
    with pytest.raises(ms.QueryError, match="months have no parts"):
        rows("SELECT DATE '2020-01-01' + INTERVAL '1 month' * 0.5")


def test_what_reduces_a_list_keeps_one_type_and_exists_takes_a_query_or_a_function() -> None:
    assert rows("SELECT reduce(ys, 0, (s, y) -> s || 'q') FROM t WHERE a = 1") == [("0qq",)]
    with pytest.raises(ms.QueryError, match="takes a list, a function of at most 2 values"):
        rows("SELECT list_transform(ys, (x, i, j) -> x) FROM t")
    with pytest.raises(ms.QueryError, match="EXISTS takes a sub-query"):
        rows("SELECT exists(a) FROM t")


def test_functions_of_a_users_own_are_not_called_while_a_query_is_bound() -> None:
    called: list[object] = []

    def note(x: object) -> object:
        called.append(x)
        return x

    noted = ms.ScalarFunction("noted", note, pa.int64())
    streams = {"t": pa.table({"ts": [1], "a": [1]})}
    ask("SELECT sum(noted(1)) AS s FROM t [UNBOUNDED]", streams, functions=[noted])
    assert called == []
    assert ms.run("SELECT sum(noted(1)) AS s FROM t [UNBOUNDED]", streams, functions=[noted])["s"].to_pylist() == [1]


@pytest.mark.parametrize(
    "value", ["1 | 2 & 4", "1 & 3 << 1", "1 | 2 ^ 3", "1 | CAST(2 AS INT) & CASE WHEN 1 = 1 THEN 4 END"]
)
def test_bits_that_spark_would_join_in_another_order_are_refused(value: str) -> None:
    with pytest.raises(ms.QueryError, match="binds tighter in Spark"):
        to_cql(f"SELECT {value}", "spark")


@pytest.mark.parametrize(
    ("value", "expected"), [("1 << 2 & 4 ^ 1 | 8", 13), ("1 | (2 & 4)", 1), ("1 | 2 > 0 AND 6 & 3 < 5", True)]
)
def test_bits_that_spark_joins_in_the_order_of_writing_are_joined(value: str, expected: object) -> None:
    assert ms.run(f"SELECT {value} AS v", {}, dialect="spark").column("v").to_pylist() == [expected]
