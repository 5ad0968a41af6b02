"""Targets that fail for a while, that refuse rows, or that are told of results more than once."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.postgres_server import postgres_server

from midstream.cluster.sinks import Delivery, connect
from midstream.connectors.sink import deliver
from midstream.errors import JobError

ROWS = pa.table(
    {"k": list(range(9)), "name": [f"n{k}" for k in range(9)], "valid_from": range(9), "valid_to": [99] * 9}
)


def delivery(**changed: Any) -> Delivery:
    known: dict[str, Any] = {"query": "q", "identity": "i", "checkpoint": "c", "history": "h", "batch_id": 3}
    return Delivery(**{**known, "since": 0, "until": 10, "schema": ROWS.schema, **changed})


class Failing:
    """A sink that fails some times before it takes results."""

    name, form = "failing", "rows"
    refusals = (ValueError,)

    def __init__(self, *failures: Exception) -> None:
        self.failures, self.tries, self.had = list(failures), 0, 0

    def open(self, schema: pa.Schema) -> None:
        return None

    def last(self, delivery: Delivery) -> int | None:
        return None

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        self.tries += 1
        if self.failures:
            raise self.failures.pop(0)
        self.had += table.num_rows


def test_a_target_that_is_away_is_tried_again_and_one_that_refuses_rows_is_not(caplog):
    away = Failing(OSError("away"), OSError("away"))
    deliver(away, ROWS, delivery())  # type: ignore[arg-type]
    assert (away.tries, away.had) == (3, 9) and caplog.text.count("it is tried again") == 2
    gone, refusing = Failing(*(OSError("gone") for _ in range(3))), Failing(ValueError("no such value"))
    for sink, tries in ((gone, 3), (refusing, 1)):
        with pytest.raises(JobError, match="sink failing does not take results of query q"):
            deliver(sink, ROWS, delivery())  # type: ignore[arg-type]
        assert (sink.tries, sink.had) == (tries, 0)


CHECKED = "(k BIGINT CHECK (k % 4 <> 1), name TEXT, valid_from BIGINT, valid_to BIGINT{key})"


def require_set_aside(rows: list[Any], letters: list[Any]) -> None:
    assert sorted(row[0] for row in rows) == [0, 2, 3, 4, 6, 7, 8]
    assert sorted(json.loads(letter[4])["k"] for letter in letters) == [1, 5]
    assert {letter[:3] for letter in letters} == {("t", "q", 3)} and all(
        "check" in letter[3].lower() for letter in letters
    )


def test_rows_that_a_sqlite_table_refuses_are_set_aside_once(tmp_path):
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        connection.execute(f"CREATE TABLE t {CHECKED.format(key='')}")
        connection.commit()
        stopping = connect("sqlite", path=str(tmp_path / "out.db"), table="t")
        with pytest.raises(JobError, match="does not take results of query q"):
            deliver(stopping, ROWS, delivery())
        for _ in range(2):
            deliver(connect("sqlite", path=str(tmp_path / "out.db"), table="t", on_bad="dead_letter"), ROWS, delivery())
        require_set_aside(
            connection.execute("SELECT * FROM t").fetchall(),
            connection.execute("SELECT * FROM midstream_dead_letters").fetchall(),
        )


def test_rows_that_a_postgres_table_refuses_are_set_aside_once():
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'midstream[postgres]'")
    with postgres_server() as server:
        server.run(f"CREATE TABLE t {CHECKED.format(key=', PRIMARY KEY (k)')}")
        known = {"url": server.url, "table": "t", "on_bad": "dead_letter", "form": "current", "key": ["k"]}
        for _ in range(2):
            deliver(connect("postgres", **known), ROWS, delivery())
        with psycopg.connect(server.url) as connection:
            require_set_aside(
                connection.execute("SELECT * FROM t").fetchall(),
                connection.execute("SELECT * FROM midstream_dead_letters").fetchall(),
            )


@contextmanager
def receiving(*statuses: int) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A receiver that answers with some statuses, then with 204; gives its address and what it was sent."""
    received: list[tuple[str, Any]] = []
    answers = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers["Idempotency-Key"], json.loads(body)))
            self.send_response(answers.pop(0) if answers else 204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/in?a=1", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_webhook_is_sent_results_with_keys_that_repeats_have_again(monkeypatch):
    monkeypatch.setattr("midstream.connectors.webhook.AT_ONCE", 5)
    with receiving(503) as (url, received):
        sink = connect("webhook", url=url, headers={"Authorization": "Bearer s3cret"})
        for _ in range(2):
            sink.deliver(ROWS, delivery())
    keys = [key for key, _ in received]
    assert keys == [f"h.q.i.0.10.{n}" for n in (0, 0, 1, 0, 1)]
    assert [row["k"] for _, body in received[1:3] for row in body["rows"]] == list(range(9))
    assert received[0][1]["until"] == 10 and sink.name == "webhook 127.0.0.1"


def test_a_webhook_that_refuses_results_is_not_tried_again():
    with receiving(401) as (url, received), pytest.raises(JobError, match="refuses results with status 401"):
        connect("webhook", url=url).deliver(ROWS, delivery())
    assert len(received) == 1
    with pytest.raises(JobError, match="is no address"):
        connect("webhook", url="ftp://x")
