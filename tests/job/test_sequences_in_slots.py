"""Sequences in slots and stages: as the oracle says, with shuffled rows, small batches and states opened anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.profiles import always, mixed

import midstream as ms
from midstream.api import ask

QUERIES = (
    "SELECT a.v, b.v AS w, b.ts FROM A AS a FOLLOWED BY A AS b ON a.k = b.k",
    "SELECT a.v, b.v AS w, b.ts FROM A AS a FOLLOWED BY A AS b CHRONICLE WITHIN 9",
    "SELECT a.v, b.v AS w, c.v AS x FROM A AS a FOLLOWED BY A AS b FOLLOWED BY A AS c ON b.k = c.k AND b.ts < c.ts",
    "SELECT A.v, B.v AS w, B.ts FROM A FOLLOWED BY B CHRONICLE ON A.k = B.k AND A.v < B.v",
    "SELECT A.v, B.v AS w, A.ts FROM A ASOF JOIN B ON A.k = B.k AND A.ts > B.ts",
    "SELECT A.v, B.v AS w, A.ts FROM A ASOF JOIN B ON A.k = B.k AND A.ts <= B.ts",
    "SELECT A.v, B.v AS w, A.ts FROM A ASOF LEFT JOIN B ON A.ts < B.ts WITHIN 2",
    "SELECT w, count(*) AS n FROM (SELECT B.v AS w FROM A ASOF LEFT JOIN B ON A.k = B.k AND A.ts < B.ts WITHIN 5)"
    " [RANGE 10] AS s GROUP BY w",
    "SELECT A.v, A.ts FROM A NOT FOLLOWED BY B ON A.k = B.k AND A.v < B.v WITHIN 3",
    "SELECT A.v, A.ts, C.v AS w FROM A NOT FOLLOWED BY B WITHIN 1 FOLLOWED BY B AS C ON A.k = C.k",
    "SELECT * FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS c, "
    "FINAL COUNT(*) AS size ALL ROWS PER MATCH PATTERN (S U+) WITHIN 9 DEFINE U AS v <= NEXT(v)) AS m",
    "SELECT * FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, v DESC MEASURES FIRST(S.v) AS a, LAST(U.v) AS b "
    "PATTERN (S U+) WITHIN 9 DEFINE U AS v < PREV(v)) AS m",
    "SELECT k, ts, count(DISTINCT v) OVER (PARTITION BY k ORDER BY ts) AS n, sum(DISTINCT v) OVER (ORDER BY ts) AS s "
    "FROM A",
)


def tables(seed: int, rows: int = 60) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)

    def table() -> pa.Table:
        columns = {"k": random.integers(0, 3, rows), "v": random.integers(0, 4, rows)}
        return pa.table({**columns, "ts": np.sort(random.integers(0, 40, rows))})

    return {name: table() for name in "AB"}


@pytest.mark.parametrize(("query", "slots"), always(len(QUERIES), mixed([*QUERIES], [3, 1])))
def test_sequences_mean_the_same_in_slots(query: str, slots: int, tmp_path: Path) -> None:
    inputs = tables(slots)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=slots, seed=slots)
    difference = ms.snapshot_equal(chain.run(question.tables, batch_rows=11), ms.reference(query, inputs))
    assert difference, f"{difference}\n{chain.query.staged}"
