"""Plain SQL over tables whose rows have always been there: each query is answered as DuckDB answers it."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import midstream as ms
from midstream.cluster.local import whole_tables

TABLES = {
    "parts": pa.table(
        {
            "id": pa.array([1, 2, 3, 4, 5, 6, 7], pa.int64()),
            "whole": pa.array([None, 1, 1, 2, 2, 4, 3], pa.int64()),
            "name": ["car", "engine", "body", "piston", "valve", "ring", None],
        }
    ),
    "moments": duckdb.connect()
    .sql(
        """SELECT * FROM (VALUES (TIMESTAMP '2024-02-29 12:34:56.789', INTERVAL '1 month'), (NULL, NULL),
          (TIMESTAMP '1999-12-31 23:59:59.000001', INTERVAL '3 days'), (TIMESTAMP '2024-01-01', NULL)) v(t, i)"""
    )
    .to_arrow_table(),
    "ways": pa.table({"a": pa.array([1, 2, 3, 1, 5], pa.int64()), "b": pa.array([2, 3, 1, 4, 6], pa.int64())}),
}
RECURSIVE = (
    "WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 20) SELECT sum(n) AS s FROM t",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION SELECT 10 - n FROM t) SELECT n FROM t",
    "WITH RECURSIVE t AS (SELECT 'a' AS s UNION ALL SELECT s || 'b' FROM t WHERE length(s) < 4) SELECT s FROM t",
    """WITH RECURSIVE below AS (SELECT id, name, 0 AS depth FROM parts WHERE whole IS NULL
      UNION ALL SELECT p.id, b.name || '/' || p.name, depth + 1 FROM below AS b JOIN parts AS p ON p.whole = b.id)
      SELECT * FROM below""",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION SELECT b FROM ways, r WHERE a = x) SELECT x FROM r",
    """WITH RECURSIVE r(x, y) AS (SELECT a, b FROM ways UNION SELECT x, b FROM r JOIN ways ON y = a)
      SELECT x, count(*) AS n FROM r GROUP BY x""",
    "WITH RECURSIVE r(x) AS (SELECT id FROM parts WHERE id > 99 UNION SELECT x + 1 FROM r) SELECT x FROM r",
    """WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x WHERE i < 4),
      y(i) AS (SELECT i FROM x UNION ALL SELECT i * 10 FROM y WHERE i < 50), z AS (SELECT max(i) AS m FROM y)
      SELECT y.i, m FROM y, z""",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n IN (SELECT id FROM parts)) SELECT n FROM t",
    "WITH RECURSIVE t(n, l) AS (SELECT 1, [1] UNION ALL SELECT n + 1, list_append(l, n) FROM t WHERE n < 3) FROM t",
    "WITH RECURSIVE t(n) AS (SELECT NULL::INT UNION SELECT n FROM t) SELECT n FROM t",
    """SELECT id, id IN (WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n * 2 FROM t WHERE n < 5) SELECT n FROM t)
      AS power FROM parts""",
    """WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 4)
      SELECT a.n, b.n AS m FROM t AS a LEFT JOIN t AS b ON a.n = b.n + 1""",
)

PLAIN = (
    "SELECT substring(name FOR 2), substring(name FROM 2 FOR 1), substring(name FROM 2) FROM parts",
    "SELECT name, name !~ 'n' AS a, name ~~ '%n%' AS b, name !~~ '%n%' AS c, name ~~* '%N' AS d FROM parts",
    'SELECT name FROM parts WHERE name < \'d\' COLLATE "C" ORDER BY name COLLATE "POSIX"',
    "SELECT TIMESTAMP WITHOUT TIME ZONE '2024-01-01' AS t, TIME WITHOUT TIME ZONE '10:00' AS u FROM parts",
    "SELECT generate_series(id, 9, 4) AS a, range(1, id, 2) AS b, range(id) AS c FROM parts",
    "SELECT generate_series(DATE '2024-01-01', DATE '2024-01-03', INTERVAL '1 day') AS days FROM parts",
    "SELECT CAST(t AS TEXT) AS t FROM moments",
    "SELECT epoch(t - TIMESTAMP '2024-01-01') AS a, t + INTERVAL '1 day' AS b FROM moments",
    "SELECT TIMESTAMP '2024-01-31' + i AS a, DATE '2024-01-31' - i AS b FROM moments",
    "SELECT p.id, count(w.*) AS n, count(*) AS m FROM parts AS p LEFT JOIN ways AS w ON w.a = p.id GROUP BY p.id",
    "SELECT id FROM parts WHERE id IN ((SELECT a FROM ways)) OR id NOT IN ((SELECT b FROM ways WHERE b < 9))",
    "SELECT * FROM ways AS w, LATERAL (SELECT * FROM parts AS p, LATERAL (SELECT w.a + p.id AS s) AS x) AS y",
    "SELECT id, (SELECT sum(a) FROM ways JOIN (SELECT id AS i) AS x ON a = i) AS s FROM parts",
    "SELECT whole, sum(id) AS s, sum(sum(id)) OVER (ORDER BY whole) AS r FROM parts GROUP BY ROLLUP (whole)",
    """SELECT a, b, rank() OVER (PARTITION BY grouping(a, b) ORDER BY count(*) DESC, a, b) AS place FROM ways
      GROUP BY CUBE (a, b) QUALIFY place < 3""",
    "SELECT DISTINCT ON (whole) whole, id FROM parts GROUP BY GROUPING SETS ((whole, id), (id)) ORDER BY whole, id",
    "SELECT name.upper() AS a, parts.name.upper().length() AS b FROM parts",
    "SELECT id FROM parts WHERE EXISTS (SELECT (SELECT max(b) FROM ways), a FROM ways WHERE a = id)",
    "SELECT (SELECT max(a) FROM (VALUES (id), (3)) AS v(a)) AS m FROM parts",
    """SELECT whole, count(*) AS n, (SELECT max(a) FROM ways WHERE a > 0) AS m, rank() OVER (ORDER BY count(*)) AS r
      FROM parts GROUP BY ROLLUP (whole)""",
    "SELECT a, sum(b) AS s FROM ways GROUP BY a HAVING EXISTS (SELECT 1 FROM parts WHERE whole = max(ways.b))",
    "SELECT (SELECT sum(p.id)) AS s FROM parts AS p",
    "SELECT sum(id) AS s, (SELECT sum(w.a) + sum(p.id) FROM ways AS w) AS z FROM parts AS p",
    "SELECT min(a) > ANY (SELECT id FROM parts WHERE id > min(ways.a)) AS x FROM ways",
    "SELECT whole, (SELECT sum(w.a) + sum(parts.id) FROM ways AS w) AS z FROM parts GROUP BY whole",
    "SELECT a, (SELECT max(ways.id) FROM parts AS ways) AS z FROM ways",
    "SELECT a, (SELECT count(*) FROM parts WHERE id <= count(ways.b)) AS c FROM ways GROUP BY a ORDER BY a",
    """SELECT id, (SELECT count(*) FROM unnest(l) AS u(x)) AS n, (SELECT max(x) FROM unnest(l) AS u(x)) AS m
      FROM (SELECT id, CASE WHEN id < 6 THEN [a FOR a IN [1, 2, 3] IF a < id] END AS l FROM parts) AS p""",
)
FACTS = {
    "SELECT id || [id, 0] || whole AS l FROM parts WHERE id = 4": [([4, 4, 0, 2],)],
    "SELECT name FROM parts WHERE name !~* 'IN|A' AND id < 5": [("body",), ("piston",)],
    "SELECT to_char(TIMESTAMP '2024-03-05 04:05:06', 'FMDay FMDD FMMonth FMHH24') AS t": [("Tuesday 5 March 4",)],
    "SELECT (4, 'piston') = (SELECT id, name) AS same FROM parts WHERE id > 3 AND id < 6": [(True,), (False,)],
    "SELECT id FROM parts WHERE (id, whole) < (SELECT max(a), max(b) FROM ways WHERE a < 3)": [(1,), (2,)],
    "SELECT (1, 2) = (SELECT a, b FROM ways WHERE a = 9) AS none": [(None,)],
    "SELECT column2, v.column1 FROM (VALUES (1, 'a')) AS v": [("a", 1)],
    "SELECT id FROM range(2)": [(0,), (1,)],
    "SELECT (SELECT count(*) FROM range(2) WHERE id > 0) AS n FROM (VALUES (7)) AS o(id)": [(2,)],
}
"""Queries that DuckDB does not read, and what PostgreSQL says."""


@cache
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, table in TABLES.items():
        connection.register(name, table)
    return connection


@pytest.mark.parametrize("query", [*RECURSIVE, *PLAIN])
def test_a_query_gives_what_a_database_gives(query: str) -> None:
    expected = rows(database().sql(query).to_arrow_table())
    for run in (ms.run, ms.reference):
        assert rows(run(query, TABLES, time=None)) == expected


@pytest.mark.parametrize(("query", "expected"), FACTS.items())
def test_a_query_gives_what_is_written_of_it(query: str, expected: list[tuple[Any, ...]]) -> None:
    for run in (ms.run, ms.reference):
        assert rows(run(query, TABLES, time=None)) == Counter(tuple(_plain(v) for v in row) for row in expected)


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT count(DISTINCT i) AS n FROM moments", ms.QueryError, "count cannot tell apart"),
        ("SELECT i + i AS n FROM moments", ms.InputError, "months are not all as long"),
        ("SELECT i * 2 AS n FROM moments", ms.InputError, "months are not all as long"),
        ("SELECT * FROM generate_series(1, 5, 0)", ms.InputError, "steps of 0"),
        ("SELECT range(1, 5, id - 1) AS l FROM parts", ms.InputError, "steps of 0"),
        ("SELECT name FROM parts ORDER BY name COLLATE nocase", ms.QueryError, "nocase"),
        ("SELECT to_char(TIMESTAMP '2024-03-05', 'FMDAY') AS t", ms.QueryError, "DAY shows letters"),
        ("SELECT id FROM parts WHERE (id, whole) = (SELECT a, b FROM ways)", ms.InputError, "only_value"),
        ("SELECT explode(map([1], [id])) FROM parts", ms.QueryError, "gives two columns"),
        ("SELECT id, (SELECT max(parts.id)) AS m FROM parts", ms.QueryError, "id is neither grouped"),
        ("SELECT id FROM parts WHERE EXISTS (SELECT nothing FROM ways)", ms.QueryError, "unknown column nothing"),
        (
            "SELECT whole, rank() OVER (ORDER BY whole) FROM parts GROUP BY CUBE (1)",
            ms.QueryError,
            "groups by number",
        ),
    ],
)
def test_what_would_mean_something_else_is_refused(query: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ms.run(query, TABLES, time=None)


def test_rows_of_a_recursion_are_there_at_every_instant_of_what_they_are_joined_with() -> None:
    query = """WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3)
      SELECT s.k, t.n FROM s [RANGE 5] JOIN t ON t.n = s.k"""
    streams = {"s": pa.table({"ts": [-7, 2, 3], "k": [1, 3, 4]})}
    found = ms.run(query, streams)
    assert [(r["k"], r["n"], r["valid_from"], r["valid_to"]) for r in found.to_pylist()] == [
        (1, 1, -7, -1),
        (3, 3, 2, 8),
    ]
    assert ms.snapshot_equal(found, ms.reference(query, streams))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t) FROM t", "goes on after 50 rounds"),
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n / 2 FROM t) FROM t", "begins with int64 and goes on"),
        ("WITH RECURSIVE t(n) AS (SELECT n FROM t UNION ALL SELECT 1) FROM t", "a UNION whose second query does"),
        ("WITH RECURSIVE t(n) AS (SELECT 1 INTERSECT SELECT n FROM t) FROM t", "a UNION whose second query does"),
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION SELECT n + 1 FROM t LIMIT 5) FROM t", "a UNION whose second query"),
        ("WITH RECURSIVE t(a, b) AS (SELECT 1 UNION SELECT a FROM t) FROM t", "2 names are given to 1 columns"),
        ("WITH RECURSIVE t(n) AS (SELECT k FROM s UNION SELECT n FROM t) FROM t", "tables without times"),
        (
            """WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL (WITH RECURSIVE u(m) AS (SELECT n FROM t UNION ALL
              SELECT m + 1 FROM u WHERE m < 3) SELECT m FROM u)) FROM t""",
            "reads another one that is not answered yet",
        ),
        (
            """SELECT (WITH RECURSIVE t(n) AS (SELECT k UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT max(n) FROM t)
              FROM s [RANGE 5]""",
            "unknown column k",
        ),
    ],
)
def test_a_recursion_that_has_no_answer_is_refused(query: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_tables, "MOST_ROUNDS", 50)
    with pytest.raises(ms.QueryError, match=message) as caught:
        ms.run(query, {"s": pa.table({"ts": [1], "k": [1]})})
    assert caught.value.line is not None


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows of an answer as a multiset, numbers of all types alike."""
    names = [place for place, name in enumerate(table.column_names) if name not in ("valid_from", "valid_to")]
    columns = [table.column(place).to_pylist() for place in names]
    return Counter(tuple(_plain(value) for value in row) for row in zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    match value:
        case bool():
            return str(value)
        case int() | float() | Decimal():
            return f"{float(value):.9g}"
        case list() | tuple():
            return tuple(_plain(one) for one in value)
        case dict():
            return tuple((key, _plain(one)) for key, one in value.items())
        case _:
            return value
