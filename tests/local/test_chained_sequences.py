"""Sequences above sequences in a job: states lie in the order of partition groups, by whatever columns tell them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import midstream as ms

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
ROWS = [{"ts": ts // 2, "k": ts * 7 % 5, "v": ts} for ts in range(60)]
QUERIES = {
    "a row before a row before a row": "SELECT x.v AS a, y.v AS b, z.v AS c FROM A AS x "
    "FOLLOWED BY A AS y ALL ON x.k = y.k WITHIN 4 FOLLOWED BY A AS z ALL ON y.k = z.k WITHIN 9",
    "only of the last": "SELECT z.v AS c FROM A AS x FOLLOWED BY B AS y ON x.k = y.k "
    "FOLLOWED BY A AS z ON y.k = z.k WITHIN 9",
    "those without a first": "SELECT DISTINCT k, u FROM (SELECT A.k, B.v AS u FROM A ASOF LEFT JOIN B "
    "ON A.k = B.k AND B.v < 20 WITHIN 3) [RANGE 9] AS s",
    "those that nothing follows": "SELECT A.k, A.v, C.v AS w FROM A NOT FOLLOWED BY B ON A.k = B.k AND A.v < B.v + 9 "
    "WITHIN 3 FOLLOWED BY A AS C ON A.k = C.k",
    "rows of numbered matches": "SELECT * FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES MATCH_NUMBER() "
    "AS n, CLASSIFIER() AS c, FINAL SUM(U.v) AS s ALL ROWS PER MATCH PATTERN (S U{1,2}) DEFINE U AS v < NEXT(v)) AS m",
}


@pytest.mark.parametrize("cql", QUERIES.values(), ids=QUERIES)
def test_a_job_gives_what_the_oracle_does_while_groups_move(cql, tmp_path):
    others = ROWS[::3]
    with ms.Session(checkpoint=str(tmp_path), on="local", slots=2) as session:
        for name in "AB":
            session.stream(name, SCHEMA)
        session.query("q", cql)
        session.start()
        for first in range(0, len(ROWS), 12):
            session.push({"A": ROWS[first : first + 12], "B": others[first // 3 : first // 3 + 4]})
            session.rescale(slots=2 + first // 12 % 2)
        session.finish()
        inputs = {"A": pa.Table.from_pylist(ROWS, schema=SCHEMA), "B": pa.Table.from_pylist(others, schema=SCHEMA)}
        assert (equal := ms.snapshot_equal(session.results("q"), ms.reference(cql, inputs))), str(equal)
        assert session.results("q").num_rows
