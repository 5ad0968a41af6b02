"""A change is tried on a job's own recent rows, beside it."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from tests.job.test_replacing import clipped
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.trials import last_trial
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.interface.cli.app import app
from midstream.interface.dashboard.access import Access
from midstream.interface.dashboard.server import Dashboard
from midstream.interface.trial_text import trial_text

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


def worked(folder: Path, retain: str = "A") -> CheckpointSession:
    session = CheckpointSession(None, checkpoint=str(folder / "c"), on="local", slots=2)
    for name in "AB":
        session.stream(name, SCHEMA)
    session.query("join", JOIN)
    session.query("counts", COUNTS)
    for name in retain:
        session.query(f"kept_{name}", f"SELECT KEEP * FROM {name} [RANGE 100]")
    session.start()
    for batch in range(12):
        rows = [{"k": ts % 4, "v": ts % 7, "x": 1, "ts": ts} for ts in range(batch * 5, batch * 5 + 5)]
        session.push({"A": rows, "B": rows})
    return session


def worked_again(folder: Path) -> CheckpointSession:
    session = CheckpointSession(None, checkpoint=str(folder / "c"), on="local")
    for name in "AB":
        session.stream(name, SCHEMA)
    session.query("join", JOIN)
    return session.start()


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
    old, new = found.forecasts["join"]
    assert old is not None and new.cost < old.cost
    assert max((tmp_path / "c" / "manifests").glob("*.manifest")) == newest and newest.read_bytes() == content
    assert set(session.queries) == {"join", "counts", "kept_A"}
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
    assert "5 batches with 50 rows on local threads" in shown and "snapshots differ first at" in shown
    assert "only before: {'k'" in shown and "too few rows came" in shown


def test_a_trial_says_which_windows_lack_rows_that_are_not_kept(tmp_path):
    session = worked(tmp_path)
    changed = {"counts": COUNTS.replace("10", "120"), "other": "SELECT v FROM B [UNBOUNDED]"}
    found = session.try_(changed, last=2)
    few = session.try_({"counts": COUNTS.replace("10", "80")}, last=2)
    session.stop()
    kept_a, kept_b = (f"is not full at first: rows of stream {name} are kept for" for name in "AB")
    assert found.short_windows["counts"] == [f"A [RANGE 120] {kept_a} 100 ticks"]
    assert found.short_windows["other"] == [f"B [UNBOUNDED] {kept_b} 20 ticks"]
    assert found.short_windows["join"] == [f"B [RANGE 20] {kept_b} 20 ticks"]
    assert f"  A [RANGE 120] {kept_a} 100 ticks\n" in trial_text(found.to_json())
    assert "counts" not in few.short_windows


@pytest.mark.parametrize(
    "change",
    [
        {"plans": {"join": "(B A)"}, "scheduling": "bfs", "memory_per_slot": "16 MB"},
        {"slots": 3, "emit_every": {"counts": 10}},
    ],
    ids=str,
)
def test_another_plan_or_setting_gives_the_same_results_and_figures_of_its_own(change, tmp_path, monkeypatch):
    settings, opened = [], CheckpointSession.__init__

    def noting(self: CheckpointSession, *arguments: Any, **options: Any) -> None:
        settings.append(options)
        opened(self, *arguments, **options)

    session = worked(tmp_path, retain="AB")
    monkeypatch.setattr(CheckpointSession, "__init__", noting)
    found = session.try_(last=4, **change)
    session.stop()
    rows = pa.Table.from_pylist([{"k": ts % 4, "v": ts % 7, "x": 1, "ts": ts} for ts in range(60)])
    for name, cql in (("join", JOIN), ("counts", COUNTS)):
        expected = clipped(ms.reference(cql, {"A": rows, "B": rows}), found.since)
        for side in (found.before, found.after):
            assert ms.snapshot_equal(clipped(side.results[name], found.since), expected)
        assert found.differences[name]
    assert (found.before.slots, found.after.slots) == (2, change.get("slots", 2))
    wanted = {**found.before.plans, **change.get("plans", {})}
    assert found.after.plans == wanted and found.before.plans["join"] == "(A B)"
    told = found.to_json()
    join = told["after"]["queries"]["join"]
    assert join["probed"] == join["inserted"] == 40 and join["matched"] > 0 and join["seconds"] > 0
    assert told["forecast"]["join"]["after"]["work"] * told["ticks"] == pytest.approx(80)
    kept = last_trial(files_at(str(tmp_path / "c")))
    assert kept is not None and kept["after"] == json.loads(json.dumps(told["after"]))
    usual = {"scheduling": "dfs", "memory_per_slot": "1 GB"}
    assert [{name: side[name] for name in usual} for side in settings] == [
        usual,
        {name: change.get(name, value) for name, value in usual.items()},
    ]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_streams_of_timestamps_are_tried_as_those_of_numbers(zone, tmp_path):
    session = CheckpointSession(None, checkpoint=str(tmp_path / "c"), on="local")
    session.stream("A", pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", zone))]))
    text = "SELECT k, COUNT(*) AS n FROM A [RANGE 10 SECONDS] GROUP BY k"
    session.query("counts", text, emit_every="2 seconds")
    session.query("kept", "SELECT KEEP * FROM A [RANGE 1 MINUTE]")
    session.start()
    for second in range(0, 40, 5):
        times = [dt.datetime(2026, 1, 1, 0, 0, at, tzinfo=zone and dt.UTC) for at in range(second, second + 5)]
        session.push("A", [{"k": at.second % 3, "ts": at} for at in times])
    same = session.try_(emit_every={"counts": "4 seconds"}, last=3)
    other = session.try_({"counts": text.replace("10", "4")}, last="1 hour")
    session.stop()
    assert same.differences["counts"] and same.before.queries["counts"]["results"] > 0
    assert not other.differences["counts"]


def test_what_cannot_be_tried_is_refused_by_name(tmp_path):
    session = worked(tmp_path)
    for change, why in (
        ({"retained": 3}, "another retained cannot be tried"),
        ({"slots": 0}, "slots must be a whole number above zero"),
        ({"plans": {"gone": "(A B)"}}, "there is no query gone"),
        ({"plans": {"join": "(A C)"}}, "C"),
        ({"scheduling": "nonsense"}, "nonsense"),
        ({"memory_per_slot": "1 MB"}, "memory_per_slot must be at least"),
        ({"on": "mars"}, "cannot be tried on 'mars'"),
        ({"last": 0}, "cannot be tried on the last 0"),
        ({"last": "-3 minutes"}, "cannot be tried on the last -3 minutes"),
        ({"last": "3 parsecs"}, "parsecs"),
    ):
        with pytest.raises(ms.MidstreamError, match=why):
            session.try_(**dict[str, Any]({"last": 4, **change}))
    assert last_trial(files_at(str(tmp_path / "c"))) is None
    session.stop()


def test_plans_are_weighed_by_what_they_cost_where_the_last_batch_ran(tmp_path, monkeypatch):
    session = worked(tmp_path)
    session.adapt("join", "suggest")
    elsewhere = replace(session._job.watchers.constants, stage=5.0)
    monkeypatch.setattr(session._job.cluster, "constants", elsewhere)
    assert session._job.watchers.constants.stage == 0.0
    session.push("A", [{"k": 1, "v": 1, "x": 1, "ts": 61}])
    assert session._job.watchers.constants == elsewhere
    assert session._job.watchers.by_query["join"].adaptive.decider.policy.constants == elsewhere
    session.stop()


def test_cost_constants_are_corrected_by_what_a_trial_has_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.adaptation.cost_corrections.LEAST_ROWS", 10)
    session = worked(tmp_path)
    session.adapt("join", "suggest")
    usual = session._job.watchers.constants
    assert session.try_(last=4, slots=1, correct=False).factors and not session._job.state.settings.costs
    factors = session.try_(last=4, slots=1).factors or {}
    now = session._job.watchers.constants
    assert now.second == usual.second * factors["second"] != usual.second and now.exchange == usual.exchange
    assert session._job.watchers.by_query["join"].adaptive.decider.policy.constants == now
    session.push("A", [{"k": 1, "v": 1, "x": 1, "ts": 61}])
    assert "corrected by 1 trial" in session.queries["join"].explain()
    session.stop()
    again = worked_again(tmp_path)
    assert again._job.watchers.constants == now
    again.stop()
    (tmp_path / "job.toml").write_text(JOB.format(join=JOIN, counts=COUNTS))
    for name in "ab":
        (tmp_path / name).mkdir()
    command = ["try", str(tmp_path / "c"), str(tmp_path / "job.toml"), "--batches", "4"]
    shown = CliRunner().invoke(app, [*command, "--no-correct"])
    assert shown.exit_code == 0 and "cost constants: probe" in shown.stdout, shown.output
    assert ms.open(str(tmp_path / "c")).manifest.settings.costs["trials"] == 1
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    explained = CliRunner().invoke(app, ["explain", "join", "--checkpoint", str(tmp_path / "c"), "--json"]).stdout
    costs = json.loads(explained)["costs"]
    assert costs["trials"] == 2
    assert costs["factors"]["second"] == pytest.approx(factors["second"] * told["factors"]["second"] ** 0.5)
    assert "corrected by 2 trials" in CliRunner().invoke(app, ["plan", str(tmp_path / "c"), "join"]).stdout
    CliRunner().invoke(app, ["costs", str(tmp_path / "c"), "reset"])
    assert not ms.open(str(tmp_path / "c")).manifest.settings.costs


def test_a_running_job_is_corrected_by_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.adaptation.cost_corrections.LEAST_ROWS", 10)
    session = worked(tmp_path)
    (tmp_path / "job.toml").write_text(JOB.format(join=JOIN, counts=COUNTS).replace('"local"', '"local"\nslots = 1'))
    for name in "ab":
        (tmp_path / name).mkdir()
    command = ["try", str(tmp_path / "c"), str(tmp_path / "job.toml"), "--batches", "4", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["after"]["slots"] == 1 and session._job.state.settings.costs["factors"] == told["factors"]
    session.push("A", [{"k": 1, "v": 1, "x": 1, "ts": 61}])
    session.stop()
    assert ms.open(str(tmp_path / "c")).manifest.settings.costs["trials"] == 1


def test_the_dashboard_has_a_page_of_the_last_trial(tmp_path):
    session = worked(tmp_path)
    page = TestClient(Dashboard(session.checkpoint, Access("127.0.0.1", 8321)).app, base_url="http://127.0.0.1:8321")
    assert page.get("/api/trial").json() is None
    found = session.try_(last=4, slots=1)
    assert found.factors is None and not session._job.state.settings.costs  # too few rows came
    session.stop()
    told = page.get("/api/trial").json()
    assert told["after"]["slots"] == 1 and told["batches"] == found.batches and told["differences"]["join"]["equal"]


def test_rows_that_nobody_has_kept_are_missed_by_name(tmp_path):
    session = worked(tmp_path, retain="")
    with pytest.raises(ms.JobError, match="recent rows of stream A are not kept") as refused:
        session.try_({"counts": "SELECT x FROM A [NOW]"})
    assert "retain" in str(refused.value.hint)
    session.stop()
