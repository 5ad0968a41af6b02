"""What listeners and `statistics` say of instants: times where streams have timestamps, numbers where they have not."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms

NOON = dt.datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    ("type", "instants"),
    [
        (pa.int64(), [10, 20, 30]),
        (pa.timestamp("us"), [NOON + dt.timedelta(seconds=s) for s in range(3)]),
        (pa.timestamp("us", "UTC"), [(NOON + dt.timedelta(seconds=s)).replace(tzinfo=dt.UTC) for s in range(3)]),
    ],
)
def test_instants_are_given_as_the_stream_has_them(tmp_path: Path, type: pa.DataType, instants: list[Any]):
    events: list[dict[str, Any]] = []
    rows = pa.table({"v": [1, 2, 3], "ts": pa.array(instants, type)})
    with ms.Session(on="local", checkpoint=str(tmp_path / "job")) as session:
        session.stream("A", rows.schema, time="ts")
        query = session.query("q", "SELECT v FROM A [NOW]")
        session.on_progress(events.append)
        session.start()
        for i in range(3):
            session.push("A", rows.slice(i, 1))
        known = query.statistics
    last = events[-1]
    assert last["registers"] == {"A": instants[-1]} and last["released"] == {"q": instants[-1]}
    assert (known["registers"], known["released"]) == ({"A": instants[-1]}, instants[-1])
    assert events[0]["registers"] == {"A": instants[0]}
