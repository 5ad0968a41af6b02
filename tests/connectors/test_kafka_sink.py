"""A topic of Kafka has each result once. The mock cluster keeps no transactions, so a part of one may be seen there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from midstream.cluster.sinks import Delivery, connect
from midstream.connectors.sink import deliver
from midstream.errors import JobError
from midstream.lab.servers import kafka_cluster
from midstream.testing import check_sink

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install 'midstream[kafka]'")

ROWS = pa.table({"k": [*range(6), 3], "valid_from": range(7), "valid_to": [99] * 7})


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kafka_cluster() as address:
        yield address


def messages(servers: str, topic: str) -> list[dict[str, Any]]:
    source = connect_source(servers, topic)
    found = [
        json.loads(row["value"])
        for part, start in source.partitions().items()
        for row in source.read(part, start, source.end(part, start)).to_pylist()
    ]
    source.close()
    return found


def connect_source(servers: str, topic: str) -> Any:
    from midstream.cluster import sources

    return sources.connect("kafka", servers=servers, topic=topic, format="raw")


def delivery(**changed: Any) -> Delivery:
    known: dict[str, Any] = {"query": "q", "identity": "i", "checkpoint": "c", "history": "h", "batch_id": 3}
    return Delivery(**{**known, "since": 0, "until": 10, "schema": ROWS.schema, **changed})


@pytest.mark.slow
@pytest.mark.parametrize("form", ["rows", "changelog"])
def test_a_topic_has_each_result_once(servers, form):
    def made(place: str) -> Any:
        return connect("kafka", servers=servers, topic=f"{form}-{place}", form=form)

    # What the mock cluster has of a transaction that was not committed, consumers see.
    check_sink(made, lambda place: messages(servers, f"{form}-{place}"), kills=8, seen_in_part=True)


@pytest.mark.parametrize("sent", [1, 7])
def test_a_delivery_that_is_there_in_part_is_completed(servers, sent, monkeypatch):
    topic = f"part-{sent}"
    sink = connect("kafka", servers=servers, topic=topic, key=["k"])
    plain, count = type(sink)._send, 0

    def send(self: Any, producer: Any, *message: Any) -> None:
        nonlocal count
        if count == sent:
            producer.flush(10)
            raise JobError("killed")
        count += 1
        plain(self, producer, *message)

    with monkeypatch.context() as patched:
        patched.setattr(type(sink), "_send", send)
        if sent < 7:
            with pytest.raises(JobError, match="killed"):
                deliver(sink, ROWS, delivery())
        else:
            deliver(sink, ROWS, delivery())
    for until in (10, 10, 20):  # also with what has come since
        deliver(connect("kafka", servers=servers, topic=topic, key=["k"]), ROWS, delivery(until=until))
    assert sorted(row["k"] for row in messages(servers, topic)) == [0, 1, 2, 3, 3, 4, 5]


def test_a_key_of_an_unknown_column_is_refused(servers):
    with pytest.raises(JobError, match="the key of kafka topic t names x, which is no column of the results"):
        deliver(connect("kafka", servers=servers, topic="t", key=["x"]), ROWS, delivery())
