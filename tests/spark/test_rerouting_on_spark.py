"""Streams of a job on Spark arrive by other keys after a migration, in executors and in the driver."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.spark.feeding import SCHEMA, Feed

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.distribution.fragments import Route

pytestmark = pytest.mark.spark

WINDOWS = "A [RANGE 30], B [RANGE 30], C [RANGE 30]"
CQL = f"SELECT A.k AS a, B.ts AS b, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.v = C.v"


@pytest.mark.parametrize("small_batches", ["0", "1 MB"])
@pytest.mark.slow
def test_a_migration_to_other_arrival_keys(small_batches, spark, tmp_path):
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    rows: dict[str, list[Any]] = {name: [] for name in feeds}

    def feed(at: int) -> None:
        for place, (name, feed) in enumerate(feeds.items()):
            some = [((i * 3 + place) % 4, (i + at) % 5, 10 * at + i) for i in range(10)]
            rows[name].append(feed.rows(*some))

    routes = []
    for part in range(3):
        with CheckpointSession(spark, checkpoint=str(tmp_path / "c"), slots=2, small_batches=small_batches) as session:
            for name, source in feeds.items():
                session.open_stream(name, "parquet", path=str(source.folder), schema=SCHEMA)
            query = session.query("q", CQL, plan="((A B) C)")
            for at in range(3 * part, 3 * part + 3):
                feed(at)
                if at == 2:
                    query.migrate("(A (B C))", "moving_state")
                session.process_available(finish=at == 8)
            routes.append(session._job.state.routes["B"])
            got = query.table()
    assert routes == [Route(("v",))] * 3
    expected = ms.reference(CQL, {name: pa.concat_tables(tables) for name, tables in rows.items()}, time="ts")
    assert expected.num_rows and ms.snapshot_equal(got, expected)
