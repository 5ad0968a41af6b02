"""The dashboard's server: what it tells is what the checkpoint says, and nobody sees or does more than they may."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint.test_damaged_files import damaged
from tests.dashboard.jobs import NEW, batches, shop
from tests.job.served import Served

import midstream as ms

pytest.importorskip("starlette", reason="the dashboard needs starlette: pip install 'midstream[dashboard]'")
pytest.importorskip("httpx", reason="these tests need httpx")

import httpx
from starlette.testclient import TestClient
from typer.testing import CliRunner

from midstream.checkpoint.failures import NotRetained
from midstream.checkpoint.store import manifest_path
from midstream.checkpoint.stored_slots import GroupMove, MovingGroups, StoredSlots
from midstream.interface.cli import app
from midstream.interface.cli.decided import decided
from midstream.interface.dashboard.access import CSRF, Access
from midstream.interface.dashboard.export import exported, in_element
from midstream.interface.dashboard.feed import NewsFeed
from midstream.interface.dashboard.page_data import job_summary, job_summary_at
from midstream.interface.dashboard.series import series_summary
from midstream.interface.dashboard.server import Dashboard
from midstream.interface.dashboard.serving import served

HOST = "127.0.0.1:8321"


@pytest.fixture(scope="module")
def finished_job(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Twelve batches, then a migration that has ended, and one that has not."""
    job = shop(tmp_path_factory.mktemp("shop"))
    parts = batches()
    for part in parts[:6]:
        job.batch(part)
    job.migrate_query("matches", NEW, "moving_state")
    for part in parts[6:12]:
        job.batch(part)
    job.migrate_query("matches", "((O P) S)", "genmig")
    for part in parts[12:15]:
        job.batch(part)
    return job


def client(job: Served, host: str = "127.0.0.1", **options: object) -> tuple[TestClient, Access]:
    access = Access(host, 8321, **options)  # type: ignore[arg-type]
    name = "127.0.0.1" if access.is_local else "10.0.0.7"
    return TestClient(Dashboard(str(job.folder), access).app, base_url=f"http://{name}:8321"), access


def signed_in(job: Served) -> tuple[TestClient, Access, dict[str, str]]:
    page, access = client(job)
    answer = page.get(f"/?token={access.token}", follow_redirects=False)
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    assert (
        "httponly" in answer.headers["set-cookie"].lower() and "samesite=strict" in answer.headers["set-cookie"].lower()
    )
    csrf = page.get("/api/session").json()["csrf"]
    return page, access, {CSRF: csrf, "origin": f"http://{HOST}", "host": HOST}


def run_apart(wanted: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine in a thread: where a browser is open, this one has a loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, wanted).result()


def test_the_page_is_told_of_moves_of_groups_by_the_names_that_it_reads():
    move = GroupMove(4, "asked for", {"groups": 3, "slots": [2, 2]})
    moving = MovingGroups("ptlb", 2, 5, "asked for")
    summary = asdict(StoredSlots(2, (0, 1), (1.0, 2.0), moves=(move,), moving=moving))
    assert summary["moves"] == ({"batch": 4, "trigger": "asked for", "record": {"groups": 3, "slots": [2, 2]}},)
    assert summary["moving"] == {"protocol": "ptlb", "groups": 2, "since": 5, "trigger": "asked for"}


