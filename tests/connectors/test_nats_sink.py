"""A stream of NATS has each result once, also where a delivery was interrupted or two jobs write the same."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.nats_server import in_nats, nats_server

from midstream.cluster.sinks import Delivery, connect
from midstream.cluster.sources import connect as connect_source
from midstream.connectors.sink import deliver
from midstream.errors import JobError
from midstream.testing import check_sink

ROWS = pa.table({"k": [*range(6), 3], "valid_from": range(7), "valid_to": [99] * 7})


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    with nats_server(tmp_path_factory.mktemp("nats")) as address:
        in_nats(address, lambda jetstream: jetstream.add_stream(name="out", subjects=["out.>"]))
        yield address


def rows(url: str, place: str) -> list[dict[str, Any]]:
    source = connect_source("nats", servers=url, stream="out", subject=f"out.{place}.*", format="raw")
    ((part, start),) = source.partitions().items()
    return [json.loads(row["value"]) for row in source.read(part, start, source.end(part, start)).to_pylist()]


def delivery(**changed: Any) -> Delivery:
    known: dict[str, Any] = {"query": "q", "identity": "i", "checkpoint": "c", "history": "h", "batch_id": 3}
    return Delivery(**{**known, "since": 0, "until": 10, "schema": ROWS.schema, **changed})


@pytest.mark.parametrize("form", ["rows", pytest.param("changelog", marks=pytest.mark.slow)])
def test_a_subject_has_each_result_once(url, form):
    """In a process of its own: the law forks, and a fork of a process with threads of other clients may die."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.connectors.test_nats_sink", url, form], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("until", [10, 5])
def test_a_delivery_that_is_there_in_part_is_completed_also_if_it_comes_cut_otherwise(url, until, monkeypatch):
    monkeypatch.setattr("midstream.connectors.nats_subject.AT_ONCE", 3)
    sink = connect("nats", servers=url, stream="out", subject=f"out.part-{until}")
    deliver(sink, ROWS[:1], delivery(since=-10, until=0))
    send, calls = type(sink)._send, 0

    def interrupted(self: Any, *given: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return int(send(self, *given))

    monkeypatch.setattr(type(sink), "_send", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deliver(sink, ROWS, delivery(had=0))
    assert len(rows(url, f"part-{until}")) == 4
    for since, end in ((0, until), (until, 10)):
        part = ROWS.filter(pa.array([since <= at < end for at in range(7)]))
        deliver(
            connect("nats", servers=url, stream="out", subject=f"out.part-{until}"),
            part,
            delivery(since=since, until=end, had=since),
        )
    assert sorted(row["k"] for row in rows(url, f"part-{until}")) == [0, 0, 1, 2, 3, 3, 4, 5]


def test_a_loop_that_runs_already_as_in_notebooks_is_not_in_the_way(url):
    async def within() -> list[dict[str, Any]]:
        return rows(url, "nowhere")

    with ThreadPoolExecutor(1) as apart:
        assert apart.submit(lambda: asyncio.run(within())).result() == []


def test_a_stream_that_is_not_there_and_a_row_that_is_too_long_are_refused_by_name(url, monkeypatch):
    with pytest.raises(JobError, match="nats stream none"):
        deliver(connect("nats", servers=url, stream="none", subject="none"), ROWS, delivery())
    monkeypatch.setattr("midstream.connectors.nats_subject.LONGEST", 10)
    with pytest.raises(JobError, match="does not take results of query q"):
        deliver(connect("nats", servers=url, stream="out", subject="out.long"), ROWS, delivery())
    assert not rows(url, "long")


if __name__ == "__main__":
    server, chosen = sys.argv[1:]
    check_sink(
        lambda place: connect("nats", servers=server, stream="out", subject=f"out.{chosen}-{place}", form=chosen),
        lambda place: rows(server, f"{chosen}-{place}"),
        kills=2 if chosen == "rows" else 30,
        seen_in_part=True,
    )
