"""`midstream bench connectors`: what sources and sinks add to what their clients do alone, on the same rows.

A sink takes 100,000 results by a delivery, as a job makes it: asked for what it has had, written, recorded. The
yardsticks are the same rows in a Parquet file that is synced, and PostgreSQL's bare COPY. A source is read as a job
reads it, in portions of 100,000 rows; the yardstick is the loop that its client's documentation shows.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from midstream.connectors.connected import Connected
from midstream.connectors.registry import SINKS, SOURCES
from midstream.connectors.sink import Delivery, deliver
from midstream.lab.bench.figures import Report, alternating
from midstream.lab.servers import kafka_cluster, postgres_server

ROWS, REPEATS = 100_000, 5
BATCHES = 30
MESSAGES = 40_000
"""How many messages a partition of the mock cluster holds: it keeps 5 MB of each."""


def bench_connectors(only: Sequence[str] = ()) -> Report:
    """The bars of sources and sinks; `only` names some of the parts."""
    report = Report("connectors")
    for name, part in PARTS.items():
        if not only or name in only:
            with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder:
                part(report, Path(folder))
    return report


def results() -> pa.Table:
    """The results that sinks are given."""
    random = np.random.default_rng(7)
    starts = pa.array(np.arange(ROWS) * 1000 + 1_700_000_000_000_000, pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "id": random.integers(0, 2**40, ROWS),
            "customer": [f"customer {number}" for number in random.integers(0, 5000, ROWS)],
            "amount": random.normal(100, 20, ROWS).round(2),
            "valid_from": starts,
            "valid_to": pa.array(starts.cast(pa.int64()).to_numpy() + 3_600_000_000, pa.timestamp("us", "UTC")),
        }
    )


def giving(sink: Any, table: pa.Table) -> Callable[[], None]:
    """Gives a sink the same results again and again, each time as those of another query."""
    numbers = iter(range(10**6))

    def give() -> None:
        whose = Delivery("q", str(next(numbers)), "c", "h", 1, 0, 2**60, table.schema)
        sink.deliver(table, whose) if hasattr(sink, "deliver") else deliver(sink, table, whose)

    give()  # what is made once, such as the table, is not a batch's
    return give


def synced_parquet(table: pa.Table, folder: Path) -> None:
    """The rows in a file that is on the disk."""
    with (folder / "yardstick.parquet").open("wb") as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())


def bench_files(report: Report, folder: Path) -> None:
    """Folder, Delta and Iceberg against Parquet."""
    table, catalog = (
        results(),
        {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"},
    )
    sinks = {
        "folder": SINKS.made("folder", {"path": str(folder / "folder")}),
        "Delta": SINKS.made("delta", {"path": str(folder / "delta")}),
        "Iceberg": SINKS.made("iceberg", {"catalog": catalog, "table": "a.b"}),
    }
    runs = {name: giving(sink, table) for name, sink in sinks.items()}
    took = alternating(REPEATS, parquet=lambda: synced_parquet(table, folder), **runs)
    report.add("Parquet file, 100,000 rows", took["parquet"], "s")
    for name in sinks:
        report.add(f"{name} sink / Parquet file", took[name] / took["parquet"], "times", 1.5, "at most")


def bench_postgres_sink(report: Report, folder: Path) -> None:
    """PostgreSQL against its bare COPY of rows that are written as CSV."""
    import psycopg

    table = results()
    with postgres_server() as server:
        give = giving(SINKS.made("postgres", {"url": server.url, "table": "results"}), table)
        server.run("CREATE TABLE bare (LIKE results)")

        def copied() -> None:
            content = pa.BufferOutputStream()
            pyarrow.csv.write_csv(table, content, pyarrow.csv.WriteOptions(include_header=False))
            with psycopg.connect(server.url) as run, run.cursor().copy("COPY bare FROM STDIN (FORMAT csv)") as copy:
                copy.write(memoryview(content.getvalue()))

        took = alternating(REPEATS, sink=give, copy=copied)
    report.add("PostgreSQL sink / bare COPY, rate", took["copy"] / took["sink"], "times", 0.7)


def portions(source: Any, starts: dict[str, Any]) -> Iterator[pa.Table]:
    """All rows of a source, in portions as a job takes them."""
    stream = Connected("s", source)
    while spans := stream.waiting(starts):
        now, _ = stream.divided(spans)
        yield from stream.tables(now)
        starts = {**starts, **{span.partition: span.end for span in now}}
        source.commit(starts)


def bench_kafka_source(report: Report, folder: Path) -> None:
    """A topic of JSON against the client's own loop, whose messages become one table of Arrow."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    row = {"id": 0, "customer": "customer 1234", "amount": 12.5, "ts": 1_700_000_000_000}
    schema = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64()), ("ts", pa.int64())])
    with kafka_cluster() as servers:
        producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 10**6})
        producer.list_topics("t", timeout=10)
        for number in range(MESSAGES * 4):
            producer.produce("t", json.dumps({**row, "id": number}).encode(), partition=number % 4)
        producer.flush(60)

        def polled() -> None:
            settings = {"bootstrap.servers": servers, "group.id": "bench", "auto.offset.reset": "earliest"}
            consumer, found = Consumer({**settings, "enable.auto.commit": False}), list[bytes]()
            consumer.assign([TopicPartition("t", part, 0) for part in range(4)])
            while len(found) < MESSAGES * 4:
                found += [message.value() or b"" for message in consumer.consume(10_000, 0.1)]
            consumer.close()
            options = pyarrow.json.ParseOptions(explicit_schema=schema)
            rows = pyarrow.json.read_json(pa.BufferReader(b"\n".join(found)), parse_options=options)
            assert rows.num_rows == MESSAGES * 4

        def read() -> None:
            declared = "id BIGINT, customer STRING, amount DOUBLE, ts BIGINT"
            source = SOURCES.made("kafka", {"servers": servers, "topic": "t", "schema": declared})
            assert sum(rows.num_rows for rows in portions(source, source.partitions())) == MESSAGES * 4
            source.close()

        took = alternating(REPEATS, polled=polled, read=read)
    report.add("Kafka source", MESSAGES * 4 / took["read"], "messages/s")
    report.add("Kafka source / poll loop into Arrow, rate", took["polled"] / took["read"], "times", 0.8)


