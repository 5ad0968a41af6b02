"""What commands about jobs say fits people: units, plurals, and a job that does not run is told apart at once."""

import datetime as dt
import json
from dataclasses import replace

import pytest
from tests.dashboard.jobs import NEW, batches, shop
from typer.testing import CliRunner

from midstream.checkpoint.lease import Lease
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stored_queries import past_migration
from midstream.interface.answers import migration_forecast
from midstream.interface.cli import app
from midstream.interface.cli.decided import decided_text
from midstream.interface.status_text import migration_line, removed_lines, results_text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("jobs") / "shop"
    job = shop(where, slots=1)
    for part in batches(24):
        job.batch(part)
    with Lease.take(job.driver.files):
        pass  # somebody has run it
    return str(where)


def test_status_gives_instants_of_timestamp_streams_as_times(folder):
    told = json.loads(said("status", folder, "--json")[1])
    assert told["name"] == "shop" and told["phase"] == "stopped"
    shown = [stream["register"] for stream in told["streams"].values()]
    shown += [query["released"] for query in told["queries"].values()]
    shown += [at for kind in ("registers", "latest", "released") for at in told["last_batch"][kind].values()]
    assert len(shown) == 15
    start = dt.datetime(2026, 1, 1)
    assert all(start <= dt.datetime.fromisoformat(at) < start + dt.timedelta(seconds=24) for at in shown)


def test_a_verified_migration_and_removed_results_are_told_with_times_not_ticks(folder):
    noon = 1_767_268_800_000_000
    record = {
        **{"old_plan": "(A B)", "new_plan": "(B A)", "strategy": "genmig", "trigger": "asked for", "status": "done"},
        **{"start_batch": 1, "end_batch": 2},
        "verified": {"difference": None, "since": noon, "compared_to": noon + 1_500_000},
    }
    change = past_migration("q", record, "timestamp")
    assert "verified from 2026-01-01 12:00:00 to 2026-01-01 12:00:01.5" in migration_line(change)
    query = StoredJob.open(folder).query("matches")
    query = replace(query, account=replace(query.account, removed={"rows": 7, "before": noon}))
    assert "7 results of query matches that start before 2026-01-01 12:00:00" in next(removed_lines(query))


def test_results_that_wait_are_told_beside_those_that_are_released(folder):
    query = StoredJob.open(folder).query("matches")
    account, entry = replace(query.account, results=39, waiting=12), replace(query.entry, time="integer")
    query = replace(query, account=account, entry=entry, released=120)
    assert results_text(query) == "39 results, complete up to 120, and 12 that wait for later rows"


def said(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_status_has_plurals_and_units(folder):
    code, told = said("status", folder)
    assert code == 0 and ": stopped, batch 5, 1 slot" in told and "1 slots" not in told
    assert "rows a second:" in told and ("ms each" in told or "s each" in told)


def test_a_plan_of_a_job_that_does_not_run_is_told_from_its_checkpoint(folder):
    code, told = said("plan", folder, "matches")
    assert code == 0 and "Plan ((O P) S)" in told and "the job does not run" in told and "└─ Source shipments" in told
    assert json.loads(said("plan", folder, "matches", "--json")[1])["plan"] == "((O P) S)"
    code, told = said("plan", folder, "nobody")
    assert code == 2 and "there is no query nobody" in told


def test_stopping_a_job_that_does_not_run_says_so_and_does_not_wait(folder):
    assert said("stop", folder) == (0, "the job does not run\n")


def test_whoever_asks_a_job_that_does_not_run_is_told_what_is_waited_for(folder):
    code, told = said("rebalance", folder, "--timeout", "0.1")
    assert code == 2 and "waiting 0.1 seconds for one" in told and "no job answers" in told


def test_a_command_that_is_not_there_names_the_nearest():
    code, told = said("statsu")
    assert code == 2 and "did you mean status?" in told
    assert "midstream --help" in said("xyzzy")[1]


def test_a_part_that_is_the_whole_is_not_called_a_part():
    told = {"query": "q", "from": "(A B)", "to": "(B A)", "time": "integer", "strategies": [], "observed": True}
    assert "only" not in migration_forecast({**told, "part": "(A B) to (B A)", "strategy": "genmig"})
    assert f"only {NEW} migrates" in migration_forecast({**told, "part": NEW, "strategy": "genmig"})


def test_operators_are_told_in_units():
    operator = {"label": "Join", "taken": 1e-6, "given": 1e-6, "state_rows": 5, "state_bytes": 6912}
    statistics = {"operators": [{**operator, "seconds_per_row": 0.00015}]}
    told = {
        **{"name": "q", "batch": 1, "plan": "", "why": "", "costs": "", "time": "timestamp", "migrating_to": None},
        "adaptivity": {"mode": "auto", "decisions": (), "statistics": statistics},
    }
    text = decided_text(told)
    assert "5 rows in 6.91 kB, 150 µs a row" in text and "e+0" not in text
