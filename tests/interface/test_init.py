"""`midstream init`: what it writes runs as it is, and counts every row of the files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.inputs.ddl import ddl_of_schema, schema_of_ddl
from midstream.interface.cli import app
from midstream.interface.jobs.job_file import read_job

ROWS = 40


@pytest.fixture
def data(tmp_path: Path, monkeypatch) -> Path:
    """Parquet in a folder, a CSV file and JSON lines, with times in different places and one row out of order."""
    monkeypatch.chdir(tmp_path)
    start = 1_700_000_000_000_000
    times = pa.array([start + i * 60_000_000 for i in range(ROWS)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    ids = pa.array(range(ROWS), pa.int64())
    folder = tmp_path / "data"
    (folder / "orders").mkdir(parents=True)
    kinds = pa.array(["tea", "milk"] * (ROWS // 2))
    orders = pa.table({"id": ids, "kind": kinds, "order": ids, "ts": times})
    pyarrow.parquet.write_table(orders.slice(0, 20), folder / "orders" / "1.parquet")
    pyarrow.parquet.write_table(orders.slice(20), folder / "orders" / "2.parquet")
    visits = pa.table({"id": ids, "seen_at": times.cast(pa.timestamp("s"))})
    pyarrow.csv.write_csv(visits.take([1, 0, *range(2, ROWS)]), folder / "2 visits.csv")
    lines = [{"select": i, "time": f"2024-05-01T00:00:{i:02d}"} for i in range(ROWS)]
    (folder / "clicks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "notes.csv").write_text("a,b\n1,2\n")
    (folder / "readme.txt").write_text("not data")
    return folder


def invoke(*arguments: str):
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done


def test_the_job_runs_as_it_is_and_counts_every_row(data: Path):
    shown = invoke("init", "data").output
    assert "next: midstream run data.toml --available" in shown
    assert "left out notes.csv: it has no time column among a, b" in shown
    told = json.loads(invoke("run", "data.toml", "--on", "local", "--available", "--json").stdout)
    assert {name: stream["rows"] for name, stream in told["streams"].items()} == {
        "orders": ROWS,
        "s_2_visits": ROWS,
        "clicks": ROWS,
    }
    assert not any(stream["late"] or stream["unusable"] for stream in told["streams"].values())
    invoke("run", "data.toml", "--finish", "--json")
    for query in ("orders_counted", "s_2_visits_counted", "clicks_counted"):
        assert sum(ms.read_results("data.checkpoint", query)["seen"].to_pylist()) == ROWS, query
    assert ms.read_results("data.checkpoint", "s_2_visits_with_orders").num_rows == ROWS


def test_time_columns_disorder_and_groups_are_found(data: Path):
    invoke("init", "data", "--out", "jobs/mine.toml")
    job = read_job(Path("jobs/mine.toml"))
    streams = {stream.name: stream for stream in job.streams}
    assert {name: stream.settings.time for name, stream in streams.items()} == {
        "orders": "ts",
        "s_2_visits": "seen_at",
        "clicks": "time",
    }
    assert streams["s_2_visits"].settings.lateness == "60 seconds" and streams["orders"].settings.lateness == 0
    assert "GROUP BY kind" in next(query.cql for query in job.queries if query.name == "orders_counted")
    assert job.on == "local" and Path(job.checkpoint).resolve() == Path("jobs/mine.checkpoint").resolve()


def test_a_loose_file_is_a_folder_with_a_pattern(data: Path):
    invoke("init", "data")
    (visits,) = [stream for stream in read_job(Path("data.toml")).streams if stream.name == "s_2_visits"]
    assert Path(str(visits.path)).resolve() == data and visits.options["pathGlobFilter"] == "2 visits.csv"
    text = Path("data.toml").read_text().replace('path = "data"', 'path = "data/2 visits.csv"')
    Path("data.toml").write_text(text)
    refused = CliRunner().invoke(app, ["check", "data.toml"])
    assert refused.exit_code == 2 and 'pathGlobFilter = "2 visits.csv"' in refused.output


def test_a_job_file_is_never_replaced_unasked(data: Path):
    Path("data.toml").write_text("mine")
    refused = CliRunner().invoke(app, ["init", "data"])
    assert refused.exit_code == 2 and Path("data.toml").read_text() == "mine"
    invoke("init", "data", "--force")


def test_a_folder_without_data_is_told_so(tmp_path: Path):
    done = CliRunner().invoke(app, ["init", str(tmp_path), "--out", str(tmp_path / "job.toml")])
    assert done.exit_code == 2 and "no files" in done.output


@pytest.mark.parametrize(
    "ddl",
    [
        "id BIGINT, ts TIMESTAMP, `a b` STRING",
        "t TIMESTAMP_NTZ, d DATE, x DECIMAL(10, 2), f FLOAT, b BOOLEAN",
        "tags ARRAY<STRING>, place STRUCT<lat: DOUBLE, lon: DOUBLE>, m MAP<STRING, INT>",
    ],
)
def test_a_schema_written_is_the_schema_read(ddl: str):
    schema = schema_of_ddl(ddl)
    assert schema_of_ddl(str(ddl_of_schema(schema))) == schema


def test_what_spark_has_no_type_for_is_not_written():
    assert ddl_of_schema(pa.schema([("t", pa.time64("us"))])) is None
