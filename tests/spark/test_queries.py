"""Queries on Spark itself: any number of slots, several stages, migrations, the same answers as in process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.profiles import always

import midstream as ms

pytestmark = pytest.mark.spark

QUERIES = {
    "two stages": "SELECT A.v, C.v AS c FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.v = C.v",
    "distinct off the key": "SELECT DISTINCT A.v FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k",
    "groups and strings": "SELECT s, count(*) AS n, avg(x) AS x FROM A [TUMBLE 25] GROUP BY s",
    "sessions": "SELECT k, window_start, count(*) AS n FROM A [PARTITION BY k SESSION 5] GROUP BY k, window_start",
    "rows before": "SELECT k, v, sum(v) OVER w AS s, lag(v) OVER w AS p FROM A "
    "WINDOW w AS (PARTITION BY k ORDER BY ts)",
    "patterns": "SELECT k, n FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES COUNT(U.*) AS n "
    "PATTERN (S U+) DEFINE U AS v > PREV(v)) AS m",
    "changes": "SELECT ISTREAM k FROM A [PARTITION BY k ROWS 2]",
}


def tables(rows: int = 200) -> dict[str, pa.Table]:
    random = np.random.default_rng(9)

    def table() -> pa.Table:
        return pa.table(
            {
                "k": random.integers(0, 6, rows),
                "v": random.integers(0, 30, rows),
                "x": pa.array(random.normal(size=rows), mask=random.random(rows) < 0.1),
                "s": pa.array(random.choice(["a", "b", "ü", ""], rows), mask=random.random(rows) < 0.1),
                "ts": np.sort(random.integers(0, 200, rows)),
            }
        )

    return {name: table() for name in "ABC"}


@pytest.mark.parametrize("name", always(1, QUERIES))
def test_spark_gives_what_the_embedded_runtime_gives(name, spark):
    inputs = tables()
    got = ms.run(QUERIES[name], inputs, on=spark, batch_rows=250)
    assert ms.snapshot_equal(got, ms.run(QUERIES[name], inputs))


def test_a_planned_migration_runs_on_spark(spark):
    inputs = tables()
    windows = "A [RANGE 20], B [RANGE 20], C [RANGE 20]"
    query = f"SELECT A.v AS a, B.v AS b, C.v AS c FROM {windows} WHERE A.k = B.k AND B.k = C.k"
    migrations = [ms.Migration(at=80, plan="(A (B C))", strategy="genmig")]
    got = ms.run(query, inputs, on=spark, batch_rows=120, plan="((A B) C)", migrations=migrations)
    assert sorted(map(str, got.to_pylist())) == sorted(map(str, ms.run(query, inputs).to_pylist()))


def test_every_type_survives_the_way_through_spark(spark):
    import datetime as dt
    from decimal import Decimal

    day = dt.datetime(2024, 3, 31, 1, 30)
    table = pa.table(
        {
            "ts": pa.array([day, day + dt.timedelta(seconds=1)], pa.timestamp("us", "Europe/Berlin")),
            "naive": pa.array([day, None], pa.timestamp("us")),
            "u8": pa.array([255, None], pa.uint8()),
            "u64": pa.array([2**64 - 1, 0], pa.uint64()),
            "date": pa.array([day.date(), None]),
            "time": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")),
            "span": pa.array([dt.timedelta(days=3, microseconds=1), None], pa.duration("us")),
            "money": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(30, 2)),
            "raw": pa.array([b"\x00\xff", None]),
            "flag": pa.array([True, None]),
            "list": pa.array([[1, None], None], pa.list_(pa.int64())),
            "half": pa.array([1.5, float("nan")], pa.float32()),
        }
    )
    query = "SELECT * FROM A [RANGE 1 MINUTE]"
    got, expected = ms.run(query, {"A": table}, on=spark), ms.run(query, {"A": table})
    assert got.schema.equals(expected.schema)
    assert str(got.to_pylist()) == str(expected.to_pylist())


def test_an_error_of_the_query_reaches_the_caller_as_it_is(spark):
    table = pa.table({"k": [2**62, 2**62], "ts": [1, 2]})
    with pytest.raises(ms.InputError, match="overflow"):
        ms.run("SELECT k * 4 AS k FROM A [NOW]", {"A": table}, on=spark)


def test_rows_without_a_time_are_counted_on_spark_too(spark):
    rows = pa.table({"k": [1, 2, 3], "ts": pa.array([1, None, 3], pa.int64())})
    with pytest.warns(ms.DeadLetterWarning, match="1 of A"):
        full = ms.run("SELECT k FROM A [NOW]", {"A": rows}, on=spark, full=True)
    result, dead = full.table, full.dead_letters
    assert result.column("k").to_pylist() == [1, 3]
    assert result.schema.metadata[b"midstream.dead_letters"] == b'{"A": {"null time": 1}}'
    assert [(letters.stream, letters.reason, len(letters)) for letters in dead] == [("A", "null time", 1)]


def test_streams_with_and_without_a_zone_do_not_join(spark, tmp_path):
    with ms.Session(spark, checkpoint=str(tmp_path / "checkpoint")) as session:
        for name, kind in (("A", "TIMESTAMP"), ("B", "TIMESTAMP_NTZ")):
            (tmp_path / name).mkdir()
            files = spark.readStream.schema(f"at {kind}, k BIGINT").parquet(str(tmp_path / name))
            session.stream(name, files, time="at")
        with pytest.raises(ms.QueryError, match=r"(?s)B and A do not share a time.*give B.at its zone"):
            session.query("q", "SELECT A.k FROM A [RANGE 1 HOUR], B [RANGE 1 HOUR] WHERE A.k = B.k")
