"""What commands about jobs say fits people: units, plurals, and a job that does not run is told apart at once."""

import json

import pytest
from tests.dashboard.jobs import NEW, batches, shop
from typer.testing import CliRunner

from midstream.checkpoint.lease import Lease
from midstream.interface.cli import app
from midstream.interface.cli.decided import decided_text
from midstream.interface.cli.forecasts import migration_forecast


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("jobs") / "shop"
    job = shop(where, slots=1)
    for part in batches(24):
        job.batch(part)
    with Lease.take(job.driver.files):
        pass  # somebody has run it
    return str(where)


def said(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_status_has_plurals_and_units(folder):
    code, told = said("status", folder)
    assert code == 0 and "1 slot, stopped" in told and "1 slots" not in told
    assert "rows a second:" in told and ("ms each" in told or "s each" in told)


def test_a_plan_of_a_job_that_does_not_run_is_told_from_its_checkpoint(folder):
    code, told = said("plan", folder, "matches")
    assert code == 0 and "Plan ((O P) S)" in told and "the job does not run" in told and "└─ Source shipments" in told
    assert json.loads(said("plan", folder, "matches", "--json")[1])["plan"] == "((O P) S)"
    code, told = said("plan", folder, "nobody")
    assert code == 2 and "the job has no query nobody" in told


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
    told = {"query": "q", "batch": 1, "adaptivity": "auto", "plan": "", "why": "", "time": "timestamp", "decisions": ()}
    text = decided_text({**told, "migrating_to": None, "statistics": statistics})
    assert "5 rows in 6.91 kB, 150 µs a row" in text and "e+0" not in text
