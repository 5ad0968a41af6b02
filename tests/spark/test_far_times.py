"""Times far ahead on Spark: dead letters that move nothing, whether Spark selects rows itself or not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from tests.profiles import always
from tests.spark.feeding import Feed

import midstream as ms

FAR = 10**9


@pytest.mark.parametrize("query", always(1, ["SELECT k FROM A [NOW]", "SELECT k FROM A [NOW] WHERE v < 5"]))
def test_a_row_far_ahead_of_its_stream_does_not_make_others_late(query, spark, tmp_path):
    feed = Feed(tmp_path / "A")
    for times in ((1, 2, FAR), (FAR,), (3, FAR + 1), (4,), tuple(range(FAR, FAR + 10))):
        feed.rows(*((t, 9 if t >= FAR else 1, t) for t in times))
    session: Any = ms.Session(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2)
    session.stream("A", feed.frame(spark), max_ahead=100)
    session.query("q", query)
    session.process_available()
    session.finish()
    taken = sorted(row["k"] for row in session.results("q").collect())
    assert taken == [1, 2, 3, 4, *(() if "WHERE" in query else range(FAR, FAR + 10))]
    known = session._job.manifest.streams
    assert known.unusable == {"A": 3} and known.late == {} and known.rows == {"A": 17}
    assert {row["reason"] for row in session.dead_letters().collect()} == {"too far ahead"}
    session.stop()


def test_a_timestamp_far_ahead_of_the_clock_does_not_make_others_late(spark, tmp_path):
    folder = tmp_path / "A"
    folder.mkdir()
    now = dt.datetime.now()
    for i, moment in enumerate([now, now.replace(year=now.year + 100), now + dt.timedelta(seconds=1)]):
        (folder / f"{i}.json").write_text(f'{{"k": {i}, "ts": "{moment.isoformat()}"}}\n')
    session: Any = ms.Session(spark, checkpoint=str(tmp_path / "checkpoint"), slots=1)
    session.open_stream("A", "json", path=str(folder), schema="k BIGINT, ts TIMESTAMP", lateness="1 hour")
    session.query("q", "SELECT k FROM A [NOW]")
    session.process_available()
    session.finish()
    assert sorted(row["k"] for row in session.results("q").collect()) == [0, 2]
    assert [row["reason"] for row in session.dead_letters().collect()] == ["too far ahead"]
    session.stop()
