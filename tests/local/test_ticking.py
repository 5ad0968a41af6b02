"""A clock moves time in a session in this process while no rows come."""

from __future__ import annotations

import datetime as dt
import threading

import pyarrow as pa

import midstream as ms
from midstream.cluster.local import backend


def test_a_clock_releases_what_waits_for_later_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "QUIET", 0.01)
    released = threading.Event()
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64())])
    with ms.Session(checkpoint=str(tmp_path), on="local") as session:
        session.stream("A", schema)
        session.ticks()
        session.query("q", "SELECT k, count(*) AS n FROM A [TUMBLE 1 MINUTE] GROUP BY k")
        session.sink("q", lambda rows, batch: released.set() if rows.num_rows else None)
        session.start()
        long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        session.push("A", [{"ts": long_ago, "k": 1}])
        assert released.wait(60)
        assert session.queries["q"].table().column("n").to_pylist() == [1]
