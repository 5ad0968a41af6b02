"""A table of PostgreSQL has each result once, also while clients and servers are killed."""

from __future__ import annotations

import datetime
import os
import signal
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.postgres_server import Server, postgres_server

from midstream.cluster.sinks import Delivery, connect
from midstream.connectors.sink import deliver
from midstream.errors import JobError
from midstream.testing import check_sink

psycopg = pytest.importorskip(
    "psycopg", reason="the package psycopg is not installed: pip install 'midstream[postgres]'"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as made:
        yield made


def delivery(schema: pa.Schema, **changed: Any) -> Delivery:
    known: dict[str, Any] = {"query": "q", "identity": "i", "checkpoint": "c", "history": "h", "batch_id": 3}
    return Delivery(**{**known, "since": 0, "until": 2**60, "schema": schema, **changed})


@pytest.mark.parametrize(
    ("form", "key", "kills"),
    [
        ("rows", [], 4),
        ("changelog", [], 2),
        ("current", [], 2),
        ("current", ["k"], 4),
        pytest.param("rows", [], 60, marks=pytest.mark.slow),
        pytest.param("current", ["k"], 60, marks=pytest.mark.slow),
    ],
)
def test_a_table_of_postgres_has_each_result_once(server, form, key, kills):
    run = f"{form} {len(key)} {kills}"
    options = {"form": form, **({"key": key} if key else {})}
    check_sink(
        lambda place: connect("postgres", url=server.url, table=f"{place} {run}", **options),
        lambda place: server.rows(f"{place} {run}"),
        kills=kills,
    )


def test_a_table_of_postgres_keeps_values_of_every_type(server):
    at = datetime.datetime(2026, 5, 4, 3, 2, 1, 5)
    table = pa.table(
        {
            "flag": [True, None],
            'a.b "c"': [1, 2],
            "amount": pa.array([Decimal("12.50"), None], pa.decimal128(10, 2)),
            "day": [at.date(), None],
            "time": pa.array([at.time(), None], pa.time64("us")),
            "bytes": [b"\x00\xff", None],
            "tags": pa.array([["a", 'b"'], None], pa.list_(pa.string())),
            "valid_from": pa.array([at, at], pa.timestamp("us")),
            "valid_to": pa.array([None, at + datetime.timedelta(hours=1)], pa.timestamp("us", "UTC")),
        }
    )
    deliver(connect("postgres", url=server.url, table="every type %s"), table, delivery(table.schema))
    first, second = server.rows("every type %s")
    wanted = {"flag": True, "amount": Decimal("12.50"), "day": at.date(), "time": at.time(), "bytes": b"\x00\xff"}
    assert first == {**wanted, 'a.b "c"': 1, "tags": ["a", 'b"'], "valid_from": at, "valid_to": None}
    assert second["valid_to"] == (at + datetime.timedelta(hours=1)).replace(tzinfo=datetime.UTC)
    assert {name for name, value in second.items() if value is None} == {*wanted, "tags"}


ROWS = pa.table({"k": [1, 2], "valid_from": [1, 4], "valid_to": [3, None]})


def test_rows_that_a_constraint_refuses_leave_nothing_behind(server):
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE own (id SERIAL, k BIGINT CHECK (k < 2), valid_from BIGINT, valid_to BIGINT)")
    sink = connect("postgres", url=server.url, table="own")
    with pytest.raises(JobError, match="does not take results of query q") as refused:
        deliver(sink, ROWS, delivery(ROWS.schema))
    assert "CheckViolation" in str(refused.value.detail) and server.rows("own") == []
    deliver(sink, ROWS[:1], delivery(ROWS.schema))
    assert [row["k"] for row in server.rows("own")] == [1]


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:s3cret@[/db", "postgresql://me:p@s3cret@localhost/db", "postgresql://me:s3cret@localhost:1/db"],
)
def test_no_message_has_a_password(url, monkeypatch):
    monkeypatch.setenv("PG_URL", url)
    with pytest.raises(JobError) as failed:
        deliver(connect("postgres", url="${PG_URL}", table="t"), ROWS, delivery(ROWS.schema))
    assert "s3cret" not in str(failed.value) and failed.value.__cause__ is None
    assert failed.value.__suppress_context__ or failed.value.__context__ is None


def test_a_driver_that_is_killed_leaves_its_transaction_undone(server):
    """The server notices that its client is gone, and forgets what it was sent."""
    with psycopg.connect(server.url) as watching:
        sink = connect("postgres", url=server.url, table="killed")
        sink.open(ROWS.schema)
        child = os.fork()
        if child == 0:
            with sink.transaction() as run:
                sink.insert(run, ROWS, '"killed"', "")
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert watching.execute("SELECT count(*) FROM killed").fetchone() == (0,)
    deliver(sink, ROWS, delivery(ROWS.schema))
    assert len(server.rows("killed")) == 2
