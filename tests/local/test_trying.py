"""A change is tried on a job's own recent rows, beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.interface.cli.app import app

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("x", pa.int64()), ("ts", pa.int64())])
JOIN = "SELECT A.k, A.v, B.v AS w FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k"
COUNTS = "SELECT k, COUNT(*) AS n FROM A [RANGE 10] GROUP BY k"
JOB = """
[job]
checkpoint = "c"
on = "local"
[streams.A]
format = "parquet"
path = "a"
schema = "k BIGINT, v BIGINT, x BIGINT, ts BIGINT"
[streams.B]
format = "parquet"
path = "b"
schema = "k BIGINT, v BIGINT, x BIGINT, ts BIGINT"
[queries.join]
cql = "{join}"
[queries.counts]
cql = "{counts}"
"""


def worked(folder: Path, retain: bool = True) -> ms.Session:
    session = ms.Session(checkpoint=str(folder / "c"), on="local", slots=2)
    for name in "AB":
        session.stream(name, SCHEMA)
    session.query("join", JOIN)
    session.query("counts", COUNTS)
    if retain:
        session.query("kept", "SELECT KEEP * FROM A [RANGE 100]")
    session.start()
    for batch in range(12):
        rows = [{"k": ts % 4, "v": ts % 7, "x": 1, "ts": ts} for ts in range(batch * 5, batch * 5 + 5)]
        session.push({"A": rows, "B": rows})
    return session


def test_what_a_change_does_to_the_last_batches_is_known_before_it_counts(tmp_path):
    session = worked(tmp_path)
    newest = max((tmp_path / "c" / "manifests").glob("*.manifest"))
    content = newest.read_bytes()
    changed = JOIN + " AND A.v > 2"
    found = session.try_({"join": changed, "new": "SELECT v FROM A [NOW]"}, plans={"join": "(B A)"}, slots=3, last=4)
    assert found.batches == 4 and found.rows == {"A": 20, "B": 20}
    assert found.differences["counts"] and not found.differences["join"]
    difference = found.differences["join"]
    assert difference.instant == found.since == 40
    assert difference.only_in_x and all(row["v"] <= 2 for row in difference.only_in_x) and not difference.only_in_y
    assert found.after.queries["new"]["results"] > 0 and "new" not in found.before.queries
    old, new = found.costs["join"]
    assert old is not None and new is not None and new < old
    assert max((tmp_path / "c" / "manifests").glob("*.manifest")) == newest and newest.read_bytes() == content
    assert set(session.queries) == {"join", "counts", "kept"}
    session.stop()


def test_a_job_file_is_tried_by_command(tmp_path):
    worked(tmp_path).stop()
    for name in "ab":
        (tmp_path / name).mkdir()
    (tmp_path / "job.toml").write_text(JOB.format(join=JOIN.replace("RANGE 20", "RANGE 15"), counts=COUNTS))
    command = ["try", str(tmp_path / "c"), str(tmp_path / "job.toml"), "--batches", "5"]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["batches"] == 5 and told["differences"]["counts"]["equal"] and not told["differences"]["join"]["equal"]
    assert told["before"]["queries"]["join"]["state_rows"] > told["after"]["queries"]["join"]["state_rows"]
    shown = CliRunner().invoke(app, command).stdout
    assert "5 batches with 50 rows, before and after the change" in shown and "snapshots differ first at" in shown


def test_rows_that_nobody_has_kept_are_missed_by_name(tmp_path):
    session = worked(tmp_path, retain=False)
    with pytest.raises(ms.JobError, match="recent rows of stream A are not kept") as refused:
        session.try_({"counts": "SELECT x FROM A [NOW]"})
    assert "retain" in str(refused.value.hint)
    session.stop()
