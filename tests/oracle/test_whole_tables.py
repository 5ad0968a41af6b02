"""Queries of tables without times mean what they do elsewhere: as DuckDB says, or the test where it cannot."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

import midstream as ms

A = pa.table({"a": [1, 2, 3, 4, 5, None], "b": [3, 1, 2, 9, None, 7], "c": ["x", "y", "z", "x", "y", None]})
B = pa.table({"a": [1, 2, 2, 7], "d": [1.5, 2.5, None, 4.0], "f": pa.array([1004.3, 0.1, 2.0, 4.0], pa.float32())})

ORDERED_BELOW = (
    "SELECT array_agg(a), first(b) FROM (SELECT a, b FROM A ORDER BY b DESC)",
    "SELECT * FROM (SELECT a, b FROM A ORDER BY c, b) LIMIT 2",
    "SELECT a FROM (SELECT a, b FROM A ORDER BY b LIMIT 3) LIMIT 1",
    "SELECT array_agg(x) FROM (SELECT c AS x, count(*) AS n FROM A GROUP BY c ORDER BY n, max(b))",
    "WITH s AS (SELECT a FROM A ORDER BY b) SELECT string_agg(a, ',') FROM s",
    "SELECT a, row_number() OVER () FROM (SELECT a FROM A ORDER BY b)",
    "SELECT array_agg(x), first(y) FROM (VALUES (3, 'c'), (1, 'z'), (2, 'a')) AS v(x, y)",
    "SELECT x FROM (VALUES (3), (1), (2)) AS v(x) LIMIT 2",
    "SELECT array_agg(x * 2) FROM unnest([3, 1, 2]) AS u(x)",
    "SELECT array_agg(['n', i::TEXT]) FROM generate_series(9, 11) AS g(i)",
)
"""What depends on the order of rows goes by that of a sub-query, of VALUES and of functions in FROM."""

LISTS = (
    "SELECT x FROM (VALUES ([1, 2]), (NULL), ([]), ([NULL]), ([3])) AS v(x)",
    "SELECT x FROM (VALUES ([]), ([])) AS v(x)",
    "SELECT x FROM (VALUES (MAP {'k': 1}), (NULL), (MAP {'k': CAST(2 AS INT)})) AS v(x)",
    "SELECT CASE WHEN a < 3 THEN [a] WHEN a < 5 THEN [] ELSE CAST([7] AS INT[]) END FROM A",
    "SELECT CAST([1] AS INT[]) UNION ALL SELECT [5]",
    "SELECT coalesce(CAST(NULL AS INT[]), [1, 2])",
)
"""Lists and maps of several types of elements have those in common; one without elements takes that of the others."""

FORMS = (
    "SELECT count(*) FROM A JOIN B JOIN A AS C ON C.a = B.a ON A.a = B.a",
    "SELECT count(*) FROM A LEFT JOIN B JOIN A AS C ON C.a = B.a ON A.a = B.a",
    "SELECT count(*) FROM A JOIN (B CROSS JOIN A AS C) j ON A.a = j.d",
    "SELECT extract(hour FROM TIME '2020-05-26 13:30:25.5')",
    "SELECT d FROM B WHERE f = '1004.3'",
    "SELECT x FROM (VALUES (TIME '05:06:07')) AS v(x) WHERE x < '06:06:07' AND x > TIME '01:00:00'",
)


def rows(query: str) -> list[tuple[Any, ...]]:
    found = ms.run(query, {"A": A, "B": B}, time=None).drop_columns(["valid_from", "valid_to"])
    return [
        tuple(
            dict(v) if pa.types.is_map(f.type) and v is not None else v for f, v in zip(found.schema, row, strict=True)
        )
        for row in zip(*(column.to_pylist() for column in found.columns), strict=True)
    ]


@pytest.mark.parametrize("query", [*ORDERED_BELOW, *LISTS, *FORMS])
def test_a_query_of_tables_gives_what_a_database_gives(query: str) -> None:
    connection = duckdb.connect()
    connection.register("A", A)
    connection.register("B", B)
    assert sorted(map(repr, rows(query))) == sorted(map(repr, connection.sql(query).fetchall()))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a FROM A WHERE a IN () OR a = 1", [(1,)]),
        ("SELECT a FROM A WHERE a NOT IN () AND a < 3", [(1,), (2,)]),
        ("SELECT a FROM A ORDER BY a USING > LIMIT 2", [(5,), (4,)]),
        ("SELECT A.a, d FROM A JOIN B WHERE A.a = B.a ORDER BY d", [(1, 1.5), (2, 2.5), (2, None)]),
        ("SELECT a AS 'the a' FROM A WHERE a = 3", [(3,)]),
        ("SELECT x FROM (SELECT 1 AS x OFFSET 0)", [(1,)]),
        ("SELECT 5 offset, a FROM A WHERE a = 1", [(5, 1)]),
    ],
)
def test_forms_of_other_systems_are_read(query: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(query) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT (SELECT max(0) FILTER (WHERE a = 1)) FROM A", "max is an aggregate of the query around this one"),
        ("SELECT a AS x, a AS y, count(*) FROM A GROUP BY x, ROLLUP (y)", "two names of one value are keys"),
        ("SELECT count(*) OVER w FROM A WINDOW w AS (ORDER BY a), w AS (ORDER BY b)", "WINDOW defines a name twice"),
        ("SELECT to_char(TIMESTAMP '2020-01-02 03:04:05', 'YYYY Q')", "Q is not read in a format"),
        ("SELECT * FROM A POSITIONAL JOIN B", "unexpected 'POSITIONAL'"),
        ("SELECT * FROM A LEFT JOIN B", "expected ON or USING"),
        ("SELECT value FROM json_each('5')", "cannot compute json_pairs"),
        ("SELECT max(i) FROM I", "months are not all as long"),
        ("SELECT 1 FROM I WHERE i > i", "> cannot compare month_day_nano_interval"),
    ],
)
def test_what_would_mean_something_else_is_refused(query: str, message: str) -> None:
    months = pa.table({"i": pa.array([(1, 0, 0), (0, 2, 0)], pa.month_day_nano_interval())})
    with pytest.raises(ms.MidstreamError, match=message):
        ms.run(query, {"A": A, "B": B, "I": months}, time=None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("json_typeof('1.5')", "number"),
        ("jsonb_typeof('\"a\"')", "string"),
        ("json_typeof('[]')", "array"),
        ("CAST('[\"a\", 5]' AS JSON) ? 'a'", True),
        ("(SELECT string_agg(key || value, ',') FROM json_each('[4, \"a\"]'))", '04,1"a"'),
        ("to_char(TIMESTAMP '2020-01-02 03:04:05', 'FMDD FMMM')", "2 1"),
        ("(SELECT count(*) FROM (SELECT [a] AS l FROM A) AS p JOIN (SELECT [a] AS l FROM B) AS q USING (l))", 3),
    ],
)
def test_a_value_is_that_of_the_system_whose_name_it_has(value: str, expected: object) -> None:
    assert rows(f"SELECT {value}") == [(expected,)]