def bench_postgres_source(report: Report, folder: Path) -> None:
    """Changes of a table, of transactions of 100 to 10,000 rows."""
    with postgres_server() as server:
        server.run("CREATE TABLE t (id BIGINT PRIMARY KEY, customer TEXT, amount DOUBLE PRECISION, at TIMESTAMPTZ)")
        declared = "id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP, change STRING, changed_at TIMESTAMP"
        known = {"url": server.url, "table": "t", "schema": declared}
        sources = [SOURCES.made("postgres", {**known, "slot": f"slot_{number}"}) for number in range(REPEATS)]
        starts, count = {source: dict(source.partitions()) for source in sources}, 0
        for size in [10_000] * 10 + [1000] * 60 + [100] * 400:
            rows = (
                f"SELECT n, 'customer ' || n % 5000, n / 7.0, now() FROM generate_series({count + 1}, {count + size}) n"
            )
            server.run(f"INSERT INTO t {rows}")
            count += size

        def read() -> None:
            source = sources.pop()
            found = sum(rows.num_rows for rows in portions(source, starts[source]))
            source.close()
            assert found == count, f"{found} changes were read, and {count} are there"

        took = alternating(REPEATS, read=read)
    report.add("PostgreSQL changes", count / took["read"], "changes/s", 50_000.0)


def bench_subscriber(report: Report, folder: Path) -> None:
    """How long after its commit a subscriber sees what a batch has released: the median of batches."""
    from midstream.cluster.checkpoint_session import CheckpointSession

    seen, committed = list[float](), list[float]()
    (folder / "in").mkdir()

    def put(number: int) -> None:
        pq.write_table(pa.table({"id": [number], "ts": [number]}), folder / ".new")
        (folder / ".new").rename(folder / "in" / f"{number:05d}.parquet")

    def listen() -> None:
        seen.extend(time.time() for _ in query.subscribe())

    def note(_: dict[str, Any]) -> None:
        newest = max((folder / "checkpoint" / "manifests").iterdir())
        committed.append(newest.stat().st_mtime)
        if len(committed) <= BATCHES:
            put(len(committed))

    with CheckpointSession(checkpoint=str(folder / "checkpoint"), on="local") as session:
        session.open_stream("s", "parquet", path=str(folder / "in"), schema="id BIGINT, ts BIGINT")
        query = session.query("q", "SELECT id FROM s [NOW]")
        session.on_progress(note)
        put(0)
        session.start("200 milliseconds")
        while not committed:
            time.sleep(0.01)
        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        until = time.monotonic() + 60
        while len(committed) <= BATCHES and time.monotonic() < until:
            time.sleep(0.01)
    listener.join(10)
    delays = sorted(at - max(time for time in committed if time <= at) for at in seen[1:])
    report.add("subscriber: median from commit to result", delays[len(delays) // 2] * 1000, "ms", 20.0, "at most")


PARTS: dict[str, Callable[[Report, Path], None]] = {
    "files": bench_files,
    "postgres-sink": bench_postgres_sink,
    "kafka-source": bench_kafka_source,
    "postgres-source": bench_postgres_source,
    "subscriber": bench_subscriber,
}