def test_the_page_is_told_what_the_checkpoint_says(finished_job):
    told = job_summary(ms.open(finished_job.folder))
    json.dumps(told, allow_nan=False)
    query = next(q for q in told["queries"] if q["name"] == "matches")
    assert (query["plan"], query["migration"]["new_plan"]) == (NEW, "((O P) S)")
    assert query["migration"]["actual"]["batches"] == 3 and query["migration"]["split_time"] is not None
    assert query["migration"]["part"] and query["migration"]["forecast"]["duration"] > 0
    assert [m["status"] for m in query["history"]][-1] == "done" and query["adaptivity"]["mode"] == "suggest"
    past = decided(str(finished_job.folder), "matches")["history"][-1]
    assert past["start_batch"] == query["history"][-1]["start_batch"] == 6 and "period" not in past
    assert sum(s["late"] for s in told["streams"]) == told["dead_letters"]["rows"] == 1
    assert told["dead_letters"]["samples"][0]["reason"] == "late" and told["slots"]["count"] == 3
    assert told["batch"] == 14 and not told["running"] and told["phase"] == "stopped"
    assert told["name"] == finished_job.folder.name and all(query["latency"] > 0 for query in told["queries"])
    sizes = told["sizes"]
    assert sizes["commit"] == (finished_job.folder / manifest_path(14)).stat().st_size
    assert sizes["results"] > 0 and sizes["dead_letters"] > 0 and sizes["state"] == sum(told["slots"]["bytes"])
    assert sizes["checkpoint"] == sum(sizes[name] for name in ("state", "results", "dead_letters", "commit"))


def test_newest_results_are_shown_as_they_will_be_read(finished_job):
    job, (looking, _) = ms.open(finished_job.folder), client(finished_job)
    for query in job.queries:
        told = looking.get("/api/results", params={"query": query}).json()
        newest = job.results(query).to_pylist()[-50:][::-1]
        starts = [row["valid_from"].strftime("%Y-%m-%d %H:%M:%S.%f") for row in newest]
        names = [column["name"] for column in told["columns"]]
        assert names == job.results(query).column_names and len(told["rows"]) == min(50, len(newest))
        assert [row[names.index("valid_from")] for row in told["rows"]] == starts
    unknown = looking.get("/api/results", params={"query": "nobody"})
    assert unknown.status_code == 422 and "there is no query nobody" in unknown.text


def test_charts_are_told_every_batch_and_every_change(finished_job):
    job = ms.open(finished_job.folder)
    told = series_summary(job)
    assert told["batch"] == list(range(15)) and set(told["rows"]) == {"orders", "payments", "shipments"}
    assert all(len(column) == 15 for kind in ("rows", "results", "seconds") for column in told[kind].values())
    assert [m["batch"] for m in told["marks"] if m["kind"] == "migration"] == [6, 12]
    assert series_summary(job, since=12)["batch"] == [13, 14]


def test_an_earlier_batch_is_told_from_its_manifest_or_from_the_metrics(finished_job):
    job = ms.open(finished_job.folder)
    then = job_summary_at(job, 5)
    assert then["complete"] and then["queries"][-1]["plan"] == "((O P) S)"
    finished_job.driver.store.retain(3)
    finished_job.driver.store.wait()
    then = job_summary_at(ms.open(finished_job.folder), 5)
    query = next(q for q in then["queries"] if q["name"] == "matches")
    assert not then["complete"] and query["plan"] == "((O P) S)" and len(query["graph"]["nodes"]) == 5
    json.dumps(then, allow_nan=False)


def test_a_page_that_comes_back_is_told_only_what_is_new(finished_job):
    feed = NewsFeed(str(finished_job.folder))

    async def first(since: int) -> str:
        await feed.look()
        async for event in feed.events(since):
            return event
        raise AssertionError

    told = run_apart(first(13))
    assert told.startswith("id: 14\nevent: job\n")
    assert json.loads(told.partition("data: ")[2])["series"]["batch"] == [14]


def test_a_batch_that_goes_while_it_is_read_is_no_trouble(finished_job, monkeypatch):
    feed = NewsFeed(str(finished_job.folder))

    def gone(job: object) -> None:
        raise NotRetained("batch 14 is no longer retained")

    with monkeypatch.context() as patch:
        patch.setattr("midstream.interface.dashboard.feed.job_summary", gone)
        run_apart(feed.look())
    assert feed.error is None and feed.number == 0
    run_apart(feed.look())
    assert feed.job is not None and feed.number == 1


