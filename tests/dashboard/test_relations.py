"""Results over HTTP and by subscription: what is valid now, all that is kept, SQL over both, and what is new."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("starlette", reason="serving needs starlette: pip install 'midstream[dashboard]'")
pytest.importorskip("httpx", reason="these tests need httpx")

from starlette.testclient import TestClient

from midstream.checkpoint.failures import NotRetained
from midstream.checkpoint.stored_results import read_query_results
from midstream.checkpoint.subscriptions import Subscription
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.interface.dashboard.access import Access
from midstream.interface.dashboard.relations import ARROW
from midstream.interface.dashboard.server import Dashboard

COLUMNS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])


def session_of(folder: Path) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder), on="local")
    session.stream("A", COLUMNS)
    session.query("sums", "SELECT k, sum(v) AS s FROM A [UNBOUNDED] GROUP BY k", emit_every=1)
    session.query("events", "SELECT ISTREAM k, v FROM A [NOW]")
    session.start()
    return session


def push(session: CheckpointSession, *times: int) -> None:
    session.push({"A": [{"ts": at, "k": at % 2, "v": at} for at in times]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served") / "checkpoint"
    with session_of(made) as session:
        for at in range(6):
            push(session, at)
    return made


@pytest.fixture
def client(folder: Path) -> TestClient:
    return TestClient(Dashboard(str(folder), Access("127.0.0.1", 8321)).app, base_url="http://127.0.0.1:8321")


def events_of(text: str) -> list[dict[str, Any]]:
    lines = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines]


def test_what_is_valid_now_is_served_as_json_and_as_arrow(folder, client):
    names = [query["name"] for query in client.get("/queries").json()]
    assert sorted(names) == ["events", "sums"]
    answer = client.get("/queries/sums/current").json()
    assert [column["name"] for column in answer["columns"]] == ["k", "s", "valid_from", "valid_to"]
    assert answer["rows"] == read_query_results(str(folder), "sums", current=True).to_pylist()
    assert len(answer["rows"]) == 2 < len(client.get("/queries/sums/results").json()["rows"])
    arrow = client.get("/queries/sums/current", headers={"accept": ARROW})
    assert arrow.headers["content-type"] == ARROW
    assert pa.ipc.open_stream(arrow.content).read_all().num_rows == len(answer["rows"])
    assert client.get("/queries/none/current").status_code == 422
    assert "gives a stream" in client.get("/queries/events/current").text


def test_sql_over_results_reads_nothing_else(client, tmp_path):
    asked = client.post("/sql", content="SELECT sum(s)::BIGINT AS total FROM sums_current").json()
    now = client.get("/queries/sums/current").json()["rows"]
    assert asked["rows"] == [{"total": sum(row["s"] for row in now)}]
    asked = client.get("/sql", params={"q": "SELECT count(*) AS n FROM events JOIN sums USING (k)"})
    assert asked.json()["rows"][0]["n"] > 0
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for wrong in (
        f"SELECT * FROM '{tmp_path}/secret.csv'",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "SELEC 1",
        "SELECT * FROM nobody",
        "",
    ):
        answer = client.post("/sql", content=wrong)
        assert answer.status_code == 422, wrong
    assert not (tmp_path / "out.csv").exists()


def test_changes_come_as_events_from_any_instant_on(folder, client):
    everything = client.get("/queries/events/changes")
    assert everything.headers["content-type"].startswith("text/event-stream")
    (event,) = events_of(everything.text)
    known = read_query_results(str(folder), "events").column("v").to_pylist()
    assert [row["v"] for row in event["rows"]] == known and len(known) > 3
    later = client.get("/queries/events/changes", headers={"last-event-id": "3"})
    assert [row["v"] for row in events_of(later.text)[0]["rows"]] == known[3:]
    (changed,) = events_of(client.get("/queries/sums/changes", params={"form": "changelog"}).text)
    assert {row["change"] for row in changed["rows"]} == {"insert", "delete"}
    assert client.get("/queries/sums/changes", params={"since": "soon"}).status_code == 422
    assert client.get("/queries/sums/changes", params={"form": "none"}).status_code == 422


def test_who_would_miss_results_that_are_no_longer_kept_is_told_so(tmp_path):
    with CheckpointSession(checkpoint=str(tmp_path), on="local", retained=2, retention={"results": "2 batches"}) as job:
        job.stream("A", COLUMNS)
        job.query("events", "SELECT ISTREAM k, v FROM A [NOW]")
        job.start()
        for at in range(3):
            push(job, at)
        slow = iter(Subscription(str(tmp_path), "events"))
        assert next(slow).column("v").to_pylist() == [0]
        for at in range(3, 30):
            push(job, at)
        with pytest.raises(NotRetained, match=r"from tick \d+ on are no longer all there"):
            next(slow)
    client = TestClient(Dashboard(str(tmp_path), Access("127.0.0.1", 8321)).app, base_url="http://127.0.0.1:8321")
    late = client.get("/queries/events/changes", params={"since": 3})
    assert late.status_code == 422 and "were removed by retention" in late.json()["error"]["detail"]
    kept = int(re.findall("begin at tick ([0-9]+)", late.json()["error"]["hint"])[0])
    for known in ({"since": kept}, {}):
        (event,) = events_of(client.get("/queries/events/changes", params=known).text)
        assert [row["v"] for row in event["rows"]] == list(range(kept, 28))
    wrong = client.get("/queries/events/changes", params={"form": "changelog"}).text
    assert "event: failed" in wrong and "gives a stream, which has no changelog" in wrong


def test_probes_say_whether_the_job_runs_without_a_token(folder, tmp_path):
    def asked(path: Path, probe: str) -> int:
        app = Dashboard(str(path), Access("0.0.0.0", 8321)).app
        return int(TestClient(app, base_url="http://10.0.0.7:8321").get(probe).status_code)

    assert (asked(folder, "/healthz"), asked(folder, "/readyz"), asked(folder, "/queries")) == (200, 503, 401)
    with session_of(tmp_path / "running") as session:
        push(session, 1)
        assert asked(tmp_path / "running", "/readyz") == 200


def test_a_subscriber_hears_of_every_result_once_as_it_is_released(tmp_path):
    heard: list[int] = []
    delays: list[float] = []
    with session_of(tmp_path / "checkpoint") as session:
        push(session, 0)
        query = session.queries["events"]
        committed: dict[int, float] = {}

        def listen() -> None:
            for table in query.subscribe():
                now = time.monotonic()
                for value in table.column("v").to_pylist():
                    heard.append(value)
                    delays.extend([now - committed[value]] if value in committed else [])

        listener = threading.Thread(target=listen)
        listener.start()
        for at in range(1, 20):
            push(session, at)
            committed[at - 2] = time.monotonic()  # it is released with the second batch after its own
        assert session.queries["sums"].current().num_rows == 2
    listener.join(30)
    assert heard == read_query_results(str(tmp_path / "checkpoint"), "events").column("v").to_pylist()
    assert len(heard) > 15
    print(f"median delay {sorted(delays)[len(delays) // 2] * 1000:.1f} ms")


def test_subscriptions_can_be_awaited(folder):
    async def listened() -> list[int]:
        return [value async for table in Subscription(str(folder), "events") for value in table.column("v").to_pylist()]

    with ThreadPoolExecutor(1) as apart:  # a browser's loop may run in this thread
        found = apart.submit(lambda: asyncio.run(listened())).result()
    assert found == read_query_results(str(folder), "events").column("v").to_pylist()
