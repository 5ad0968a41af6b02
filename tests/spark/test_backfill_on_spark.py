"""Windows are filled from folders on Spark too: the driver reads files again, and all slots are given their rows."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import midstream as ms
from midstream.lab.fuzz.changed_jobs import clipped

SHORT = "SELECT k, COUNT(*) AS n FROM A [RANGE 10] GROUP BY k"
LONG = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM A [RANGE 40] GROUP BY k"


def rows_of(first: int, last: int) -> pa.Table:
    times = list(range(first, last))
    return pa.table({"k": [ts % 3 for ts in times], "v": times, "ts": times})


@pytest.mark.slow
def test_a_longer_window_is_filled_from_the_folder_on_spark(spark, tmp_path):
    (tmp_path / "a").mkdir()
    session = ms.Session(spark, checkpoint=str(tmp_path / "c"), slots=2)
    session.open_stream("A", "parquet", path=str(tmp_path / "a"), schema="k BIGINT, v BIGINT, ts BIGINT")
    session.query("q", SHORT)

    def written(first: int, last: int) -> None:
        path = tmp_path / "a" / f"{first:03d}.parquet"
        pq.write_table(rows_of(first, last), path)
        os.utime(path, (first + 1, first + 1))
        session.process_available()

    written(0, 30)
    written(30, 60)
    told = session.replace("q", LONG, backfill_rate=1000)
    for first in (60, 66, 72):
        written(first, first + 6)
    session.finish()
    query, got = session.queries["q"], session.results("q").toArrow()
    session.stop()
    whole = query.history[-1].record["complete_from"]
    assert [window["how"] for window in told["windows"]] == ["backfilled"] and query.cql == LONG and whole < 78
    expected = ms.reference(LONG, {"A": rows_of(0, 78)})
    assert ms.snapshot_equal(clipped(got, whole), clipped(expected, whole)) and got.num_rows