def test_a_checkpoint_without_a_batch_is_no_failure(tmp_path):
    feed = NewsFeed(str(tmp_path / "none"))

    async def first() -> str:
        await feed.look()
        async for event in feed.events(-1):
            return event
        raise AssertionError

    assert "no finished batch" in run_apart(first())


def test_every_answer_has_the_policy_and_no_script_is_inline(finished_job):
    page, _ = client(finished_job)
    for path in ("/", "/assets/app.js", "/assets/app.css", "/api/job", "/api/nothing", "/assets/..%2f..%2fserver.py"):
        policy = page.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"<script>|<style>|style=| on\w+=", page.get("/").text)
    assert page.get("/assets/server.py").status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8321", "", "10.0.0.7:8321"])
def test_a_host_name_that_is_not_expected_gets_nothing(finished_job, host):
    page, _ = client(finished_job)
    answer = page.get("/api/job", headers={"host": host})
    assert answer.status_code == 421 and "queries" not in answer.text


def test_on_another_address_everything_needs_the_token(finished_job):
    page, access = client(finished_job, "0.0.0.0")
    assert [page.get(p).status_code for p in ("/api/job", "/api/series", "/api/events", "/api/export")] == [401] * 4
    assert page.get("/?token=wrong", follow_redirects=False).status_code == 401
    assert page.get("/metrics", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert "midstream_last_batch 14" in page.get("/metrics", headers={"authorization": f"Bearer {access.token}"}).text
    page.get(f"/?token={access.token}")
    assert page.get("/api/job").status_code == 200
    assert page.get("/api/job", headers={"host": "shop.example:8321"}).status_code == 421
    named, _ = client(finished_job, "0.0.0.0", names=frozenset({"shop.example"}), token=access.token)
    named.get(f"/?token={access.token}")
    assert named.get("/api/job", headers={"host": "shop.example:8321"}).status_code == 200


def test_acting_needs_the_token_the_header_and_the_same_origin(finished_job):
    anonymous, _ = client(finished_job)
    wanted = {"command": "stop", "dry_run": False}
    assert anonymous.post("/api/ask", json=wanted).status_code == 403
    page, _, headers = signed_in(finished_job)
    for wrong in (
        {CSRF: "0" * 64},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
    ):
        assert page.post("/api/ask", json=wanted, headers={**headers, **wrong}).status_code == 403
    assert (
        page.post("/api/ask", json=wanted, headers={k: v for k, v in headers.items() if k != CSRF}).status_code == 403
    )
    assert page.post("/api/ask", content="x" * 300_000, headers=headers).status_code == 413
    assert page.post("/api/ask", data={"command": "stop"}, headers=headers).status_code == 415
    assert page.get("/api/ask").status_code == 405


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        {"command": "rm"},
        {"command": "drop", "query": "../x"},
        {"command": "stop", "checkpoint": "/etc"},
        {"command": "stop", "patience": 1},
        {"command": "stop", "dry run": 1},
        {"command": "add", "query": "q", "cql": 7},
    ],
)
def test_what_is_no_request_is_refused_and_never_sent(finished_job, wanted):
    page, _, headers = signed_in(finished_job)
    answer = page.post("/api/ask", json=wanted, headers=headers)
    assert answer.status_code == 422 and answer.json()["error"]["message"]
    assert not list(Path(finished_job.folder).glob("control/requests/*"))


def test_no_request_over_http_makes_the_server_fail(finished_job):
    page, _, headers = signed_in(finished_job)
    as_json = {**headers, "content-type": "application/json"}
    wanted = json.dumps({"command": "migrate", "query": "matches", "plan": NEW, "strategy": "genmig"}).encode()
    paths = ("", "assets/page.js", "api/job?batch=3", "api/series?since=2", "api/session", "api/ask", "metrics")
    for seed in range(80):
        chance = random.Random(seed)
        assert page.post("/api/ask", content=damaged(wanted, chance), headers=as_json).status_code < 500
        path = damaged(chance.choice(paths).encode(), chance).decode("latin-1").replace("events", "")
        odd = {"host": damaged(HOST.encode(), chance), "cookie": damaged(b"midstream=token", chance)}
        # What is no address is refused by the client already.
        with suppress(httpx.InvalidURL, UnicodeError):
            assert page.get(f"/{path}").status_code < 500
            assert page.get("/api/job", headers={n: b"".join(v.split()) for n, v in odd.items()}).status_code < 500
    assert not list(Path(finished_job.folder).glob("control/requests/*"))


