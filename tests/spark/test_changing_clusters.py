"""A job that goes from this process to Spark and back, in the middle of a migration too: nothing is read twice."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.sinks import digest_of, folder
from midstream.cluster.sources import Source, connect

SCHEMA = "ts BIGINT, k BIGINT, v BIGINT"
CQL = "SELECT A.k, A.v, C.v AS w FROM A [RANGE 60], B [RANGE 60], C [RANGE 60] WHERE A.k = B.k AND B.k = C.k"
GROUPS = "SELECT k, count(*) AS n, sum(v) AS s FROM A [RANGE 30] GROUP BY k"


def drawn(stream: str, number: int) -> pa.Table:
    random = np.random.default_rng([ord(stream), number])
    times = np.sort(random.integers(number * 20, (number + 1) * 20, 15))
    return pa.table({"ts": times, "k": random.integers(0, 5, 15), "v": random.integers(0, 9, 15)})


def put(base: Path, number: int) -> None:
    for stream in "ABC":
        folder = base / f"in {stream}"
        folder.mkdir(exist_ok=True)
        draft = folder / f".{number}"
        pq.write_table(drawn(stream, number), draft)
        os.utime(draft, ns=(number * 10**9, number * 10**9))
        draft.rename(folder / f"{number:04d}.parquet")


def opened(base: Path, spark: object | None) -> CheckpointSession:
    on = "local" if spark is None else "spark"
    session = CheckpointSession(spark, checkpoint=str(base / "checkpoint"), on=on, slots=2)
    for stream in "ABC":
        session.open_stream(
            stream, "parquet", path=str(base / f"in {stream}"), schema=SCHEMA, options={"maxFilesPerTrigger": "1"}
        )
    session.query("q", CQL, plan="((A B) C)")
    session.query("g", GROUPS)
    return session


@pytest.mark.parametrize("strategy", ["genmig", pytest.param("moving_state_paced", marks=pytest.mark.slow)])
def test_a_job_goes_to_spark_and_back_in_the_middle_of_a_migration(spark, tmp_path, strategy):
    calls: list[int] = []
    for number, where in enumerate([None, spark, None, spark, None]):
        put(tmp_path, 2 * number)
        put(tmp_path, 2 * number + 1)
        with opened(tmp_path, where) as session:
            session.sink("q", lambda rows, batch: calls.append(batch))
            if number != 2:  # the folder is away for a while, and is then given what it is owed on the other cluster
                session.sink("q", folder(str(tmp_path / "out")))
            if number == 1:
                session.queries["q"].migrate("(A (B C))", strategy)
            session.process_available()
            if number == 4:
                session.finish()
                inputs = {s: pa.concat_tables([drawn(s, i) for i in range(10)]) for s in "ABC"}
                query = session.queries["q"]
                assert query.plan.text == "(A (B C))" and query.history[-1].status == "done"
                assert ms.snapshot_equal(query.table(), ms.reference(CQL, inputs))
                assert digest_of(pq.read_table(tmp_path / "out")) == digest_of(query.table())
                assert ms.snapshot_equal(session.queries["g"].table(), ms.reference(GROUPS, inputs))
    assert len(set(calls)) == len(calls)  # no sink was called twice


def test_a_stream_that_was_read_from_a_folder_cannot_become_another(spark, tmp_path):
    put(tmp_path, 0)
    with opened(tmp_path, None) as session:
        session.process_available()
    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint")) as session:
        for stream in "ABC":
            session.stream(stream, spark.readStream.schema(SCHEMA).parquet(str(tmp_path / f"in {stream}")))
        session.query("q", CQL)
        session.query("g", GROUPS)
        with pytest.raises(ms.JobError, match="was read from a folder so far"):
            session.process_available()


def test_a_stream_from_a_source_goes_to_spark_and_back_by_its_positions(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.cluster.local.readings.LAG_EVERY", -1.0)

    def add(*rows: tuple[object, ...]) -> None:
        with closing(sqlite3.connect(tmp_path / "in.db")) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS t (ts, k)")
            connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
            connection.commit()

    for number, where in enumerate([None, spark, None]):
        add(*((10 * number + n, n) for n in range(7)), (10 * number + 8, "bad"))
        source = connect("sqlite", path=str(tmp_path / "in.db"), table="t", schema="ts BIGINT, k BIGINT")
        on = "local" if where is None else "spark"
        with CheckpointSession(where, checkpoint=str(tmp_path / "checkpoint"), on=on) as session:
            session.open_stream("s", source, options={"maxRowsPerTrigger": "5"})
            session.query("q", "SELECT ts, k + 1 AS k FROM s [NOW]")
            session.start("available")
            session.wait()
            session.end_available(finish=number == 2)
        known = ms.open(tmp_path / "checkpoint")
        waited = [known.store.read(batch).streams.lags.get("s") for batch in known.batches]
        assert waited[-2:] == [3, 0] or number == 2
    stored = ms.open(tmp_path / "checkpoint")
    assert sorted(stored.results("q").column("k").to_pylist()) == sorted(n + 1 for n in range(7) for _ in range(3))
    assert len(stored.dead_letters()) == 3


def test_a_partition_that_lags_makes_no_row_late_on_spark(spark, tmp_path):
    rows = {"a": [{"ts": 100 * n, "k": n} for n in range(9)], "b": [{"ts": n, "k": 100 + n} for n in range(30)]}

    class Numbers(Source):
        """Rows in two partitions, one of which is far ahead."""

        name = "numbers"

        def schema(self) -> Any:
            return pa.schema([("ts", pa.int64()), ("k", pa.int64())])

        def partitions(self) -> Any:
            return dict.fromkeys(rows, 0)

        def end(self, partition: str, start: Any, limit: int | None = None) -> Any:
            return min(len(rows[partition]), start + (limit or 10**9))

        def read(self, partition: str, start: Any, end: Any) -> Any:
            return pa.Table.from_pylist(rows[partition][start:end], self.schema())

        def lag(self, partition: str, start: Any) -> Any:
            return len(rows[partition]) - start

    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint")) as session:
        session.open_stream("s", Numbers(), options={"maxRowsPerTrigger": "12"})
        session.query("q", "SELECT k FROM s [NOW]")
        session.start("available")
        session.wait()
        session.end_available(finish=True)
    stored = ms.open(tmp_path / "checkpoint")
    assert len(stored.dead_letters()) == 0
    assert stored.results("q").num_rows == 39
    assert stored.store.read(stored.batches[0]).streams.lags == {"s": 27}
