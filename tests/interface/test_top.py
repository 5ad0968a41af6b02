"""`midstream top`: a job in the terminal, once or live, from its checkpoint alone."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console
from tests.dashboard.jobs import NEW, batches, shop
from typer.testing import CliRunner

from midstream.checkpoint.lease import Lease
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.records import PlansAtWork, SlotPlan
from midstream.errors import JobError
from midstream.interface.cli import app
from midstream.interface.cli.top import first_look, follow
from midstream.interface.top.drawing import drawn, progress


@pytest.fixture(scope="module")
def parts():
    return batches(60)


@pytest.fixture
def job(tmp_path, parts):
    made = shop(tmp_path / "shop")
    for part in parts[:5]:
        made.batch(part)
    return made


def test_a_job_is_shown_once_in_units_that_people_read(job, tmp_path):
    done = CliRunner().invoke(app, ["top", str(tmp_path / "shop"), "--once"])
    assert done.exit_code == 0, done.output
    assert "((O P) S)" in done.output and "suggest" in done.output and "seconds" in done.output
    assert "e-0" not in done.output and "\x1b" not in done.output
    assert all(name in done.output for name in ("orders", "payments", "by-carrier", "large"))


def test_json_has_the_same_as_one_object(job, tmp_path):
    job.migrate_query("matches", NEW, "genmig")
    job.batch(batches(60)[5])
    done = CliRunner().invoke(app, ["top", str(tmp_path / "shop"), "--json"])
    told = json.loads(done.stdout)
    moving = told["queries"]["matches"]["migration"]
    assert (moving["new_plan"], moving["strategy"], moving["status"]) == (NEW, "genmig", "under way")
    stored = StoredJob.open(str(tmp_path / "shop")).query("matches")
    assert stored.migration is not None and 0 <= (progress(stored.migration, stored.advanced_to) or 0) <= 1
    assert {name: query["migrating_to"] for name, query in told["queries"].items()} == {
        "by-carrier": None,
        "large": None,
        "matches": NEW,
    }
    slots = told["slots"]
    assert len(slots["routing"]) == 256 and len(slots["bytes"]) == len(slots["rows"]) == slots["count"] == 3
    assert all(query["behind"] >= 0 for query in told["queries"].values())
    assert told == json.loads(CliRunner().invoke(app, ["status", str(tmp_path / "shop"), "--json"]).stdout)


def test_a_live_view_follows_the_job_and_the_size_of_the_terminal_until_q(job, tmp_path, parts):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=40, color_system=None)

    def keys() -> Iterator[str]:
        job.batch(parts[5])
        yield ""
        console.size = (60, 12)
        yield "x"
        yield "q"

    pressed = keys()
    follow(StoredJob.open(str(tmp_path / "shop")), console, lambda _: next(pressed), 1.0)
    assert next(pressed, None) is None
    shown = screen.getvalue()
    looks = re.findall(r"shop  stopped  batch (\d)", shown)
    assert looks == ["4", "4", "5", "5"]  # the screen is opened and drawn; the new batch, the new size


def test_a_query_is_as_far_behind_as_its_newest_row_is_ahead_of_its_results(job, tmp_path):
    stored = StoredJob.open(str(tmp_path / "shop"))
    newest = stored.streams["shipments"].latest or 0
    assert stored.behind("by-carrier") == newest - (stored.query("by-carrier").released or 0)


def test_a_job_that_has_just_started_is_waited_for(tmp_path, parts):
    made = shop(tmp_path / "shop")
    screen = io.StringIO()
    console = Console(file=screen, width=120)
    with pytest.raises(JobError, match="no finished batch"):
        first_look(str(tmp_path / "shop"), console, lambda _: "", 1.0)

    def come(_: float) -> str:
        made.batch(parts[0])
        return ""

    with Lease.take(made.driver.files):
        assert first_look(str(tmp_path / "shop"), console, lambda _: "q", 1.0) is None
        job = first_look(str(tmp_path / "shop"), console, come, 1.0)
    assert job is not None and job.batch == 0 and "waiting for the first batch" in screen.getvalue()


def test_plans_that_differ_by_slot_are_shown(job, tmp_path):
    stored = StoredJob.open(str(tmp_path / "shop"))
    known = stored.query("matches")
    stored.__dict__["queries"] = {
        "matches": replace(known, account=replace(known.account, plans=PlansAtWork(local={1: SlotPlan(NEW)})))
    }
    screen = io.StringIO()
    Console(file=screen, width=140).print(drawn(stored, 140))
    assert NEW in screen.getvalue() and "((O P) S)" in screen.getvalue()


def test_a_checkpoint_without_a_job_is_refused(tmp_path):
    done = CliRunner().invoke(app, ["top", str(tmp_path / "none")])
    assert done.exit_code == 2 and "no finished batch" in done.output