@pytest.mark.parametrize("text", ["--5", "-", "9" * 5000, "１", "0x1", "1e3", " 1"])
@pytest.mark.parametrize("path", ["/api/job?batch=", "/api/series?since=", "/api/events?since="])
def test_what_is_no_number_is_refused_as_the_callers_mistake(finished_job, path, text):
    page, _ = client(finished_job)
    answer = page.get(path + text)
    assert answer.status_code == 400 and "must be a whole number" in answer.json()["error"]["message"]


def test_a_length_that_is_no_number_is_refused(finished_job):
    page, _, headers = signed_in(finished_job)
    for length in ("--5", "9" * 5000):
        answer = page.post("/api/ask", content=b"{}", headers={**headers, "content-length": length})
        assert answer.status_code == 413


def test_an_action_is_only_foretold_unless_it_says_otherwise(tmp_path):
    job = shop(tmp_path)
    for part in batches()[:3]:
        job.batch(part)
    page, _, headers = signed_in(job)
    wanted = {"command": "migrate", "query": "matches", "plan": NEW}
    with job.serving():
        told = page.post("/api/ask", json=wanted, headers=headers).json()
        assert told["dry_run"] and told["answer"]["to"] == NEW and job.driver.queries["matches"].migration is None
        done = page.post("/api/ask", json={**wanted, "dry_run": False}, headers=headers)
        assert done.status_code == 200 and job.driver.queries["matches"].migration is not None
        wrong = {"command": "add", "query": "r", "cql": "SELECT nothing FROM orders [NOW]"}
        refusal = page.post("/api/ask", json=wrong, headers=headers)
        assert refusal.status_code == 422 and refusal.json()["error"]["place"].endswith("       ^")


def test_an_export_names_its_script_by_hash_and_loads_nothing(finished_job):
    page = exported(ms.open(finished_job.folder))
    assert not re.search(r"""(src|href)=["']?(https?:|/)""", page.partition("<script type")[0])
    policy = re.search(r'content="([^"]*)"', page)
    assert policy is not None and "unsafe" not in policy[1] and policy[1].count("sha256-") == 2
    assert page.count("<script") == 2 and page.count("</script>") == 2


def test_data_cannot_leave_its_element():
    for text in ("</script>", "<!--<script>", "]]>", "\u2028"):
        told = in_element({"name": text})
        assert "<" not in told and json.loads(told) == {"name": text}


def test_the_command_writes_the_page_as_a_file_or_says_what_is_missing(finished_job, tmp_path):
    run = CliRunner()
    saved = tmp_path / "job.html"
    assert run.invoke(app, ["dashboard", str(finished_job.folder), "--export", str(saved)]).exit_code == 0
    assert 'id="data"' in saved.read_text()
    missing = run.invoke(app, ["dashboard", str(tmp_path / "none")])
    assert missing.exit_code == 2 and "no finished batch" in missing.stderr
    no_folder = run.invoke(app, ["dashboard", str(finished_job.folder), "--export", str(tmp_path / "no" / "job.html")])
    assert no_folder.exit_code == 2 and "cannot write" in no_folder.stderr


def test_a_port_that_is_taken_is_said_so(finished_job):
    with served(str(finished_job.folder), "127.0.0.1", 0) as (link, _):
        port = int(re.search(r":(\d+)/", link)[1])  # type: ignore[index]
        with (
            pytest.raises(ms.JobError, match=f"cannot listen on 127.0.0.1, port {port}"),
            served("x", "127.0.0.1", port),
        ):
            pass
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as page:
            assert page.get("/api/job").json()["batch"] == 14
