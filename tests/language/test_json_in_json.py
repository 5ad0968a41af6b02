"""JSON within JSON: what functions, casts and sub-queries are known to give as JSON is no text in it."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import midstream as ms

ROWS = {"t": pa.table({"ts": [1, 2, 3], "x": [1, 2, 2], "j": ['{"a": [1]}', "2", None]})}
QUERIES = [
    "SELECT json_group_array(json_object('x', x, 'j', j::JSON)) AS it FROM t [UNBOUNDED]",
    "SELECT json_group_array(j::JSON) AS it FROM t [UNBOUNDED]",
    "SELECT json_group_array(j) AS it FROM t [UNBOUNDED]",
    "SELECT json_object('x', x, 'all', json_group_array(j::JSON)) AS it FROM t [UNBOUNDED] GROUP BY x",
    "SELECT json_group_object(ts, j::JSON) AS it FROM t [UNBOUNDED]",
    "SELECT json_group_array(o) AS it FROM (SELECT json_object('x', x) AS o FROM t [UNBOUNDED]) AS s",
    "WITH s AS (SELECT j::JSON AS k FROM t [UNBOUNDED]) SELECT json_array(k) AS it FROM s",
    "WITH s AS (SELECT j::JSON AS k FROM t [UNBOUNDED]), r AS (SELECT k AS l FROM s) SELECT to_json(l) AS it FROM r",
    "SELECT json_object('n', x, 'all', (SELECT json_group_array(j::JSON) FROM t [UNBOUNDED])) AS it FROM t [UNBOUNDED]",
    "SELECT json_group_array(o) AS it FROM (SELECT DISTINCT json_array(x) AS o FROM t [UNBOUNDED] WHERE x = 2) AS s",
    "SELECT json_array(o) AS it FROM (SELECT j::JSON AS o FROM t [UNBOUNDED] UNION ALL SELECT json_array(1)) AS s",
    "SELECT json_array(o) AS it FROM (SELECT x, json_group_array(x) AS o FROM t [UNBOUNDED] GROUP BY x) AS s",
    "SELECT json_array(o) AS it FROM t [UNBOUNDED], LATERAL (SELECT json_object('x', t.x) AS o) AS s",
    "SELECT json_array((SELECT j::JSON FROM t [UNBOUNDED] WHERE ts = 1)) AS it FROM t [UNBOUNDED]",
    "SELECT json_array(o) AS it FROM (SELECT j::JSON AS o FROM t [UNBOUNDED] ORDER BY ts LIMIT 2) AS s",
    "SELECT string_agg(x, '{0}{a}{order}') AS it FROM t [UNBOUNDED]",
]


@pytest.mark.parametrize("query", QUERIES)
def test_json_is_json_in_json_as_in_duckdb(query: str) -> None:
    answers = []
    for run in (ms.run, ms.reference):
        last = [row for row in run(query, ROWS).to_pylist() if row["valid_to"] is None]
        answers.append(sorted(str(row["it"]) for row in last))
    with duckdb.connect() as connection:
        connection.register("t", ROWS["t"])
        expected = connection.sql(query.replace("[UNBOUNDED]", "")).fetchall()
    assert answers == [sorted(str(row[-1]) for row in expected)] * 2


def test_json_of_several_rows_has_their_order_and_each_once() -> None:
    for written, expected in (("j::JSON ORDER BY ts DESC", '[null,2,{"a":[1]}]'), ("DISTINCT x", "[1,2]")):
        query = f"SELECT json_group_array({written}) AS it FROM t [UNBOUNDED]"
        for run in (ms.run, ms.reference):
            assert [row["it"] for row in run(query, ROWS).to_pylist() if row["valid_to"] is None] == [expected]
