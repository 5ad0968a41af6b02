"""Requests to a job that dies: each is carried out once, whatever the moment, or refused and never carried out."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.job.many import Many
from tests.job.test_chain import THREE, Crash, as_multiset, tables
from tests.profiles import always

import midstream as ms
from midstream.api import ask
from midstream.checkpoint import files, local_files, request_log, store
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.control import ANSWERS, REQUESTS, TAKEN, path_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.status import job_at, status_record
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import InputError, JobError
from midstream.job import requests
from midstream.job.events import MoveCancelled, Scheduled
from midstream.job.task.exchange import GROUPS

OTHER = "SELECT k, v FROM A [RANGE 5]"
INPUTS = tables(rows=60, last=100)
EVERY = 20
OPPOSITE = [1 - group % 2 for group in range(GROUPS)]

REQUESTED: dict[str, dict[str, Any]] = {
    "migrate": {"query": "q", "plan": "(A (B C))", "strategy": "genmig"},
    "cancel": {"query": "q"},
    "add": {"query": "more", "cql": OTHER},
    "drop": {"query": "other"},
    "rebalance": {"routing": OPPOSITE},
    "cancel_rebalance": {},
    "schedule": {"scheduling": "bfs"},
}

AROUND = [
    "taken.before_write",
    "taken.within_write",
    "taken.after_rename",
    "request.carried_out",
    "answer.before_write",
    "answer.after_rename",
    "pack.after_rename",
    "commit.before_sync",
    "manifest.before_rename",
    "manifest.after_rename",
    "taken.before_delete",
]
CASES = [("migrate", point) for point in AROUND] + [
    (command, point)
    for command in REQUESTED
    if command != "migrate"
    for point in ("answer.after_rename", "manifest.before_rename", "manifest.after_rename")
]


class Job(Many):
    """A job that can be asked; one that is made anew goes on where the last was."""

    def go_on(self) -> None:
        """What a session does when it starts."""
        self.asked: list[str] = []
        self.driver.requests.go_on(self.driver.manifest, self.handle)

    def listen(self) -> None:
        """What a session does all the time."""
        self.driver.requests.answer_all(self.handle)

    def handle(self, request: dict[str, Any]) -> Any:
        self.asked.append(request["command"])
        match request:
            case {"command": "migrate", "query": name, "plan": plan, "strategy": strategy}:
                self.migrate_query(name, plan, strategy)
            case {"command": "cancel", "query": name}:
                self.driver.cancel_migration(name)
            case {"command": "add", "query": name, "cql": cql}:
                if name in self.driver.queries:
                    raise JobError("there is such a query already")
                self.add(name, cql)
            case {"command": "drop", "query": name}:
                self.drop(name)
            case {"command": "rebalance", "routing": routing}:
                self.driver.rebalance(routing)
            case {"command": "cancel_rebalance"}:
                self.driver.apply(MoveCancelled())
            case {"command": "schedule", "scheduling": name}:
                self.driver.apply(Scheduled(name))
        return {}


def opened(folder: Path) -> Job:
    job = Job(catalog=ask(THREE, INPUTS).catalog, folder=folder, slots=2)
    if job.driver.manifest is None:
        job.add("q", THREE, wanted="((A B) C)")
        job.add("other", OTHER)
    job.go_on()
    return job


@cache
def expected() -> list[str]:
    return as_multiset(ms.run(THREE, INPUTS))


def last_manifest(folder: Path) -> Manifest:
    manifest = CheckpointStore(str(folder)).latest()
    assert manifest is not None
    return manifest


def put(folder: Path, number: str = "1", **request: Any) -> None:
    files_at(str(folder)).write_atomic(path_of(REQUESTS, number), json.dumps(request).encode())


def part(n: int) -> dict[str, pa.RecordBatch]:
    """The rows of one batch."""

    def rows(table: pa.Table) -> pa.RecordBatch:
        inside = [EVERY * n <= t.as_py() < EVERY * (n + 1) for t in table["ts"]]
        return table.filter(pa.array(inside)).combine_chunks().to_batches()[0]

    return {name: rows(table) for name, table in INPUTS.items()}


def run(folder: Path, until: int) -> Job:
    """Goes on up to a batch, as a session does."""
    job = opened(folder)
    while job.next_batch < until:
        job.listen()
        job.batch(part(job.next_batch))
    return job


def dying_at(monkeypatch: pytest.MonkeyPatch, point: str) -> list[str]:
    """The next process to reach the point dies there, later ones do not; gives where one died."""
    died: list[str] = []

    def reach(name: str) -> None:
        if name == point and not died:
            died.append(name)
            raise Crash(name)

    for module in (files, local_files, request_log, store, requests):
        monkeypatch.setattr(module, "reach", reach)
    return died


@pytest.mark.parametrize(("command", "point"), always(len(CASES) // 3 + 1, CASES[::3] + CASES[1::3] + CASES[2::3]))
def test_a_request_is_carried_out_once_wherever_the_job_dies(command, point, tmp_path, monkeypatch):
    job = run(tmp_path, 1)
    if command == "cancel":
        job.migrate_query("q", "(A (B C))", "genmig")
        job.batch(part(1))
    if command == "cancel_rebalance":
        job.driver.rebalance(OPPOSITE, protocol="split_time_balancing")
        job.batch(part(1))
    put(tmp_path, command=command, **REQUESTED[command])
    died = dying_at(monkeypatch, point)
    with pytest.raises(Crash):
        run(tmp_path, 4)
    assert died == [point]
    shown = last_manifest(tmp_path).asked.requests
    job = run(tmp_path, 5)
    assert job.asked == ([] if shown else [command])
    job.batch({}, end=True)
    assert [(record.id, record.command) for record in job.manifest.asked.requests] == [("1", command)]
    assert job.driver.files.list(TAKEN) == job.driver.files.list(REQUESTS) == []
    migrations = [record for record in job.history("q") if "old_plan" in record]
    effects = {
        "migrate": [("done", "(A (B C))")],
        "cancel": [("cancelled", "(A (B C))")],
    }
    assert [(m["status"], m["new_plan"]) for m in migrations] == effects.get(command, [])
    assert job.driver.queries["q"].plan.text == ("(A (B C))" if command == "migrate" else "((A B) C)")
    assert ("more" in job.manifest.queries) == (command == "add")
    assert ("other" in job.manifest.queries) == (command != "drop")
    assert [move.get("status", "done") for move in job.manifest.slots.moves] == {
        "rebalance": ["done"],
        "cancel_rebalance": ["cancelled"],
    }.get(command, [])
    assert (list(job.manifest.slots.routing) == OPPOSITE) == (command == "rebalance")
    assert (job.manifest.settings.scheduling == "bfs") == (command == "schedule")
    assert as_multiset(job.table("q")) == expected()


def test_requests_that_wait_are_carried_out_in_the_order_they_were_taken_up(tmp_path):
    run(tmp_path, 1)
    put(tmp_path, "2", command="migrate", **REQUESTED["migrate"])
    opened(tmp_path).listen()
    put(tmp_path, "1", command="cancel", query="q")
    opened(tmp_path).listen()
    job = run(tmp_path, 2)
    assert job.asked == ["migrate", "cancel"]
    assert [record["status"] for record in job.history("q") if "old_plan" in record] == ["cancelled"]
    assert [record.id for record in job.manifest.asked.requests] == ["2", "1"]


def test_a_request_that_comes_back_after_its_effect_was_shown_is_not_carried_out_again(tmp_path):
    run(tmp_path, 1)
    for until in (2, 3, 4):
        put(tmp_path, command="add", **REQUESTED["add"])
        job = run(tmp_path, until)
        assert job.asked == (["add"] if until == 2 else [])
    job.drop("more")
    put(tmp_path, command="add", **REQUESTED["add"])
    job.listen()
    assert "more" not in job.driver.queries and job.driver.files.list(REQUESTS) == []


@pytest.mark.parametrize("point", ["refused.before_write", "refused.after_rename", "answer.after_rename"])
def test_a_refused_request_is_answered_and_never_carried_out(point, tmp_path, monkeypatch):
    run(tmp_path, 1)
    put(tmp_path, command="add", query="other", cql=OTHER)
    died = dying_at(monkeypatch, point)
    with pytest.raises(Crash):
        run(tmp_path, 2)
    assert died == [point]
    job = opened(tmp_path)
    told = json.loads(job.driver.files.read(path_of(ANSWERS, "1")))
    assert told["error"]["message"] == "there is such a query already"
    job.drop("other")
    job = run(tmp_path, 2)
    assert job.asked == [] and job.driver.files.list(TAKEN) == []


def test_groups_that_are_to_move_during_a_migration_move_once_also_after_a_crash(tmp_path):
    job = run(tmp_path, 1)
    job.migrate_query("q", "(A (B C))", "genmig")
    put(tmp_path, command="rebalance", routing=OPPOSITE)
    job.listen()
    job.batch(part(1))
    assert job.manifest.account("q").plans.migration is not None
    job = run(tmp_path, 5)
    job.batch({}, end=True)
    assert job.asked == [] and list(job.manifest.slots.routing) == OPPOSITE
    assert job.manifest.slots.wanted is None and len(job.manifest.slots.moves) == 1
    assert as_multiset(job.table("q")) == expected()


def test_a_request_that_makes_its_batch_fail_is_given_up_and_told(tmp_path):
    job = run(tmp_path, 1)
    put(tmp_path, command="add", query="more", cql=OTHER)
    put(tmp_path, "2", command="schedule", scheduling="bfs")
    put(tmp_path, "3", command="replace", query="q", cql=OTHER)
    job.listen()
    job.driver.requests.failed(OSError("the storage is away"))
    requests = status_record(job_at(job.driver.store.uri))["requests"]
    assert [record["id"] for record in requests if record["status"] == "waiting"] == ["1", "2", "3"]
    job.driver.requests.failed(InputError("integer overflow"))
    job = run(tmp_path, 2)
    assert job.asked == ["schedule"] and "more" not in job.manifest.queries
    told = {request.id: request.refused for request in job.manifest.asked.requests}
    assert told.pop("2") is None and all(why is not None and "failed" in why for why in told.values())
    assert told.keys() == {"1", "3"}


def test_an_unreadable_request_is_refused_and_the_job_goes_on_listening(tmp_path):
    job = run(tmp_path, 1)
    job.driver.files.write_atomic(path_of(REQUESTS, "1"), b"{")
    put(tmp_path, "2", command="schedule")

    def handle(request: dict[str, Any]) -> Any:
        return request["what is not there"]

    job.driver.requests.answer_all(handle)
    assert [path.rpartition("/")[2] for path in job.driver.files.list(ANSWERS)] == ["1.json", "2.json"]
    assert job.driver.files.list(REQUESTS) == job.driver.files.list(TAKEN) == []


def test_what_nobody_waits_for_any_more_is_not_answered(tmp_path):
    job = run(tmp_path, 1)
    put(tmp_path, command="stop", until=0.0)
    put(tmp_path, "2", command="stop")
    job.listen()
    assert job.asked == ["stop"] and job.driver.files.list(ANSWERS) == [path_of(ANSWERS, "2")]
