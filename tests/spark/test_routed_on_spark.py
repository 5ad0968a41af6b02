"""Routed joins on Spark: rounds of probes, migrations from and to trees, another number of slots."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.distribution.routed.joins import draw_join
from tests.job.test_chain import KEYS, KEYS_GROUPED, tables
from tests.job.test_routed_under_kills import disordered, drawn_migrations
from tests.spark.feeding import Feed
from tests.spark.test_moving_on_spark import feed_all

import midstream as ms
from midstream.adaptation.policy import Policy
from midstream.api import ask
from midstream.cluster.checkpoint_session import CheckpointSession

pytestmark = pytest.mark.spark

WAYS = "A -> B <- C, B <- A -> C, C -> B -> A"


def session_on(
    spark: Any, folder: Path, feeds: dict[str, Feed], query: str, plan: str, slots: int, small: int
) -> CheckpointSession:
    session = CheckpointSession(spark, checkpoint=str(folder / "checkpoint"), slots=slots, small_batches=small)
    for name, feed in feeds.items():
        session.stream(name, feed.frame(spark), time="ts")
    session.query("q", query, plan=plan)
    return session


@pytest.mark.parametrize(
    ("query", "first", "second", "strategy", "small"),
    [
        (KEYS_GROUPED, WAYS, "((A B) C)", "moving_state", 0),
        pytest.param(KEYS, "((A B) C)", WAYS, "genmig", 0, marks=pytest.mark.slow),
        pytest.param(KEYS, WAYS, "((A B) C)", "genmig", 2**20, marks=pytest.mark.slow),
    ],
)
def test_routed_joins_and_trees_change_places_on_spark(query, first, second, strategy, small, spark, tmp_path):
    inputs = tables(rows=60, last=100)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    for since in (0, 25, 50):
        feed_all(feeds, inputs, since, since + 25)
    with session_on(spark, tmp_path, feeds, query, first, 2, small) as session:
        session.before_batch(lambda batch: session.queries["q"].migrate(second, strategy) if batch == 1 else None)
        session.process_available()
    feed_all(feeds, inputs, 75, 101)
    with session_on(spark, tmp_path, feeds, query, first, 3, small) as session:
        session.process_available()
        session.finish()
        assert session.queries["q"].plan.text == second
        found = session.queries["q"].table()
    same = ms.snapshot_equal(found, ms.reference(query, inputs, time="ts"))
    assert same, str(same)


def write_parts(folder: Path, inputs: dict[str, pa.Table], part: int, parts: int) -> None:
    """Two files, and so two batches, of each stream's next rows."""
    for name, table in inputs.items():
        (folder / name).mkdir(exist_ok=True)
        cuts = [table.num_rows * i // (2 * parts) for i in (2 * part, 2 * part + 1, 2 * part + 2)]
        for number, (start, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
            pq.write_table(table.slice(start, end - start), folder / name / f"{part}-{number}.parquet")


def migrate_or_go_on(query: Any, plan: str, strategy: str) -> None:
    """Goes over to a plan, unless the query still migrates, or runs by it."""
    if query.migrating is None and query.plan.text != plan:
        query.migrate(plan, strategy)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count"), [(0, 4), (1, 5), (2, 6), (3, 8)])
def test_random_joins_by_all_kinds_of_plans_agree_with_the_oracle_on_spark(seed, count, spark, tmp_path):
    """Any join graph, other conditions than equality, rows out of order; a migration, after a restart."""
    random = Random(7000 + seed)
    joined = draw_join(random, count, 12 if count < 5 else 6)
    inputs = {name: disordered(random, table) for name, table in joined.tables.items()}
    first, migrations = drawn_migrations(random, joined, 4)
    lateness = {name: stream.lateness for name, stream in ask(joined.text, inputs).catalog.streams.items()}

    def opened() -> CheckpointSession:
        session = CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2, small_batches=0)
        for name in inputs:
            columns = "ts BIGINT, v BIGINT, k0 BIGINT, k1 STRING, k2 INT"
            reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
            session.stream(name, reader.parquet(str(tmp_path / name)), time="ts", lateness=lateness[name])
        session.query("q", joined.text, plan=first)
        return session

    for part, (_, (plan, strategy)) in enumerate(migrations.items()):
        write_parts(tmp_path, inputs, part, len(migrations))
        with opened() as session:
            if part:
                migrate_or_go_on(session.queries["q"], plan, strategy)
            session.process_available()
    with opened() as session:
        session.finish()
        found = session.queries["q"].table()
    same = ms.snapshot_equal(found, ms.reference(joined.text, joined.tables))
    assert same, f"{same}\n{joined.text}\n{first}, then {migrations}"


@pytest.mark.parametrize("small", [0, pytest.param(2**20, marks=pytest.mark.slow)])
def test_streams_live_at_sites_on_spark(small, spark, tmp_path):
    """Rows come in at their site, bytes between slots are counted, and in executors each slot names its own.

    A link that becomes slow before the third batch is weighed after it.
    """
    inputs, seen = tables(rows=60, last=100), list[dict[str, Any]]()
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    for since, until in ((0, 33), (33, 66), (66, 101)):
        feed_all(feeds, inputs, since, until)
    sites, links = {"eu": [0, 1], "us": [2]}, {"eu <-> us": "1 ms, 1 GB/s"}
    with CheckpointSession(
        spark, checkpoint=str(tmp_path / "checkpoint"), slots=3, small_batches=small, sites=sites, links=links
    ) as session:
        for name, feed in feeds.items():
            session.stream(name, feed.frame(spark), time="ts", site={"A": "eu", "B": "us"}.get(name))
        wanted = "A -> B@us -> C, B -> A -> C, C -> B -> A"
        query = session.query("q", KEYS, plan=wanted, adaptive=Policy("suggest", warm_up=1))
        session.on_progress(seen.append)

        def slow_down(batch: int) -> None:
            if batch == 2:
                session.links({"eu -> us": "9 s, 1 KB/s"})

        session.before_batch(slow_down)
        session.process_available()
        reasons, told = [decision.reason for decision in query.decisions], query.explain()
        session.finish()
        found = query.table()
    same = ms.snapshot_equal(found, ms.reference(KEYS, inputs, time="ts"))
    assert same, str(same)
    assert seen[0]["moved"]["0 to 2"] > 0
    assert reasons[-1].startswith("The link from eu to us went from 1 ms, 1 GB/s to 9 s, 1 kB/s. ")
    assert "Bytes from eu to us in the last batch: " in told and "were expected" in told
    assert set(seen[0]["executors"]) == (set() if small else {"0", "1", "2"})
