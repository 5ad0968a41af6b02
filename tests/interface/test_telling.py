"""What a job tells programs of each batch: lines of JSON, and spans."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from midstream.interface.cli import app
from midstream.interface.jobs.logs import JsonLines, log_as_json
from midstream.interface.jobs.tracing import PARTS, batch_tracer

JOB = """
[job]
checkpoint = "checkpoint"
on = "local"

[streams.a]
format = "parquet"
path = "a"
schema = "k BIGINT, ts BIGINT"
time = "ts"

[queries.q]
cql = "SELECT k FROM a [RANGE 5]"
"""
EVENT = {
    "batch_id": 3,
    "rows": {"a": 5, "b": 2},
    "late": {"a": 1},
    "unusable": {},
    "plans": {"q": "a"},
    "migrations": {"q": "(A B)"},
    "seconds": {"state": 0.1, "kernel": 0.25, "commit": 0.05, "job": 0.4, "batch": 0.5},
    "queries": {"q": {"results": 4}},
    "decisions": {"q": None},
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    pq.write_table(pa.table({"k": [1, 2, 3], "ts": [1, 2, 3]}), tmp_path / "a" / "1.parquet")
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def test_batches_are_told_as_json_an_object_a_line(job):
    done = CliRunner().invoke(app, ["run", str(job), "--available", "--log", "json"])
    logger = logging.getLogger("midstream")
    logger.handlers, logger.propagate = [], True
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    batches = [line for line in lines if line.get("event") == "batch"]
    assert batches[0]["rows"] == {"a": 3} and batches[0]["level"] == "info" and batches[0]["seconds"]["batch"] > 0


def test_a_job_can_be_shown_while_it_runs(job):
    done = CliRunner().invoke(app, ["run", str(job), "--available", "--dashboard"])
    assert done.exit_code == 0 and re.search(r"the dashboard is at http://127\.0\.0\.1:\d+/\?token=\S+", done.stderr)


def test_a_message_cannot_end_its_line():
    stream = io.StringIO()
    handler = log_as_json(stream)
    logger = logging.getLogger("midstream")
    try:
        logging.getLogger("midstream.job").warning("two\nlines: %s", 'a "name"')
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("midstream.job").exception("failed")
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == 'two\nlines: a "name"' and "ValueError: why" in second["error"]
    assert isinstance(handler.formatter, JsonLines)


def test_every_batch_is_a_span_with_its_parts_inside():
    exporting = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason="needs the SDK")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    spans = exporting.InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer", provider.get_tracer)
        record = batch_tracer(lambda: 10_000_000_000)
        assert record is not None
        record(EVENT)
    *parts, batch = spans.get_finished_spans()
    assert batch.name == "batch" and batch.end_time - batch.start_time == 500_000_000
    assert dict(batch.attributes)["midstream.rows"] == 7 and dict(batch.attributes)["midstream.migrating"] == ("q",)
    assert [part.name for part in parts] == [name for name in PARTS if name in EVENT["seconds"]]  # type: ignore[operator]
    assert all(part.parent.span_id == batch.context.span_id for part in parts)
    assert all(batch.start_time <= part.start_time <= part.end_time <= batch.end_time for part in parts)
