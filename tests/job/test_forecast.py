"""Forecasts change nothing and foretell what happens; modes and slots that were asked for outlive a restart."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from tests.job.served import Served
from tests.job.test_faults import BAD, CAST, CATALOG, GOOD, LATER

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.commands import command_in
from midstream.checkpoint.control import ask as ask_job
from midstream.interface.answers import migration_forecast
from midstream.interface.asking import asked
from midstream.job.commands.accounts import history_of
from midstream.job.commands.forecast import forecast, migration_text, offered_plans
from midstream.migration.corrections import MEASURED_AS, MODEL_OFF_BY
from midstream.optimizer.plans import plan_query

JOIN = "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"


def tables(rows: int = 90) -> dict[str, pa.Table]:
    return {
        name: pa.table({"k": [i % 5 for i in range(rows)], "v": [i + s for i in range(rows)], "ts": range(rows)})
        for s, name in enumerate("ABC")
    }


@pytest.fixture
def job(tmp_path):
    served = Served(catalog=ask(JOIN, tables()).catalog, folder=tmp_path)
    served.add("q", JOIN, wanted="((A B) C)")
    for part in served.cut(tables(), 45)[:3]:
        served.batch(part)
    return served


def foretold(job, **request):
    return forecast(job.driver, command_in(request), job.catalog)


def test_a_forecast_of_a_migration_names_the_legal_strategies_and_begins_nothing(job):
    told = foretold(job, command="migrate", query="q", plan="(A (B C))")
    assert (told["from"], told["to"]) == ("((A B) C)", "(A (B C))")
    legal = {s["strategy"] for s in told["strategies"] if s["legal"]}
    assert {"genmig", "moving_state", "parallel_track"} <= legal and told["strategy"] in legal
    assert all(s["duration"] >= 0 and s["work"] >= 0 for s in told["strategies"] if s["legal"])
    assert job.driver.queries["q"].migration is None
    job.migrate_query("q", "(A (B C))", "genmig")
    with pytest.raises(ms.MigrationError, match="migrating already"):
        foretold(job, command="migrate", query="q", plan="(A (B C))")
    assert foretold(job, command="cancel", query="q")["cancelled"] == "(A (B C))"


def test_what_is_explained_of_a_migration_between_slots_is_what_the_job_does(job):
    job.add("stages", JOIN.replace("B.k = C.k", "B.v = C.v"), wanted="((A B) C)")
    query = job.driver.queries["stages"]
    text = migration_text(job.driver, query, "(A (B C))", "auto", "least_silence")
    told = foretold(job, command="migrate", query="stages", plan="(A (B C))")
    lines = text.splitlines()
    assert lines[1].startswith(f"migration by {told['strategy']} ")
    refused = {line.split()[0] for line in lines if "refused:" in line}
    assert refused == {s["strategy"] for s in told["strategies"] if not s["legal"]}
    assert {"parallel_track", "genmig_shortened"} <= refused
    with pytest.raises(ms.MigrationError, match="unknown preference"):
        migration_text(job.driver, query, "(A (B C))", "auto", "fastest")
    one = migration_text(job.driver, job.driver.queries["q"], "(A (B C))", "auto", "soonest")
    assert "(soonest)" in one and "parallel_track" in one and "refused: its plans" not in one
    job.migrate_query("stages", "(A (B C))", "auto")
    (begun,) = [record for record in history_of(job.driver, job.driver.queries["stages"]) if "strategy" in record]
    assert begun["strategy"] == told["strategy"]


def test_the_running_plan_is_among_those_offered(job):
    offered = offered_plans(job.driver, job.driver.queries["q"])
    assert [p["plan"] for p in offered if p["running"]] == ["((A B) C)"] and len(offered) > 2
    assert all(foretold(job, command="migrate", query="q", plan=p["plan"]) for p in offered if not p["running"])


def test_a_wrong_query_is_refused_with_its_place(job):
    with pytest.raises(ms.QueryError) as wrong:
        foretold(job, command="add", query="r", cql="SELECT nothing FROM A [RANGE 5]")
    assert "^" in str(wrong.value)
    told = foretold(job, command="add", query="r", cql="SELECT k FROM A [RANGE 5]")
    assert told["columns"] == [["k", "int64"]] and "r" not in job.driver.queries
    with pytest.raises(ms.QueryError, match="already"):
        foretold(job, command="add", query="q", cql=JOIN)


def test_dropping_foretells_what_goes(job):
    told = foretold(job, command="drop", query="q")
    assert told["state_rows"] > 0 and told["results"] == job.manifest.account("q").results
    with pytest.raises(ms.QueryError, match="no query"):
        foretold(job, command="drop", query="r")


def test_a_rescale_does_what_was_foretold_and_outlives_a_restart(job, tmp_path):
    told = foretold(job, command="rescale", slots=3)
    assert told["slots"] == [2, 3] and told["groups"] > 0 and told["state_bytes"] > 0
    before = ms.open(tmp_path).slots
    assert not job.driver.rescale(2) and job.driver.rescale(3)
    job.batch(job.cut(tables(), 45)[3])
    after = ms.open(tmp_path).slots
    assert (before.count, after.count) == (2, 3)
    assert sum(a != b for a, b in zip(before.routing, after.routing, strict=True)) == told["groups"]
    assert Served(catalog=job.catalog, folder=tmp_path).driver.state.slots == 3
    assert not foretold(job, command="rescale", slots=3)["changes"]
    with pytest.raises(ms.JobError, match="slots"):
        foretold(job, command="rescale", slots=10**6)


def test_a_rescale_that_waits_for_a_migration_is_not_forgotten(job, tmp_path):
    query = job.driver.queries["q"]
    target = job.driver.state.target(query, plan_query(query.plan.query, "(A (B C))"))
    job.driver.begin_migration("q", target, "genmig", "a test", slots=[0])
    job.batch(job.cut(tables(), 45)[3])
    job.driver.rescale(3)
    job.batch(job.cut(tables(), 45)[4])
    assert ms.open(tmp_path).slots.count == 2
    again = Served(catalog=job.catalog, folder=tmp_path)
    assert again.driver.state.wanted is not None and again.driver.state.wanted.slots == 3


def test_adaptivity_changes_while_the_job_runs_and_outlives_a_restart(job, tmp_path):
    assert foretold(job, command="adapt", query="q", mode="auto") == {"query": "q", "from": "off", "to": "auto"}
    job.driver.adapt("q", "suggest")
    job.batch(job.cut(tables(), 45)[3])
    assert ms.open(tmp_path).query("q").adaptivity.mode == "suggest"
    again = Served(catalog=job.catalog, folder=tmp_path)
    policy = again.driver.state.policy_for("q", None)
    assert policy is not None and policy.mode == "suggest"
    job.driver.adapt("q", "off")
    job.batch(job.cut(tables(), 45)[4])
    assert ms.open(tmp_path).query("q").adaptivity.mode == "off"


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({}, "unknown command"),
        ({"command": "migrate; rm"}, "unknown command"),
        ({"command": ["stop"]}, "unknown command"),
        ({"command": "stop", "now": True}, "does not take now"),
        ({"command": "drop"}, "needs query"),
        ({"command": "drop", "query": "../../etc"}, "cannot name"),
        ({"command": "drop", "query": "<img src=x>"}, "cannot name"),
        ({"command": "rescale", "slots": "3"}, "whole number"),
        ({"command": "rescale", "slots": True}, "whole number"),
        ({"command": "migrate", "query": "q", "plan": "(A B)", "strategy": "genmgi"}, "unknown strategy"),
        ({"command": "add", "query": "q", "cql": "x" * 100_001}, "at most"),
        ({"command": "adapt", "query": "q", "mode": "on"}, "unknown mode"),
    ],
)
def test_what_is_no_request_is_refused_before_it_is_sent(request_, why):
    with pytest.raises(ms.InputError, match=why):
        command_in(request_)


def test_a_dry_run_through_the_checkpoint_leaves_the_job_as_it_was(job, tmp_path):
    with job.serving():
        told = asked(
            str(tmp_path), command_in({"command": "migrate", "query": "q", "plan": "(A (B C))"}), 20, dry_run=True
        )
        assert told["to"] == "(A (B C))" and job.driver.queries["q"].migration is None
        assert ms.open(tmp_path).running
        with pytest.raises(ms.JobError, match="no forecast"):
            ask_job(job.driver.files, {"command": "forecast", "of": {"command": "status"}}, patience=60)
        asked(str(tmp_path), command_in({"command": "migrate", "query": "q", "plan": "(A (B C))"}), 20)
    assert job.driver.queries["q"].migration is not None


def test_a_query_in_quarantine_is_read_with_its_plan_and_foretold_what_resuming_leaves_out(tmp_path):
    job = Served(catalog=CATALOG, folder=tmp_path)
    job.add("cast", CAST)
    for part in (*GOOD, BAD, *LATER[:2]):
        job.batch(part)
    stored = ms.open(tmp_path).query("cast")
    assert stored.quarantine is not None and stored.quarantine.reason == "cannot cast 'abc' to int64"
    assert stored.graph.complete and stored.history[-1].status == "quarantined"
    told = foretold(job, command="resume", query="cast")
    assert (told["since"], told["missed"]) == (len(GOOD), 3)
    job.driver.state.faults.resume("cast")
    with pytest.raises(ms.JobError, match="not in quarantine"):
        foretold(job, command="resume", query="cast")


def measured(job, plan: str, parts: list) -> dict:
    """Migrates to a plan by genmig; gives what its history says once it has ended."""
    job.migrate_query("q", plan, "genmig")
    while job.driver.queries["q"].migration is not None:
        job.batch(parts.pop(0))
    return next(r for r in reversed(job.history("q")) if r["strategy"] == "genmig")


def test_a_forecast_is_corrected_by_what_migrations_of_the_job_took(tmp_path):
    # Every key is alone: nearly nothing joins, which the model cannot know.
    rows = {
        name: pa.table({"k": [3 * i + s for i in range(600)], "v": range(600), "ts": range(600)})
        for s, name in enumerate("ABC")
    }
    job = Served(catalog=ask(JOIN, rows).catalog, folder=tmp_path)
    job.add("q", JOIN, wanted="((A B) C)")
    parts = job.cut(rows, 60)
    for part in parts[:10]:
        job.batch(part)
    rest = parts[10:]

    def genmig(plan: str) -> dict:
        told = foretold(job, command="migrate", query="q", plan=plan)
        return next(s for s in told["strategies"] if s["strategy"] == "genmig")

    def off(figure: float, took: float) -> float:
        return abs(math.log((figure + 1) / (took + 1)))

    before = genmig("(A (B C))")
    assert before["measured"] == 0 and before["modelled"]["work"] == before["work"]
    assert before["ranges"]["work"] == [before["work"] / MODEL_OFF_BY, before["work"] * MODEL_OFF_BY]
    took = measured(job, "(A (B C))", rest)
    after = genmig("((A B) C)")
    assert after["measured"] == 1
    again = measured(job, "((A B) C)", rest)
    for name, known in MEASURED_AS.items():
        assert off(after[name], again[known]) <= off(after["modelled"][name], again[known]) + 0.1, name
        assert off(after[name], again[known]) < math.log(2), (name, after, took, again)
        low, high = after["ranges"][name]
        assert low <= again[known] <= high and high <= low * MODEL_OFF_BY**2, name


def test_a_forecast_of_the_running_plan_says_that_it_runs(job):
    told = foretold(job, command="migrate", query="q", plan="((A B) C)")
    assert told["strategies"] == [] and told["from"] == told["to"]
    assert migration_forecast(told) == "query q runs by ((A B) C) already: nothing would migrate"
