"""SQL as people write it: sub-queries as values, row values, grouping sets, joins of every form.

Each query is run over sliding windows; at several instants DuckDB answers the same query over the rows valid there.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import midstream as ms

SUBQUERIES = (
    "SELECT i, v FROM A WHERE v > (SELECT avg(v) FROM B)",
    "SELECT i, v FROM A WHERE v = (SELECT max(v) FROM A AS x)",
    "SELECT i, v FROM A WHERE v < (SELECT sum(v) FROM B WHERE B.k = A.k)",
    "SELECT i, v FROM A WHERE 0 = (SELECT count(*) FROM B WHERE B.k = A.k)",
    "SELECT i, v FROM A WHERE (SELECT count(*) FROM B WHERE B.k = A.k AND B.v > 2) + 1 >= v",
    "SELECT i, v FROM A WHERE (SELECT max(v) FROM B WHERE B.k = A.k) IS NULL",
    "SELECT i, (SELECT max(v) FROM B WHERE B.k = A.k) AS most FROM A",
    "SELECT i, (SELECT count(*) FROM B WHERE B.k = A.k AND B.v = A.v) AS n FROM A",
    "SELECT i, (SELECT count(v) + 1 FROM B WHERE B.k = A.k) AS n, (SELECT min(i) FROM B) AS least FROM A",
    "SELECT i, (SELECT i FROM B WHERE B.i = A.i) AS same FROM A",
    "SELECT i FROM A WHERE v > 3 OR v IN (SELECT v FROM B)",
    "SELECT i FROM A WHERE v > 3 OR v NOT IN (SELECT v FROM B WHERE v > 2)",
    "SELECT i, v IN (SELECT v FROM B WHERE B.k = A.k) AS known FROM A",
    "SELECT i, v NOT IN (SELECT v FROM B) AS unknown FROM A",
    "SELECT i FROM A WHERE k = 1 OR EXISTS (SELECT * FROM B WHERE B.k = A.k AND B.v < 3)",
    "SELECT i, EXISTS (SELECT 1 FROM B WHERE B.v = A.v) AS met FROM A",
    "SELECT i, CASE WHEN EXISTS (SELECT 1 FROM B WHERE B.k = A.k) THEN 'yes' ELSE 'no' END AS met FROM A",
    "SELECT k, sum(v) AS s FROM A GROUP BY k HAVING sum(v) > (SELECT avg(v) FROM B)",
    "SELECT k, sum(v) AS s FROM A GROUP BY k HAVING count(*) >= (SELECT count(*) FROM B WHERE B.k = A.k)",
    "SELECT k, sum(v) AS s, (SELECT max(v) FROM B WHERE B.k = A.k) AS most FROM A GROUP BY k",
    "SELECT k, count(*) AS n FROM A GROUP BY k HAVING k IN (SELECT k FROM B) OR count(*) > 3",
    "SELECT i FROM A WHERE k IN (SELECT k FROM B WHERE v > (SELECT min(v) FROM C WHERE C.k = B.k))",
    "SELECT i FROM A WHERE v = (SELECT median(v) FROM B WHERE B.k = A.k)",
    "SELECT i FROM A WHERE v > (SELECT max(v) FROM (SELECT k, sum(v) AS v FROM B GROUP BY k) AS x)",
    "SELECT i, (SELECT count(*) FROM A AS x WHERE x.v < A.v) AS place FROM A",
    "SELECT i, (SELECT B.i FROM B WHERE B.k = A.k ORDER BY B.v DESC, B.i LIMIT 1) AS best FROM A",
    "SELECT i, (SELECT (SELECT max(v) FROM C) + B.v FROM B WHERE B.i = A.i) AS l FROM A",
    "SELECT i, (SELECT (SELECT max(v) FROM B) + A.v) AS l FROM A",
    "SELECT i, v FROM A WHERE (SELECT count(*) FROM B WHERE B.k = A.k AND B.v >= A.v) > 0",
    "SELECT i, (SELECT max(B.v + A.v) FROM B WHERE B.k <> A.k) AS m FROM A",
    "SELECT i, v IN (SELECT B.v + A.k FROM B WHERE B.k <= A.k) AS l FROM A",
    "SELECT i, EXISTS (SELECT 1 FROM B WHERE B.v > A.v) AS l FROM A",
    "SELECT k, sum(v) AS s, (SELECT count(*) FROM B WHERE B.k < A.k) AS n FROM A GROUP BY k",
    "SELECT i, v > ALL (SELECT B.v FROM B WHERE B.i < A.i) AS l FROM A",
    "SELECT A.i, B.i AS j FROM A JOIN B ON A.k = B.k AND B.v = (SELECT max(v) FROM B AS x WHERE x.k = A.k)",
    "SELECT A.i, C.i AS j FROM A JOIN B ON A.v IN (SELECT v FROM C) AND A.k = B.k LEFT JOIN C ON C.k = B.k",
)
DEPENDENT = (
    "SELECT i, (SELECT x.i FROM (SELECT * FROM B WHERE B.i = A.i) AS x) AS j FROM A",
    "SELECT i, (SELECT max(x.v) FROM B AS x JOIN C ON x.k = C.k AND C.v = A.v) AS j FROM A",
    "SELECT i, (SELECT max(v) FROM (SELECT v FROM B WHERE B.k = A.k UNION ALL SELECT v"
    " FROM C WHERE C.k < A.k) AS x) AS j FROM A",
    "SELECT i, (SELECT count(*) FROM (SELECT v FROM B WHERE v > A.v EXCEPT SELECT v"
    " FROM C WHERE C.k = A.k) AS x) AS j FROM A",
    "SELECT i, (SELECT v FROM B WHERE B.k = A.k ORDER BY v DESC, B.i LIMIT 1 OFFSET 1) AS j FROM A",
    "SELECT i, (SELECT sum(v) FROM B WHERE B.k = A.k GROUP BY k HAVING count(*) > 1) AS j FROM A",
    "SELECT i FROM A WHERE v IN (SELECT max(v) FROM B WHERE B.k = A.k GROUP BY B.i % 2)",
    "SELECT i FROM A WHERE EXISTS (SELECT k FROM B WHERE B.v < A.v GROUP BY k HAVING count(*) > 1)",
    "SELECT i FROM A WHERE NOT EXISTS (SELECT 1 FROM B WHERE EXISTS (SELECT 1 FROM C WHERE C.k = A.k AND C.v < B.v))",
    "SELECT A.i, n, s FROM A, LATERAL (SELECT count(*) AS n, sum(v) AS s FROM B WHERE B.k = A.k) AS l",
    "SELECT A.i, l.j FROM A LEFT JOIN LATERAL (SELECT B.i AS j"
    " FROM B WHERE B.k = A.k ORDER BY v, B.i LIMIT 2) AS l ON TRUE",
    "SELECT A.i, l.k, l.n FROM A, (SELECT k, count(*) AS n FROM B WHERE B.v <= A.v GROUP BY k) AS l",
    "SELECT A.i, l.j, l.r FROM A, LATERAL (SELECT i AS j, row_number() OVER (ORDER BY v, i) AS r"
    " FROM B WHERE B.k = A.k) AS l",
    "SELECT i, (SELECT sum(x) FROM unnest([A.k, A.v]) AS u(x)) AS s FROM A",
    "SELECT i, EXISTS (SELECT 1 FROM unnest([A.k, A.v]) AS u(x) WHERE x > 3) AS s FROM A",
    "SELECT sum((SELECT max(v) FROM B WHERE B.k = A.k)) AS s, count(*) FILTER (WHERE v IN (SELECT v"
    " FROM C)) AS n FROM A HAVING count(*) > 0",
    "SELECT (SELECT max(v) FROM B WHERE B.k = A.k) AS m, count(*) AS n FROM A GROUP BY (SELECT max(v)"
    " FROM B WHERE B.k = A.k)",
    "SELECT A.i, B.i AS j FROM A LEFT JOIN B ON A.k = B.k AND B.v IN (SELECT v FROM C)",
    "SELECT A.i, B.i AS j FROM A LEFT JOIN B ON A.k = B.k AND A.v < (SELECT max(v) FROM C WHERE C.k = A.k)",
    "SELECT i, (SELECT count(*) FROM B WHERE B.v > (SELECT min(C.v)"
    " FROM C WHERE C.k = A.k AND C.v <> B.v)) AS n FROM A",
)
"""Sub-queries of any form that name columns of the queries around them."""
ROWS = (
    "SELECT i FROM A WHERE (k, v) = (1, 2)",
    "SELECT i FROM A WHERE (k, v) <> (1, 2) AND k > 0 AND v > 0",
    "SELECT i FROM A WHERE (k, v) > (1, 2) AND k > 0 AND v > 0",
    "SELECT i FROM A WHERE (k, v) <= (2, 2) AND k > 0 AND v > 0",
    "SELECT i FROM A WHERE (k, v) IN ((1, 2), (2, 3), (3, NULL))",
    "SELECT i FROM A WHERE (k, v) IN (SELECT k, v FROM B)",
    "SELECT A.i, B.i AS j FROM A, B WHERE (A.k, A.v) = (B.k, B.v)",
)
GROUPINGS = (
    "SELECT k, v, count(*) AS n FROM A GROUP BY ROLLUP (k, v)",
    "SELECT k, v, sum(i) AS s, grouping(k) AS g, grouping(k, v) AS h FROM A GROUP BY CUBE (k, v)",
    "SELECT k, v, count(*) AS n FROM A GROUP BY GROUPING SETS ((k), (v), ())",
    "SELECT k + 1 AS m, v, count(*) AS n FROM A GROUP BY GROUPING SETS ((m, v), (m))",
    "SELECT k, v, count(*) AS n FROM A GROUP BY k, ROLLUP (v)",
    "SELECT k, count(*) AS n FROM A GROUP BY ROLLUP (1) HAVING count(*) > 2",
    "SELECT k, count(*) AS n FROM A GROUP BY ALL",
    "SELECT k, v + 1 AS w, max(i) AS m FROM A GROUP BY ALL",
)
JOINS = (
    "SELECT k, A.i, v, b.j FROM A NATURAL JOIN (SELECT k, i AS j FROM B) AS b",
    "SELECT k, A.i, b.j FROM A NATURAL LEFT JOIN (SELECT k, i AS j FROM B) AS b",
    "SELECT A.i, B.i AS j, C.i AS l FROM A LEFT JOIN (B JOIN C ON B.k = C.k) ON A.v = C.v",
    "SELECT A.i, C.i AS j FROM (A JOIN B ON A.k = B.k) JOIN C ON B.v = C.v",
    "SELECT v, A.i, B.i AS j, C.i AS l FROM A JOIN (B JOIN C USING (v)) USING (v)",
    "SELECT x.a, x.b FROM A AS x(t, a, b)",
    "SELECT a, n FROM (SELECT k, count(*) FROM A GROUP BY k) AS x(a, n)",
    "WITH x(a, n) AS (SELECT k, count(*) FROM A GROUP BY k) SELECT x.a, y.n FROM x JOIN x AS y ON x.a = y.a",
    "SELECT i, k FROM A UNION ALL BY NAME SELECT v, i FROM B",
    "SELECT i, k FROM A UNION BY NAME SELECT k, i FROM B",
    "SELECT * EXCLUDE (t) FROM A",
    "SELECT * EXCLUDE (t) REPLACE (v + 1 AS v) FROM A",
)
ELEMENTS = (
    "SELECT i, unnest([k, v]) AS x FROM A",
    "SELECT i, unnest([k, v, i]) AS x, unnest([v]) AS y FROM A",
    "SELECT i, x FROM A, unnest([k, v]) AS u(x) WHERE x > 1",
    "SELECT A.i, x, B.i AS j FROM A CROSS JOIN unnest([A.k, A.v]) AS u(x) JOIN B ON B.k = x",
    "SELECT i, x FROM A LEFT JOIN LATERAL unnest(CASE WHEN v > 2 THEN [k, v] END) AS u(x) ON TRUE",
    "SELECT i, x, p FROM A, unnest([k, v]) WITH ORDINALITY AS u(x, p)",
    "SELECT x, count(*) AS n FROM A, range(v) AS u(x) GROUP BY x",
    "SELECT i, x, y FROM A, range(v) AS u(x), range(x) AS w(y)",
    "SELECT i, unnest(list_sort(list(v))) AS x FROM A GROUP BY i, k",
    "SELECT A.i, l.j FROM A, LATERAL (SELECT B.i AS j FROM B WHERE B.k = A.k AND B.v > A.v) AS l",
    "SELECT A.i, l.j FROM A LEFT JOIN LATERAL (SELECT B.i AS j FROM B WHERE B.k = A.k) AS l ON TRUE",
    "SELECT A.i, l.w FROM A, LATERAL (SELECT A.v + x AS w FROM unnest([A.k, 10]) AS u(x) WHERE x > 2) AS l",
    "SELECT i, name FROM A JOIN (VALUES (1, 'one'), (2, 'two'), (NULL, 'none')) AS n(k, name) ON A.k = n.k",
    "SELECT i, name FROM (VALUES (1, 'one'), (2, 'two')) AS n(k, name) JOIN A USING (k)",
    "SELECT i, x.y FROM A, (SELECT 7 AS y) AS x",
    "SELECT i FROM A WHERE v IN (SELECT unnest([k, 3]) FROM B)",
    "SELECT i, (SELECT v + 1) AS w FROM A",
)
NESTED = (
    "SELECT [k, v] AS pair, count(*) AS n FROM A GROUP BY [k, v]",
    "SELECT DISTINCT {'a': k, 'b': [v]} AS s FROM A",
    "SELECT [k] AS l FROM A UNION SELECT [v] FROM B",
    "SELECT A.i, B.i AS j FROM A JOIN B ON [A.k, A.v] = [B.k, B.v]",
    "SELECT A.i FROM A LEFT JOIN B ON {'k': A.k} = {'k': B.k} WHERE B.i IS NULL",
    "SELECT i, [k, v] < [2, 2] AS l, [k, v] >= [v, k] AS m, [k] <> [v] AS n, [k] IN ([1], [NULL]) AS o FROM A",
    "SELECT i, [k] IS DISTINCT FROM [v] AS l, [k, 1] = [1.0, 1.0] AS m FROM A",
    "SELECT count(DISTINCT [k, v]) AS n FROM A HAVING count(*) > 0",
    "SELECT i, row_number() OVER (PARTITION BY [k] ORDER BY i) AS n FROM A",
    "SELECT i, v = ANY ([k, 3]) AS l, v > ALL ([k, 1]) AS m, v <= ANY ([]) AS n, v <> ALL ([k, NULL]) AS o FROM A",
    "SELECT i FROM A WHERE v > ALL (SELECT v FROM B WHERE B.k = A.k)",
    "SELECT i, v >= ANY (SELECT v FROM B) AS l, v < ALL (SELECT v FROM B WHERE v > 1) AS m FROM A",
    "SELECT i, v = ALL (SELECT v FROM B WHERE B.k = A.k) AS l, v <> ANY (SELECT k FROM B) AS m FROM A",
    "SELECT i FROM A WHERE v = ANY (SELECT v FROM B) AND k <> ALL (SELECT v FROM C WHERE v > 2)",
    "SELECT i FROM A WHERE k = 1 OR v IN (SELECT max(v) FROM B)",
    "SELECT i, list_transform([k, v], lambda x: x * i + 1) AS a, list_filter([k, v, i], lambda x: x > 2) AS b FROM A",
    "SELECT i, [upper(s) || k FOR s IN ['a', 'b'] IF s <> 'a' OR k > 1] AS a FROM A",
    "SELECT i, list_reduce([i, 1, 2], lambda a, b: CASE WHEN a > b THEN a - b ELSE b % 3 END) AS a FROM A",
    "SELECT i, list_transform([[k], [v, i]], lambda l: list_max(l)) AS a FROM A",
    "SELECT i FROM A WHERE len(list_filter([k], lambda x: x IN (1, 2))) = 1",
)
CASTS = (
    "SELECT i, '5' + v AS a, TRUE::BIGINT + v AS c, v << 1 AS d, v >> 1 AS e, 2 ** v AS f, -v ^ 2 AS g FROM A",
    "SELECT i FROM A WHERE v & 1",
    "SELECT i, v IN [1, k] AS a, k ISNULL AS b, k NOTNULL AS c, k IS NOT DISTINCT FROM v AS d FROM A",
    "SELECT i, CASE WHEN v > 2 THEN k::VARCHAR ELSE 'small' END AS a, coalesce(k, '7') AS b FROM A",
    "SELECT i, DATE '2020-01-01' + v::INTEGER AS a, DATE '2020-01-05' - DATE '2020-01-01' AS b FROM A",
    "SELECT i, [k, v]::VARCHAR[] AS a, CAST({'a': k} AS STRUCT(a VARCHAR)).a AS b, struct_pack(p := k).p AS c FROM A",
    "SELECT i, 'abc' SIMILAR TO 'a.c' AS a, 'abc' GLOB 'a*' AS b, k::INT4 AS c, v::INT8 AS d FROM A",
    "SELECT sum(CASE WHEN v > 2 THEN 1 ELSE 0 END) AS a, sum(v > 2) AS b FROM A HAVING count(*) > 0",
    "FROM A SELECT i, v WHERE v > 2",
    "SELECT i AS p, p + 1 AS q, q * 2 AS r FROM A WHERE p > 3",
    "SELECT s.p, s.* FROM (SELECT {'p': k, 'q': v} AS s FROM A) AS x",
    "SELECT i, v FROM A ORDER BY i LIMIT 1 + 2",
    "SELECT a.range AS x, b.range AS y FROM range(3) AS a, range(2) AS b WHERE a.range = b.range",
)
SHAPES = (
    "SELECT * FROM (PIVOT (SELECT k, i, v FROM A) ON k IN (1, 2) USING max(v) AS m, count(*) AS n GROUP BY i) AS p",
    "PIVOT (SELECT k, v, i FROM A) ON k IN (1, 3) USING sum(v) GROUP BY i",
    "SELECT * FROM (SELECT k, i, v FROM A) PIVOT (max(v) AS m, count(*) AS n FOR k IN (1, 2 AS two) GROUP BY i) AS p",
    "SELECT * FROM (SELECT k, v FROM A) PIVOT (sum(v) FOR k IN (1, 3)) AS p WHERE TRUE",
    "SELECT * FROM (SELECT i, k, v FROM A) UNPIVOT (x FOR n IN (k, v)) AS u",
    "SELECT min(COLUMNS('[kv]')), count(*) AS n FROM A HAVING count(*) > 0",
    "SELECT x.* EXCLUDE (t) RENAME (v AS w) FROM A AS x",
    "SELECT 1 AS one FROM A GROUP BY ()",
    "SELECT [k, v] AS l FROM A EXCEPT SELECT [k, v] FROM B",
    "SELECT [k] AS l FROM A INTERSECT SELECT [v] FROM B",
    "SELECT max([k, v]) AS l, min({'a': v, 'b': k}) AS m FROM A HAVING count(*) > 0",
    "SELECT k, v, count(*) AS n FROM A GROUP BY ROLLUP (k, v) ORDER BY grouping(k), count(*) + 1",
)
LATER = (
    "SELECT i, v FROM A ORDER BY v, i LIMIT 50%",
    "SELECT i, v FROM A ORDER BY v DESC, i LIMIT 30 PERCENT OFFSET 1",
    "SELECT i, first_value(i) OVER (ORDER BY v, i ROWS 2 PRECEDING EXCLUDE CURRENT ROW) AS f FROM A",
    "SELECT i, nth_value(i, 2) OVER (ORDER BY v, i ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING EXCLUDE TIES) AS n FROM A",
    "SELECT i, last_value(k IGNORE NULLS) OVER (ORDER BY i ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW) AS l FROM A",
    "SELECT i, first_value(v) OVER (PARTITION BY k ORDER BY v GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP)"
    " AS f FROM A",
    "SELECT i, sum(v) OVER (ORDER BY v, i ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS s FROM A",
    "SELECT i, list(i) OVER (ORDER BY v, i ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS l FROM A",
    "SELECT i, count(*) OVER (PARTITION BY k ORDER BY v GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP) AS n,"
    " max(i) OVER (PARTITION BY k ORDER BY v RANGE UNBOUNDED PRECEDING EXCLUDE TIES) AS m FROM A",
    "SELECT i, ARRAY(SELECT B.i FROM B WHERE B.k = A.k ORDER BY B.i DESC) AS l FROM A",
    "SELECT i, ARRAY(SELECT B.v + 1 FROM B WHERE B.v > A.v ORDER BY B.v, B.i LIMIT 2) AS l FROM A",
    "SELECT count(DISTINCT (k, v)) AS n, count(DISTINCT ROW(k)) AS m FROM A",
    "SELECT * FROM A JOIN B USING (k)",
    "SELECT * FROM A LEFT JOIN B USING (v, k)",
    "SELECT * FROM A NATURAL JOIN B",
    "SELECT x.v FROM (A CROSS JOIN C) AS x(t, i, k, v, u, j, l, w)",
    "SELECT main.A.i, A.v FROM A WHERE main.A.v >= 1_0 - 9",
    "SELECT i, typeof(i) AS t, [k, v] @> [v] AS l, [k] && [v] AS m, substring('hello', v - 5) AS s FROM A",
    "SELECT date_trunc('month', DATE '2020-03-05') AS d, date_add(DATE '2020-03-05', INTERVAL 2 DAY) AS e FROM A",
)
QUERIES = (*LATER, *SUBQUERIES, *DEPENDENT, *ROWS, *GROUPINGS, *JOINS, *ELEMENTS, *NESTED, *CASTS, *SHAPES)
CONSTANTS = (
    "SELECT 1 + 1 AS two, 'a' AS letter",
    "SELECT 1 AS one WHERE 1 = 2",
    "VALUES (1, 'a', NULL), (2, NULL, 5)",
    "SELECT a, sum(b) AS s FROM (VALUES (1, 2), (3, 4), (1, 5)) AS t(a, b) GROUP BY a",
    "SELECT x.i, y.i AS j FROM range(4) AS x(i) LEFT JOIN generate_series(2, 6, 2) AS y(i) ON x.i = y.i",
    "SELECT i, j FROM range(3) AS x(i), range(i) AS y(j)",
    "SELECT 1 AS x UNION SELECT 2 UNION SELECT 1",
    "SELECT x FROM unnest([3, 1, 2]) AS u(x) WHERE x IN (VALUES (1), (2))",
    "WITH t(a) AS (VALUES (1), (2)) SELECT a, (SELECT max(a) FROM t) AS m FROM t",
    "SELECT i, 'more' AS w FROM A UNION ALL SELECT 100, 'constant'",
    "SELECT i, n.x FROM A LEFT JOIN (VALUES (1, 2), (3, 4)) AS n(k, x) ON A.k = n.k",
)
"""Queries over relations that no stream gives, which whole tables can be asked together with."""
SIZE = 12


def streams_of(chance: random.Random) -> dict[str, pa.Table]:
    """Three small streams with nulls, and values that meet."""

    def stream(rows: int) -> pa.Table:
        return pa.table(
            {
                "t": pa.array(sorted(chance.randrange(40) for _ in range(rows)), pa.int64()),
                "i": pa.array(chance.sample(range(100), rows), pa.int64()),
                "k": pa.array([chance.choice([1, 2, 3, None]) for _ in range(rows)], pa.int64()),
                "v": pa.array([chance.choice([1, 2, 3, 4, None]) for _ in range(rows)], pa.int64()),
            }
        )

    return {"A": stream(12), "B": stream(10), "C": stream(6)}


def windowed(query: str) -> str:
    """The query with a window behind every stream."""
    words = query.replace("(", "( ").replace(")", " )").replace(",", " ,").split(" ")
    after = ("FROM", "JOIN", ",", "(")
    found = [
        f"{word} [RANGE {SIZE}]"
        if word in ("A", "B", "C") and before in after and not (before == "," and is_value(words, i))
        else word
        for i, (before, word) in enumerate(zip(["", *words], words, strict=False))
    ]
    return " ".join(found)


def is_value(words: list[str], position: int) -> bool:
    """Whether what stands behind a comma is no source."""
    return "FROM" not in words[:position]


def at(table: pa.Table, instant: int) -> Counter[str]:
    """The rows of a result that are valid at an instant."""
    names = [name for name in table.column_names if name not in ("valid_from", "valid_to")]
    return Counter(
        str(tuple(plain(row[name]) for name in names))
        for row in table.to_pylist()
        if row["valid_from"] <= instant and (row["valid_to"] is None or instant < row["valid_to"])
    )


def plain(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@cache
def database() -> duckdb.DuckDBPyConnection:
    """A database in memory."""
    return duckdb.connect()


def expected_at(query: str, streams: dict[str, pa.Table], instant: int) -> Counter[str]:
    """DuckDB's answer over the rows that a window holds at an instant."""
    connection = database()
    for name, table in streams.items():
        times = table["t"].to_pylist()
        kept = [i for i, time in enumerate(times) if time <= instant <= time + SIZE]
        connection.register(name, table.take(pa.array(kept, pa.int64())))
    rows = connection.sql(query).fetchall()
    return Counter(str(tuple(plain(value) for value in row)) for row in rows)


