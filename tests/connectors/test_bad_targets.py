"""Targets that fail for a while, that refuse rows, or that are told of results more than once."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.connectors.postgres_server import postgres_server

from midstream.cluster.sinks import Delivery, connect
from midstream.cluster.sources import connect as connect_source
from midstream.connectors.sink import deliver
from midstream.errors import JobError
from midstream.lab.servers import kafka_cluster

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


CHECKED = "(k BIGINT CHECK (k % 4 <> 1), name TEXT, valid_from BIGINT, valid_to BIGINT)"


class Aside:
    """Keeps refused rows as a job does: those of a repeated delivery in the place of those before."""

    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}

    def keep(self, delivery: Delivery, refused: Any, all_of_them: bool) -> None:
        assert not all_of_them
        self.kept[delivery.since] = refused

    @property
    def keys(self) -> list[int]:
        return sorted(json.loads(one.row)["k"] for refused in self.kept.values() for one in refused)

    def require(self, rows: list[Any], bad: tuple[int, ...] = (1, 5), word: str = "check") -> None:
        (refused,) = self.kept.values()
        assert self.keys == list(bad)
        assert all(word in one.reason.lower() for one in refused)
        assert sorted(rows) == [k for k in range(9) if k not in bad]


def twice(sink: Any, table: pa.Table = ROWS) -> Aside:
    aside = Aside()
    for _ in range(2):
        deliver(sink, table, delivery(set_aside=aside.keep))
    return aside


@contextmanager
def database(kind: str, folder: Path, *statements: str) -> Iterator[tuple[dict[str, Any], Callable[[str], list[int]]]]:
    """A database after some statements: how sinks are declared for it, and what reads the column `k` of a table."""

    file, known = str(folder / "out.db"), {"path": str(folder / "out.db")}
    with ExitStack() as stack:
        opened: Callable[[], Any] = partial({"sqlite": sqlite3.connect}.get(kind, duckdb.connect), file)
        if kind == "postgres":
            reason = "psycopg is not installed: pip install 'midstream[postgres]'"
            psycopg, url = pytest.importorskip("psycopg", reason=reason), stack.enter_context(postgres_server()).url
            opened, known = partial(psycopg.connect, url), {"url": url}
        with closing(opened()) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

        def read(table: str) -> list[int]:
            with closing(opened()) as connection:
                return sorted(k for (k,) in connection.execute(f"SELECT k FROM {table}").fetchall())

        yield known, read


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_rows_that_a_table_refuses_are_set_aside_once(kind, tmp_path):
    """Rows that a check refuses, and those that clash with rows of others, of the delivery or of one before it."""
    made = "(k BIGINT PRIMARY KEY, name TEXT, valid_from BIGINT, valid_to BIGINT, more BIGINT DEFAULT 7)"
    statements = [
        f"CREATE TABLE checked {CHECKED}",
        f"CREATE TABLE keyed {made}",
        "CREATE UNIQUE INDEX names ON keyed (lower(name))",
        "INSERT INTO keyed VALUES (1, 'x', 0, 0, 0), (100, 'n5', 0, 0, 0)",
    ]
    with database(kind, tmp_path, *statements) as (known, read):
        with pytest.raises(JobError, match="does not take results of query q"):
            deliver(connect(kind, **known, table="checked"), ROWS, delivery())
        twice(connect(kind, **known, table="checked", on_bad="dead_letter")).require(read("checked"))
        sink = connect(kind, **known, table="keyed", on_bad="dead_letter")
        names = pa.array([*(f"n{k}" for k in range(7)), "N6", None])
        aside = twice(sink, ROWS.set_column(1, "name", names))
        assert aside.keys == [1, 5, 7] and read("keyed") == [0, 1, 2, 3, 4, 6, 8, 100]
        later = pa.table({"k": [8, 9, 10], "name": ["a", "N0", None], "valid_from": [11] * 3, "valid_to": [99] * 3})
        deliver(sink, later, delivery(since=10, until=20, set_aside=aside.keep))
        assert aside.keys == [1, 5, 7, 8, 9] and read("keyed") == [0, 1, 2, 3, 4, 6, 8, 10, 100]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_rows_of_a_key_that_a_table_refuses_are_set_aside_and_others_take_the_place_of_old_ones(kind, tmp_path):
    made = f"CREATE TABLE t {CHECKED.removesuffix(')')}, PRIMARY KEY (k))"
    with database(kind, tmp_path, made, "INSERT INTO t VALUES (2, 'old', 0, 5)") as (known, read):
        sink = connect(kind, **known, table="t", on_bad="dead_letter", form="current", key=["k"])
        twice(sink).require(read("t"))


def test_a_duckdb_table_with_a_foreign_key_is_tried_by_nobody(tmp_path):
    made = ["CREATE TABLE p (id BIGINT PRIMARY KEY)", "CREATE TABLE t (k BIGINT REFERENCES p, valid_to BIGINT)"]
    with database("duckdb", tmp_path, *made) as (known, read):
        with pytest.raises(JobError, match="duckdb table t has a foreign key"):
            twice(connect("duckdb", **known, table="t", on_bad="dead_letter"))
        assert read("t") == []


def test_rows_that_a_delta_table_refuses_are_set_aside_once_and_no_value_is_cut(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'midstream[delta]'")
    kinds = [("k", pa.int64()), ("name", pa.string()), ("valid_from", pa.int64()), ("valid_to", pa.int64())]
    table = deltalake.DeltaTable.create(str(tmp_path), pa.schema(kinds))
    table.alter.add_constraint({"rule": "k % 4 <> 1"})
    twice(connect("delta", path=str(tmp_path), on_bad="dead_letter")).require(
        deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()["k"].to_pylist(), word="validation"
    )
    halves = ROWS.set_column(0, "k", pa.array([k / 2 for k in range(9)]))
    with pytest.raises(JobError, match="does not take results"):
        deliver(connect("delta", path=str(tmp_path)), halves, delivery(since=10, until=20))


def test_rows_that_an_iceberg_table_refuses_are_set_aside_once(tmp_path):
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install 'midstream[iceberg]'")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import IntegerType, LongType, NestedField, StringType

    known = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = load_catalog("default", **known)
    catalog.create_namespace("sales")
    kinds = {"k": IntegerType(), "name": StringType(), "valid_from": LongType(), "valid_to": LongType()}
    fields = [NestedField(n, name, kind, required=n == 2) for n, (name, kind) in enumerate(kinds.items(), 1)]
    catalog.create_table("sales.paid", Schema(*fields))
    names = ROWS["name"].to_pylist()
    names[5] = None
    bad = ROWS.set_column(1, "name", pa.array(names))
    sink = connect("iceberg", catalog=known, table="sales.paid", on_bad="dead_letter")
    aside = twice(sink, bad)
    aside.require(catalog.load_table("sales.paid").scan().to_arrow()["k"].to_pylist(), (5,), "null")


def test_rows_that_no_message_of_kafka_holds_are_set_aside_once():
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install 'midstream[kafka]'")
    names = ["x" * 2000 if k in (1, 5) else "n" for k in range(9)]
    with kafka_cluster() as servers:
        known: Any = {"servers": servers, "topic": "t", "settings": {"message.max.bytes": "2500"}}
        aside = twice(connect("kafka", **known, on_bad="dead_letter"), ROWS.set_column(1, "name", pa.array(names)))
        source = connect_source("kafka", servers=servers, topic="t", format="raw")
        texts = [
            row["value"]
            for part, start in source.partitions().items()
            for row in source.read(part, start, source.end(part, start)).to_pylist()
        ]
        source.close()
    aside.require([json.loads(text)["k"] for text in texts], word="longer")


@contextmanager
def receiving(*statuses: int, refuses: tuple[int, ...] = ()) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A receiver that answers with some statuses, then with 204; gives its address and what it was sent."""
    received: list[tuple[str, Any]] = []
    answers = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers["Idempotency-Key"], json.loads(body)))
            bad = any(row["k"] in refuses for row in received[-1][1]["rows"])
            self.send_response(422 if bad else answers.pop(0) if answers else 204)
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


def test_rows_that_a_webhook_refuses_are_set_aside_and_others_have_keys_that_repeats_have_again(monkeypatch):
    monkeypatch.setattr("midstream.connectors.webhook.AT_ONCE", 5)
    aside = Aside()
    with receiving(refuses=(1, 5)) as (url, received):
        for _ in range(2):
            connect("webhook", url=url, on_bad="dead_letter").deliver(ROWS, delivery(set_aside=aside.keep))
    taken = {
        key: [row["k"] for row in body["rows"]]
        for key, body in received
        if not {1, 5} & {row["k"] for row in body["rows"]}
    }
    aside.require([k for rows in taken.values() for k in rows], word="422")
    assert len(received) == 2 * len({key for key, _ in received})


def test_a_webhook_that_refuses_results_is_not_tried_again():
    with receiving(401) as (url, received), pytest.raises(JobError, match="refuses results with status 401"):
        connect("webhook", url=url).deliver(ROWS, delivery())
    assert len(received) == 1
    with pytest.raises(JobError, match="is no address"):
        connect("webhook", url="ftp://x")
