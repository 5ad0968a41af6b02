"""Rows that are pushed over HTTP are on the disk when they are acknowledged, and count once."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import api
from midstream.errors import JobError
from midstream.interface.inbox import ARROW, Inbox, Refused, inbox_of, listening

TOKEN = "a-token-for-tests"


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    for name in ("texts", "tables"):
        (tmp_path / name).mkdir()
    return Inbox({"texts": ("json", tmp_path / "texts"), "tables": ("parquet", tmp_path / "tables")})


def post(address: str, body: bytes, **headers: str) -> tuple[int, Any]:
    host, _, path = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        connection.request("POST", f"/{path}", body, {"Authorization": f"Bearer {TOKEN}", **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def test_a_request_becomes_one_file_and_its_key_makes_no_second(inbox, tmp_path):
    first = inbox.take("texts", b'{"id": 1}\n', "application/json", "one")
    assert inbox.take("texts", b'{"id": 1}\n', "application/json", "one") == first
    inbox.take("texts", b'{"id": 2}\n', "", None)
    assert sorted(path.read_text() for path in (tmp_path / "texts").iterdir()) == ['{"id": 1}\n', '{"id": 2}\n']
    rows = pa.table({"id": [1, 2]})
    name = inbox.take("tables", arrow(rows), ARROW, None)
    assert pq.read_table(tmp_path / "tables" / name).equals(rows)
    assert not [path for folder in ("texts", "tables") for path in (tmp_path / folder).glob(".*")]


def test_other_rows_under_a_known_key_are_refused_and_not_forgotten(inbox, tmp_path):
    inbox.take("texts", b'{"id": 1}\n', "", "one")
    with pytest.raises(Refused, match="had other rows") as refused:
        inbox.take("texts", b'{"id": 2}\n', "", "one")
    assert refused.value.status == 409
    rows = arrow(pa.table({"id": [1, 2]}))
    assert inbox.take("tables", rows, ARROW, "one") == inbox.take("tables", rows, ARROW, "one")
    assert [path.read_text() for path in (tmp_path / "texts").iterdir()] == ['{"id": 1}\n']


def test_clients_that_say_nothing_do_not_take_what_the_job_needs(inbox, monkeypatch):
    monkeypatch.setenv("MIDSTREAM_LISTEN_TOKEN", TOKEN)
    monkeypatch.setattr("midstream.interface.inbox.MOST_CONNECTIONS", 2)
    with listening(inbox, "127.0.0.1", 0) as (address, _):
        host, _, port = address.removeprefix("http://").partition("/")[0].partition(":")
        silent = [socket.create_connection((host, int(port)), timeout=30) for _ in range(3)]
        assert silent[2].recv(1) == b"", "the third is turned away"
        for one in silent:
            one.close()


def test_what_is_wrong_with_a_request_is_said(inbox, tmp_path, monkeypatch):
    monkeypatch.setenv("MIDSTREAM_LISTEN_TOKEN", TOKEN)
    monkeypatch.setattr("midstream.interface.inbox.LARGEST", 100)
    with listening(inbox, "127.0.0.1", 0) as (address, _):
        assert post(address + "texts", b"{}", Authorization="Bearer wrong")[0] == 401
        assert post(address + "text", b"{}") == (404, {"error": "rows cannot be pushed into text: did you mean texts?"})
        assert post(address + "texts", b"x" * 101)[0] == 413
        assert post(address + "texts", b"", **{"Content-Length": "9" * 5000})[0] == 411
        assert post(address + "tables", b"{}")[0] == 415
        assert post(address + "tables", b"{}", **{"Content-Type": ARROW})[0] == 400
        assert post(address + "texts", b"{}")[0] == 200
    assert len(list((tmp_path / "texts").iterdir())) == 1 and not list((tmp_path / "tables").iterdir())
    (tmp_path / "texts").rename(tmp_path / "away")
    with pytest.raises(Refused, match="the rows cannot be kept: No such file"):
        inbox.take("texts", b"{}", "", None)
    with pytest.raises(JobError, match="rows cannot be pushed into any stream of this job"):
        inbox_of({"a": ("csv", "x"), "b": ("json", "s3://bucket/x")})


@pytest.mark.slow
def test_rows_that_were_acknowledged_count_once_though_the_job_is_killed(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "job.toml").write_text(
        '[job]\ncheckpoint = "checkpoint"\non = "local"\n'
        '[streams.s]\nformat = "json"\npath = "in"\nschema = "id BIGINT, ts BIGINT"\nlateness = 1000\n'
        '[queries.q]\ncql = "SELECT id FROM s [UNBOUNDED]"\n'
    )
    command = [sys.executable, "-m", "midstream", "run", str(tmp_path / "job.toml")]
    environment = {**os.environ, "MIDSTREAM_LISTEN_TOKEN": TOKEN}
    number = 0
    for _ in range(2):
        with subprocess.Popen([*command, "--listen", "0"], stderr=subprocess.PIPE, text=True, env=environment) as job:
            assert job.stderr is not None
            line = next(line for line in job.stderr if "rows can be pushed to" in line)
            address = line.partition("pushed to ")[2].partition("{")[0]
            for _ in range(10):
                for _ in range(2):  # each is sent twice
                    row = json.dumps({"id": number, "ts": number}).encode()
                    assert post(address + "s", row, **{"Idempotency-Key": str(number)})[0] == 200
                number += 1
            job.send_signal(signal.SIGKILL)
    subprocess.run([*command, "--finish"], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    found = api.open(tmp_path / "checkpoint").results("q").column("id").to_pylist()
    assert sorted(found) == list(range(number))