@pytest.mark.parametrize("query", [*QUERIES, *CONSTANTS])
def test_a_query_means_what_it_means_in_duckdb_at_every_instant(query: str) -> None:
    streams = streams_of(random.Random(query))
    found = ms.run(windowed(query), streams, time="t", batch_rows=9)
    assert ms.snapshot_equal(found, ms.reference(windowed(query), streams, time="t"))
    filled = [
        t for t in range(0, 52, 6) if all(any(x <= t <= x + SIZE for x in s["t"].to_pylist()) for s in streams.values())
    ]
    for instant in filled:
        assert at(found, instant) == expected_at(query, streams, instant), instant


GAPS = """WITH r AS (SELECT t, k, v, lead(t) OVER w AS u, lead(v) OVER w AS n FROM A
  WINDOW w AS (PARTITION BY k ORDER BY t, i))
  SELECT x AS t, k, CASE WHEN x = t THEN v ELSE v + (n - v) * (x - t) / (u - t) END AS v
  FROM r, unnest(CASE WHEN u > t THEN range(t, u) ELSE [t] END) AS s(x)"""


SESSIONS = """WITH d AS (SELECT i, k, t, t - lag(t) OVER (PARTITION BY k ORDER BY t) >= 3 AS new FROM A),
  n AS (SELECT *, count(*) FILTER (WHERE new) OVER (PARTITION BY k ORDER BY t) AS session FROM d)
  SELECT i, count(*) OVER (PARTITION BY k, session) AS n, min(i) OVER (PARTITION BY k, session) AS f FROM n"""


