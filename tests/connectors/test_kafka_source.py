"""A topic of Kafka, read from the mock cluster within its client: each message once, bad ones with their places."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import count
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.killed_jobs import killed

from midstream import api
from midstream.algebra.declarations import StreamDeclaration
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.local.readings import SourceReading
from midstream.cluster.sources import Source, connect
from midstream.connectors.connected import Connected
from midstream.connectors.sources import kafka
from midstream.errors import InputError, JobError
from midstream.testing import check_source

confluent_kafka = pytest.importorskip(
    "confluent_kafka", reason="the package confluent-kafka is not installed: pip install 'midstream[kafka]'"
)

SCHEMA = "id BIGINT, ts BIGINT"


class Cluster:
    """A mock cluster, which lives as long as the producer that made it."""

    def __init__(self) -> None:
        settings = {"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0}
        self.producer = confluent_kafka.Producer(settings)
        (broker,) = self.producer.list_topics(timeout=10).brokers.values()
        self.servers = f"{broker.host}:{broker.port}"
        self._topics = count()

    def topic(self) -> str:
        """A new topic; it has four partitions."""
        name = f"topic-{next(self._topics)}"
        self.producer.list_topics(name, timeout=10)
        return name

    def send(self, topic: str, *values: object, partition: int = 0) -> None:
        for value in values:
            text = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            self.producer.produce(topic, text, key=b"k", partition=partition)
        assert self.producer.flush(10) == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield Cluster()


@pytest.fixture
def topic_of(cluster: Cluster) -> Callable[..., Source]:
    return lambda topic, **options: connect("kafka", servers=cluster.servers, topic=topic, **options)


def worked_through(checkpoint: Any, source: Source, finish: bool = True) -> Any:
    with CheckpointSession(checkpoint=str(checkpoint), on="local") as session:
        session.open_stream("s", source, options={"maxRowsPerTrigger": "8"})
        session.query("q", "SELECT id FROM s [UNBOUNDED]")
        session.start("available")
        session.wait()
        session.end_available(finish)
    return api.open(checkpoint)


def test_a_topic_holds_the_law_of_sources(cluster, topic_of):
    topic, ids = cluster.topic(), count()

    def write(number: int) -> Iterable[Mapping[str, Any]]:
        rows = [{"id": next(ids), "ts": 1} for _ in range(number)]
        for row in rows:
            cluster.send(topic, row, partition=row["id"] % 3)
        return rows

    check_source(lambda: topic_of(topic, schema=SCHEMA), write)


def test_a_partition_that_others_read_holds_time_back_once_a_batch_has_left_rows_in_it(cluster, topic_of):
    topic = cluster.topic()
    cluster.send(topic, *({"id": n, "ts": 1000 + n} for n in range(6)), partition=0)
    cluster.send(topic, *({"id": n, "ts": n} for n in range(9)), partition=1)
    source = Connected("s", topic_of(topic, schema=SCHEMA), limit=8)
    reading = SourceReading(StreamDeclaration("s", source.columns, "ts", lateness=2), source, None)
    begin = reading.positions
    assert reading.earliest_left(begin, {**begin, "0": 4, "1": 4}) == 2  # both have more rows than they may give
    assert reading.earliest_left({**begin, "0": 4, "1": 4}, {**begin, "0": 6, "1": 8}) == 6
    assert reading.earliest_left({**begin, "0": 6, "1": 8}, {**begin, "0": 6, "1": 9}) > 2**62
    cluster.send(topic, {"id": 9, "ts": 9}, partition=1)
    assert reading.earliest_left({**begin, "0": 6, "1": 8}, {**begin, "0": 6, "1": 9}) > 2**62  # it came since


def test_messages_that_do_not_decode_are_dead_letters_with_topic_partition_and_offset(cluster, topic_of, tmp_path):
    topic, bad = cluster.topic(), [b"{", b'{"id": 1, "ts": 1}{"id": 2, "ts": 1}', {"id": "x"}, None, b"\xff", [1]]
    for number in range(20):
        row = json.dumps({"id": number, "ts": number}, indent=number % 3 or None).encode()
        cluster.send(topic, b" " * (number % 2) + row, *bad[number : number + 1])
    stored = worked_through(tmp_path / "checkpoint", topic_of(topic, schema=SCHEMA))
    assert sorted(stored.results("q").column("id").to_pylist()) == list(range(20))
    letters = {json.loads(letter["row"])["offset"]: letter for letter in stored.dead_letters().to_pylist()}
    assert sorted(letters) == [1, 3, 5, 7, 9, 11]
    assert json.loads(letters[9]["row"]) == {"topic": topic, "partition": 0, "offset": 9, "text": "\\xff"}
    assert letters[5]["reason"] == f"cannot be read: id: 'x' is no int64 (topic {topic}, partition 0, offset 5)"


def test_changes_as_debezium_writes_them_are_rows(cluster, topic_of):
    topic, at = cluster.topic(), 1_700_000_000_123
    inserted = {"before": None, "after": {"id": 1, "name": "a"}, "op": "c", "ts_ms": at}
    removed = {"schema": {}, "payload": {"before": {"id": 1, "name": "b"}, "after": None, "op": "d", "ts_ms": at}}
    updated = {"after": {"id": 1, "name": "b"}, "op": "u", "ts_ms": at}
    cluster.send(topic, inserted, None, updated, removed, None, {"op": "t"})
    schema = "id BIGINT, name STRING, change STRING, changed_at TIMESTAMP, kafka_offset BIGINT"
    source = topic_of(topic, format="debezium", schema=schema)
    rows = source.read("0", 0, 6).to_pylist()
    assert [(row["name"], row["change"]) for row in rows[:3]] == [("a", "insert"), ("b", "update"), ("b", "delete")]
    assert pa.scalar(rows[0]["changed_at"], pa.timestamp("ms", "UTC")).value == at
    assert [row["kafka_offset"] for row in rows[:3]] == [0, 2, 3]  # what follows a deletion is no change
    assert [json.loads(row["#bad"])["at"]["offset"] for row in rows[3:]] == [5]


def test_raw_messages_have_all_that_is_known_of_them(cluster, topic_of):
    topic = cluster.topic()
    cluster.send(topic, b"\x00\xff", partition=2)
    (row,) = topic_of(topic, format="raw").read("2", 0, 1).to_pylist()
    assert (row["value"], row["kafka_key"], row["kafka_partition"], row["kafka_offset"]) == (b"\x00\xff", b"k", 2, 0)
    with pytest.raises(InputError, match="of the format raw has no schema of its own"):
        topic_of(topic, format="raw", schema=SCHEMA)
    with pytest.raises(InputError, match="column kafka_offset of kafka topic .* is int64, and its schema says string"):
        topic_of(topic, schema="kafka_offset STRING")


def test_a_topic_that_has_lost_messages_is_refused(cluster, topic_of, tmp_path, monkeypatch):
    topic = cluster.topic()
    cluster.send(topic, *({"id": n, "ts": n} for n in range(2)))
    worked_through(tmp_path / "checkpoint", topic_of(topic, schema=SCHEMA), finish=False)
    cluster.send(topic, *(b"x" * 900_000 for _ in range(9)))  # of a partition, the mock cluster keeps 5 MB
    with pytest.raises(JobError, match="in partition 0, and 2 is the next to read") as raised:
        worked_through(tmp_path / "checkpoint", topic_of(topic, schema=SCHEMA))
    assert raised.value.detail == "messages that were not read are gone"
    monkeypatch.setattr(kafka.Kafka, "_bounds", lambda self, part: (0, 1) if part == "0" else (0, 0))
    with pytest.raises(JobError, match="and 2 is the next to read") as raised:
        worked_through(tmp_path / "checkpoint", topic_of(topic, schema=SCHEMA))
    assert raised.value.detail == "the topic was made again"


def test_a_topic_of_the_same_name_on_another_cluster_is_refused(cluster, topic_of, tmp_path):
    topic, other = cluster.topic(), Cluster()
    for where in (cluster, other):
        where.send(topic, {"id": 1, "ts": 1})
    worked_through(tmp_path / "checkpoint", topic_of(topic, schema=SCHEMA), finish=False)
    elsewhere = connect("kafka", servers=other.servers, topic=topic, schema=SCHEMA)
    with pytest.raises(
        JobError, match=f"was read from kafka topic {topic} .cluster .* and cannot go on from"
    ) as raised:
        worked_through(tmp_path / "checkpoint", elsewhere)
    assert raised.value.detail is not None and "is on another server" in raised.value.detail
    elsewhere.close()


def test_a_topic_that_was_made_again_under_its_name_is_refused(cluster, topic_of, tmp_path, monkeypatch):
    """The mock cluster has no controller that could tell a topic's id, so the answer of one is put in its place."""
    topic, ids = cluster.topic(), [confluent_kafka.Uuid(1, 2)]
    cluster.send(topic, {"id": 1, "ts": 1})

    class Controller:
        def __init__(self, settings: Any, logger: Any) -> None:
            assert settings["bootstrap.servers"] == cluster.servers

        def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
            answer: Future[Any] = Future()
            answer.set_result(SimpleNamespace(topic_id=ids[-1]))
            return {topic: answer}

    monkeypatch.setattr("confluent_kafka.admin.AdminClient", Controller)
    monkeypatch.setattr(kafka, "has_controller", lambda known: True)
    worked_through(tmp_path / "checkpoint", topic_of(topic, schema=SCHEMA), finish=False)
    ids.append(confluent_kafka.Uuid(3, 4))
    again = topic_of(topic, schema=SCHEMA)
    with pytest.raises(JobError, match=f"topic {confluent_kafka.Uuid(1, 2)}. so far and cannot go on from") as raised:
        worked_through(tmp_path / "checkpoint", again)
    assert raised.value.detail is not None and "was made again" in raised.value.detail
    again.close()


def test_a_broker_that_is_not_there_is_named(topic_of, tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.connectors.retrying.PAUSES", ())
    monkeypatch.setattr(kafka, "PATIENCE", 0.2)
    source = connect("kafka", servers="127.0.0.1:9", topic="orders", schema=SCHEMA)
    with pytest.raises(JobError, match="stream s cannot be read from kafka topic orders"):
        worked_through(tmp_path / "checkpoint", source)


@pytest.mark.slow
def test_a_job_that_is_killed_again_and_again_has_each_message_once(cluster, tmp_path):
    topic = cluster.topic()
    source = f'source = {{ kind = "kafka", servers = "{cluster.servers}", topic = "{topic}" }}\nschema = "{SCHEMA}"'
    killed(tmp_path, source, lambda n: cluster.send(topic, {"id": n, "ts": n}, partition=n % 4), kills=8)
