"""OVER a stream without a window: every row has the values that it has in a table of all rows."""

from __future__ import annotations

from random import Random

import duckdb
import pyarrow as pa
import pytest
from tests.engine import driving
from tests.engine.test_over import stream

import midstream as ms
from midstream.cluster.local.embedded import StreamProgress
from midstream.cluster.local.live_query import LiveQuery
from midstream.optimizer.plans import plan_query

CALLS = (
    "sum(v)",
    "sum(f)",
    "avg(f)",
    "avg(v)",
    "count(*)",
    "count(v) FILTER (WHERE f > 0.5)",
    "min(f)",
    "max(v)",
    "first_value(v)",
    "first_value(v IGNORE NULLS)",
    "last_value(f)",
    "count(DISTINCT v)",
    "sum(DISTINCT v) FILTER (WHERE f > 0.5)",
)
ONLY_BOUNDED = ("stddev(v)", "nth_value(v, 2)", "string_agg(v::text, ',' ORDER BY v, ts, f)")
PLACES = (
    *("row_number()", "rank()", "dense_rank()"),
    *("lag(v)", "lag(f, 3, -1)", "lag(v IGNORE NULLS)", "lag(v, 3, -1 IGNORE NULLS)"),
)
EXCLUDED = ("", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES")
STARTS = ("ROWS 2 PRECEDING", "ROWS BETWEEN 4 PRECEDING AND 2 PRECEDING", "RANGE 7 PRECEDING", "GROUPS 2 PRECEDING")
ENDLESS = ("", "ROWS UNBOUNDED PRECEDING", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING")


def drawn(seed: int) -> str:
    """Several calls over partitions in the order of time; values that are equal in it are told apart."""
    random = Random(seed)
    items = []
    for i in range(random.randint(1, 4)):
        partition = random.choice(["", "PARTITION BY k "])
        frame = random.choice([*STARTS, *ENDLESS])
        calls = [*CALLS, *ONLY_BOUNDED] if frame in STARTS else list(CALLS)
        call = random.choice(PLACES) if random.random() < 0.3 else random.choice(calls)
        order = "ts" if frame.startswith("RANGE 7") else "ts, f"
        if frame in STARTS:
            frame += random.choice(EXCLUDED)
        if call in PLACES:
            frame, order = "", "ts, f"
        if call.startswith(("first", "last", "nth")) and order == "ts":
            call = "max(v)"
        items.append(f"{call} OVER ({partition}ORDER BY {order} {frame}) AS c{i}")
    where = random.choice(["", " WHERE v > 1"])
    return f"SELECT ts, k, f, {', '.join(items)} FROM A{where}"


@pytest.mark.parametrize("seed", range(24))
def test_rows_have_the_values_of_a_table_of_all_rows(seed: int) -> None:
    query, table = drawn(seed), stream(seed=seed)
    found = ms.run(query, {"A": table}, time="ts", batch_rows=1 + 9 * (seed % 3))
    assert ms.snapshot_equal(found, ms.reference(query, {"A": table}, time="ts")), query
    assert found.column("valid_from").to_pylist() == found.column("ts").to_pylist()
    with duckdb.connect() as connection:
        connection.register("A", table)
        expected = connection.sql(query).arrow()
    by = [("ts", "ascending"), ("f", "ascending")]
    ours, theirs = found.sort_by(by).select(expected.schema.names), pa.table(expected).sort_by(by)
    for name in ours.column_names:
        assert ours.column(name).to_pylist() == pytest.approx(theirs.column(name).to_pylist(), nan_ok=True), query


def test_a_running_sum_of_floats_does_not_depend_on_batches() -> None:
    random = Random(4)
    values = [random.choice([1e16, -1e16, 1.0, 1e-9]) * random.random() for _ in range(200)]
    table = pa.table({"ts": range(200), "f": values})
    query = "SELECT ts, sum(f) OVER (ORDER BY ts) AS s FROM A"
    sums = [ms.run(query, {"A": table}, time="ts", batch_rows=rows).column("s").to_pylist() for rows in (1, 7, 500)]
    assert sums[0] == sums[1] == sums[2]


def test_a_query_goes_on_with_what_over_gives() -> None:
    inputs = {"A": stream()}
    query = (
        "SELECT k, count(*) AS rises FROM "
        "(SELECT k, v, lag(v) OVER (PARTITION BY k ORDER BY ts, f) AS before FROM A) [TUMBLE 10] AS s "
        "WHERE v > before GROUP BY k"
    )
    found = ms.run(query, inputs, time="ts", batch_rows=9)
    assert found.num_rows
    assert ms.snapshot_equal(found, ms.reference(query, inputs, time="ts"))


def test_times_of_any_unit_are_measured() -> None:
    query = "SELECT ts, count(*) OVER (ORDER BY ts RANGE INTERVAL '5' SECOND PRECEDING) AS n FROM A"
    for unit, scale in (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)):
        times = pa.array([scale * t for t in (0, 3, 5, 6, 11, 19)], pa.timestamp(unit))
        found = ms.run(query, {"A": pa.table({"ts": times})}, time="ts", batch_rows=1)
        assert found.column("n").to_pylist() == [1, 2, 3, 3, 2, 1], unit


def test_lag_over_known_values_keeps_as_many_of_them_as_it_asks_for() -> None:
    rows = [(t, t if t % 100 == 0 else None) for t in range(2_000)]
    inputs = {"A": pa.table({"ts": [t for t, _ in rows], "v": [v for _, v in rows]})}
    query = "SELECT ts, lag(v, 2 IGNORE NULLS) OVER (ORDER BY ts) AS before FROM A"
    relation, catalog = driving.question(query, inputs)
    live = LiveQuery(plan_query(relation), catalog.functions)
    progress, given = StreamProgress(catalog.streams["A"]), []
    for start in range(0, 2_000, 50):
        live.feed("A", *progress.accept(driving.one_batch(inputs["A"]).slice(start, 50)))
        progress.raise_register()
        live.advance({"A": progress.register})
        given.append(sum(state.rows for state in live.execution.states()))
    assert max(given) < 150
