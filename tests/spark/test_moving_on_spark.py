"""Moving state on Spark itself: its hash, other slots after a restart, other plans, and going back."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from tests.job.test_chain import KEYS, KEYS_GROUPED, tables
from tests.job.test_moving import skewed
from tests.profiles import always
from tests.spark.feeding import Feed

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.control import ask
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.operators.group_hash import group_hash

pytestmark = pytest.mark.spark


def columns_of_all_kinds() -> pa.Table:
    moments = [datetime.datetime(2020, 1, 1, 3), datetime.datetime(1960, 1, 1), None, datetime.datetime(1970, 1, 1)]
    return pa.table(
        {
            "int8": pa.array([1, -1, None, 127], pa.int8()),
            "int32": pa.array([1, -1, None, 2**31 - 1], pa.int32()),
            "int64": pa.array([1, -1, None, 2**62], pa.int64()),
            "bool": pa.array([True, False, None, True]),
            "double": pa.array([1.5, -0.0, None, float("nan")]),
            "float": pa.array([1.5, -0.0, None, 0.1], pa.float32()),
            "decimal": pa.array([Decimal("1.23"), Decimal("-4.00"), None, Decimal("99.99")], pa.decimal128(10, 2)),
            "wide": pa.array([Decimal("1.2"), Decimal("-12.8"), None, Decimal("12345678901234567890.5")]).cast(
                pa.decimal128(30, 1)
            ),
            "widest": pa.array(
                [Decimal(f"{10**37 + 1}"), Decimal("-" + "9" * 38), None, Decimal(0)], pa.decimal128(38, 0)
            ),
            "text": pa.array(["", "a", None, "wörld and some more than thirty-two bytes of it"]),
            "binary": pa.array([b"", b"1234", None, b"x" * 70]),
            "date": pa.array([None if m is None else m.date() for m in moments]),
            "zoned": pa.array(moments, pa.timestamp("us", "UTC")),
            "local": pa.array(moments, pa.timestamp("us")),
        }
    )


def test_the_hash_is_the_one_that_spark_routes_by(spark):
    table = columns_of_all_kinds()
    keys = [[name] for name in table.schema.names] + [["int32", "text"], ["text", "int64", "double"]]

    def normal(name: str) -> Any:
        floating = pa.types.is_floating(table.schema.field(name).type)
        return F.col(name).cast("double") + F.lit(0.0) if floating else F.col(name)

    hashed = spark.createDataFrame(table).select(*(F.xxhash64(*map(normal, key)) for key in keys)).collect()
    for i, key in enumerate(keys):
        mine = group_hash([table.column(name).combine_chunks() for name in key]).view(np.int64)
        assert mine.tolist() == [row[i] for row in hashed], key


def session_on(
    spark: Any, folder: Path, feeds: dict[str, Feed], query: str, slots: int | None, **options: Any
) -> CheckpointSession:
    session = CheckpointSession(spark, checkpoint=str(folder / "checkpoint"), slots=slots, **options)
    for name, feed in feeds.items():
        session.stream(name, feed.frame(spark), time="ts")
    session.query("q", query, plan="((A B) C)")
    return session


def feed_all(feeds: dict[str, Feed], inputs: dict[str, pa.Table], since: int, until: int) -> None:
    """A batch of the rows of some time."""
    for name, feed in feeds.items():
        rows = [tuple(row[c] for c in ("k", "v", "ts")) for row in inputs[name].to_pylist()]
        feed.rows(*(row for row in rows if since <= row[2] < until))


@pytest.mark.parametrize("query", always(1, [KEYS, KEYS_GROUPED]))
def test_plans_and_slots_change_on_spark(query, spark, tmp_path):
    inputs = tables(rows=60, last=100)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    for since in (0, 20, 40):
        feed_all(feeds, inputs, since, since + 20)
    with session_on(spark, tmp_path, feeds, query, 2) as session:
        q = session.queries["q"]
        session.before_batch(lambda batch: q.migrate("(A (B C))", "moving_state") if batch == 2 else None)
        session.process_available()
        assert q.plan.text == "(A (B C))"
        assert [record.strategy for record in q.history] == ["moving_state"]
    for since in (60, 80):
        feed_all(feeds, inputs, since, since + 20)
    with session_on(spark, tmp_path, feeds, query, 3) as session:
        q = session.queries["q"]
        assert q.plan.text == "(A (B C))"
        assert session._job.manifest is not None
        second = session._job.manifest.batch_id + 2
        session.before_batch(lambda batch: q.migrate("((A B) C)", "genmig") if batch == second else None)
        session.process_available()
        assert [told["slots"] for told in session.moves] == [[2, 2], [2, 3]]  # streams arrive by other keys first
        q.cancel_migration()
        session.finish()
        assert [record.status for record in q.history] == ["done", "cancelled"]
        assert ms.snapshot_equal(q.table(), ms.run(query, inputs))


def test_a_second_process_rebalances_and_cancels(spark, tmp_path):
    inputs = skewed(200)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    feed_all(feeds, inputs, 0, 100)
    with session_on(spark, tmp_path, feeds, KEYS, 4) as session:
        session.start("100 milliseconds")
        files = files_at(session.checkpoint)
        while ask(files, {"command": "status"})["batch"] is None:
            pass
        assert ask(files, {"command": "rebalance"}) == {"changes": True}
        ask(files, {"command": "migrate", "query": "q", "plan": "(A (B C))", "strategy": "genmig"})
        told = ask(files, {"command": "cancel", "query": "q"})
        assert (told["plan"], told["cancelled"]) == ("((A B) C)", "(A (B C))")
    feed_all(feeds, inputs, 100, 201)
    # No batch came after the requests: the session that goes on carries them out.
    with session_on(spark, tmp_path, feeds, KEYS, None) as session:
        session.process_available()
        session.finish()
        assert len(session.moves) == 1
        assert [record.status for record in session.queries["q"].history] == ["cancelled"]
        assert ms.snapshot_equal(session.queries["q"].table(), ms.run(KEYS, inputs))
