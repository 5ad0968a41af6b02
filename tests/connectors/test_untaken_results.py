"""A query whose results its table cannot have stops the job, and another text in its place has it start again."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.sinks import connect
from midstream.errors import JobError

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
COUNTS = "SELECT k, COUNT(*) AS n FROM A [RANGE 10] GROUP BY k"
TWICE = "SELECT k, v, COUNT(*) AS n FROM A [RANGE 10] GROUP BY k, v"
NULLS = "SELECT CASE WHEN v < 45 THEN k END AS k, COUNT(*) AS n FROM A [RANGE 10] GROUP BY 1"
LATEST = "SELECT k, MAX(v) AS n FROM A [RANGE 10] GROUP BY k"


def declared(folder: Path, cql: str, replace: bool = False) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder / "checkpoint"), on="local")
    session.stream("A", SCHEMA)
    session.query("q", cql, replace=replace)
    session.sink("q", connect("sqlite", path=str(folder / "out.db"), table="t", form="current", key=["k"]))
    return session


def pushed(session: CheckpointSession, first: int, last: int) -> None:
    for low in range(first, last, 5):
        session.push("A", [{"ts": ts, "k": ts % 3, "v": ts} for ts in range(low, low + 5)])


@pytest.mark.parametrize("another", [COUNTS, LATEST])
@pytest.mark.parametrize(("refused", "why"), [(TWICE, "two rows of the key k"), (NULLS, "whose key k is null")])
def test_a_job_whose_table_cannot_have_results_starts_again_with_another_text(refused, why, another, tmp_path):
    session = declared(tmp_path, COUNTS).start()
    pushed(session, 0, 40)
    session.replace("q", refused)
    with pytest.raises(JobError, match=why):
        pushed(session, 40, 80)
    with suppress(JobError):
        session.stop()
    with pytest.raises(JobError, match=why) as stopped:
        declared(tmp_path, refused).start()
    assert "midstream run JOB.toml --replace" in str(stopped.value.hint)
    with declared(tmp_path, another, replace=True).start() as session:
        pushed(session, 80, 120)
        assert session.queries["q"].cql == another
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        rows = connection.execute("SELECT k, n FROM t ORDER BY k").fetchall()
    assert [k for k, _ in rows] == [0, 1, 2]
    assert all(n in (3, 4) if another == COUNTS else n > 110 for _, n in rows)
