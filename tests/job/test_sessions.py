"""Sessions, bounds of windows, windows over windows and OVER of streams, through migrations, moves and restarts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.test_over import tables

import midstream as ms
from midstream.api import ask

JOINED = "B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
SESSIONS = f"SELECT A.k, A.v, A.window_start, A.window_end, C.v AS c FROM A [PARTITION BY k SESSION 6], {JOINED}"
BOUNDS = f"SELECT A.k, A.v, A.window_start, A.window_end, C.v AS c FROM A [TUMBLE 20], {JOINED}"
OVERLAPPING = f"SELECT A.k, A.window_end, count(*) AS n FROM A [HOP 20, 8], {JOINED} GROUP BY A.k, A.window_end"
NESTED = (
    "SELECT window_end, sum(n) AS n FROM (SELECT k, count(*) AS n FROM A [PARTITION BY k SESSION 6] GROUP BY k) "
    "[TUMBLE 40] AS s GROUP BY window_end"
)
BATCHES = "SELECT k, sum(v) AS s FROM A [PARTITION BY k ROWS 4 SLIDE 3] GROUP BY k"
STREAMS = (
    "SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY ts) AS s, lag(v, 2) OVER (PARTITION BY k ORDER BY ts) AS p, "
    "avg(v) OVER (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING) AS a, row_number() OVER (ORDER BY ts) AS n, "
    "dense_rank() OVER (PARTITION BY k ORDER BY ts) AS d, "
    "lag(nullif(v % 3, 0), 2 IGNORE NULLS) OVER (PARTITION BY k ORDER BY ts) AS z FROM A"
)
UNTIL = f"SELECT A.k, A.v, C.v AS c FROM A [VALID UNTIL v], {JOINED}"
COMPUTED = f"SELECT A.k, count(*) AS n FROM A [VALID UNTIL ts + k * 5] AS A, {JOINED} GROUP BY A.k"
PATTERN = (
    "SELECT k, v, w FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES S.v AS v, LAST(U.v) AS w "
    "PATTERN (S U+) WITHIN 60 DEFINE U AS v >= PREV(v)) AS m"
)


def lasting(seed: int = 5) -> dict[str, pa.Table]:
    """Streams of which A says until when its rows are valid."""
    inputs = tables(seed=seed)
    a, v = inputs["A"], inputs["A"].column("v").to_pylist()
    until = [None if n % 9 == 0 else t + n for t, n in zip(a.column("ts").to_pylist(), v, strict=True)]
    return {**inputs, "A": a.set_column(1, "v", pa.array(until, pa.int64()))}


EVERYWHERE = ("genmig", "genmig_reference_point", "genmig_shortened", "parallel_track", "moving_state")


@pytest.mark.parametrize(
    ("query", "strategy"),
    [
        (SESSIONS, "moving_state"),
        (OVERLAPPING, "moving_state"),
        (OVERLAPPING, "moving_state_paced"),
        (UNTIL, "moving_state"),
        (UNTIL, "moving_state_paced"),
        (COMPUTED, "moving_state"),
        *((BOUNDS, strategy) for strategy in EVERYWHERE),
    ],
)
def test_a_migration_changes_no_window(query, strategy, tmp_path):
    inputs = lasting()
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    got = chain.run(question.tables, 30, {1: ("(A (B C))", strategy)}, part="smallest")
    assert ms.snapshot_equal(got, ms.reference(query, inputs))
    assert chain.query.plan.text == "(A (B C))"


@pytest.mark.parametrize(
    ("query", "word"), [(SESSIONS, "a SESSION window"), (OVERLAPPING, "windows that overlap"), (UNTIL, "VALID UNTIL")]
)
def test_no_split_time_is_claimed_where_there_is_none(query, word):
    moved = ms.Migration(at=60, plan="(A (B C))", strategy="genmig")
    with pytest.raises(ms.MigrationError, match=word):
        ms.run(query, lasting(), time="ts", plan="((A B) C)", migrations=[moved])


@pytest.mark.parametrize("query", [SESSIONS, OVERLAPPING, NESTED, BATCHES, STREAMS, PATTERN, UNTIL, COMPUTED])
def test_a_restart_in_other_slots_changes_no_window(query, tmp_path):
    inputs = lasting(seed=7)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2)
    parts = chain.cut(question.tables, 25)
    for i, part in enumerate(parts):
        if i == len(parts) // 2:
            chain = Chain(question.plan, question.catalog, tmp_path, resize=3)
        chain.batch(part)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, count(*) AS n FROM A [PARTITION BY k SESSION 10] GROUP BY k",
        "SELECT k % 7 AS k, sum(k) OVER (PARTITION BY k % 7 ORDER BY ts) AS s FROM A",
        "SELECT k % 7 AS k, sum(k) OVER (PARTITION BY k % 7 ORDER BY ts RANGE 50 PRECEDING) AS s FROM A",
    ],
)
def test_what_is_no_longer_needed_is_forgotten(query, tmp_path):
    rows = 4_000
    stream = pa.table({"k": [i // 5 % 400 for i in range(rows)], "ts": list(range(rows))})
    question = ask(query, {"A": stream})
    chain = Chain(question.plan, question.catalog, tmp_path, slots=1)
    kept = []
    for part in chain.cut(question.tables, 200):
        chain.batch(part)
        slots = [e.rows for f in chain.manifest.segments.values() for s in f.values() for es in s.values() for e in es]
        kept.append(sum(slots))
    assert max(kept[10:]) <= 2 * max(kept[:10]) < rows
