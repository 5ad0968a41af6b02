"""Queries that come and go on a running Spark session: the stream never stops, and what is common is shared."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.spark.feeding import Feed

from midstream.checkpoint.inspect import describe
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.interface.cli import app
from midstream.lab.yardsticks.joins import streaming_query

pytestmark = pytest.mark.spark

JOIN = "SELECT A.v AS a, B.v AS b FROM A [RANGE 10], B [RANGE 10] WHERE A.k = B.k"
COUNTED = "SELECT v, count(*) AS n FROM B [RANGE 10] GROUP BY v"


def wait_for_rows(session: CheckpointSession, rows: int) -> None:
    """Waits until so many rows of each stream have been worked through."""
    until = time.monotonic() + 120
    while True:
        manifest = session._job.manifest
        if manifest is not None and manifest.streams.rows == {"A": rows, "B": rows}:
            return
        assert time.monotonic() < until, "the rows did not come"
        time.sleep(0.05)


def test_queries_come_and_go_without_restarting_the_stream(spark, tmp_path: Path):
    from typer.testing import CliRunner

    feeds = {name: Feed(tmp_path / name) for name in "AB"}
    checkpoint = str(tmp_path / "checkpoint")
    session = CheckpointSession(spark, checkpoint=checkpoint, slots=2)
    for name, feed in feeds.items():
        feed.rows((1, 10, 0))
        session.stream(name, feed.frame(spark))
    session.query("q", JOIN)
    with session:
        session.start("100 milliseconds")
        stream = streaming_query(session)
        wait_for_rows(session, 1)
        told = {}

        def talk() -> None:
            run = CliRunner().invoke
            told["add"] = run(app, ["add", checkpoint, "same", JOIN])
            told["other"] = run(
                app, ["add", checkpoint, "other", "SELECT v, count(*) AS n FROM B [RANGE 10] GROUP BY v"]
            )
            told["schedule"] = run(app, ["migrate", checkpoint, "--scheduling", "bfs"])

        other = threading.Thread(target=talk)
        other.start()
        other.join()
        assert all(done.exit_code == 0 for done in told.values()), [done.output for done in told.values()]
        for name, feed in feeds.items():
            feed.rows((1, 20 + len(name), 5), (1, 30, 6))
        wait_for_rows(session, 3)
        assert "rows of state together with q" in session.queries["same"].explain()
        session.drop("q")
        for feed in feeds.values():
            feed.rows((1, 40, 8), (1, 50, 30))
        wait_for_rows(session, 5)
        assert streaming_query(session) is stream and stream.isActive
        assert session.scheduling == "bfs"
        (started,) = session.queries["same"].history
        session.finish()
        same, counted = session.queries["same"].table(), session.queries["other"].table()
        manifest = session._job.manifest
        assert manifest is not None and {bool(file.part) for file in manifest.outputs.results["same"].newer} == {
            True,
            False,
        }
        read = session.queries["same"].results().toArrow()
        assert sorted(read.to_pylist(), key=str) == sorted(same.to_pylist(), key=str)
    assert started.record["inherited"] == {"A": 0, "B": 0}
    assert started.record["shares"] == ["q"]
    # All pairs of all batches, the first one's included: the query began with the window's content.
    assert same.num_rows == 4 * 4 + 1
    assert set(counted["v"].to_pylist()) == {10, 21, 30, 40, 50}
    held = describe(checkpoint)
    assert set(held["queries"]) == {"same", "other"}
    assert held["settings"]["scheduling"] == "bfs"