def test_a_session_of_over_is_the_rows_of_a_partition_that_follow_one_another_closely() -> None:
    streams = streams_of(random.Random(11))
    query = """SELECT i, count(*) OVER w AS n, min(i) OVER (PARTITION BY k ORDER BY t SESSION WITH GAP 3) AS f
      FROM A WINDOW w AS (PARTITION BY k ORDER BY t SESSION WITH GAP 3)"""
    found = ms.run(windowed(query), streams, time="t", batch_rows=9)
    assert ms.snapshot_equal(found, ms.reference(windowed(query), streams, time="t"))
    for instant in range(0, 52, 6):
        assert at(found, instant) == expected_at(SESSIONS, streams, instant), instant


def test_gaps_are_filled_with_what_lies_between_two_rows() -> None:
    streams = streams_of(random.Random(7))
    query = f"SELECT * FROM GAP_FILL((SELECT t, k, v FROM A [RANGE {SIZE}]) AS a, t, 1, INTERPOLATE(v) PARTITION BY k)"
    once = {name: rows.group_by("t").aggregate([(c, "max") for c in "ikv"]) for name, rows in streams.items()}
    streams = {name: rows.rename_columns(["t", "i", "k", "v"]).sort_by("t") for name, rows in once.items()}
    found = ms.run(query, streams, time="t", batch_rows=3)
    assert ms.snapshot_equal(found, ms.reference(query, streams, time="t"))
    for instant in range(0, 52, 6):
        assert at(found, instant) == expected_at(GAPS, streams, instant), instant


def test_a_scalar_sub_query_of_several_rows_stops_the_query() -> None:
    streams = streams_of(random.Random(1))
    with pytest.raises(ms.InputError) as raised:
        ms.run("SELECT i, (SELECT v FROM B [UNBOUNDED]) AS one FROM A [UNBOUNDED]", streams, time="t")
    assert "more than one row" in str(raised.value)
