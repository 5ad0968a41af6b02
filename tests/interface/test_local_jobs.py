"""A job from a file in this process: the example, worked through, gone on with and finished, without a JVM."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.interface.cli import app

EXAMPLES = Path(__file__).parents[2] / "examples"


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "orders", tmp_path / "orders")
    shutil.copy(EXAMPLES / "orders.toml", tmp_path)
    return tmp_path / "orders.toml"


def rows_of(folder: Path) -> int:
    return sum(len(file.read_text().splitlines()) for file in folder.rglob("*.json"))


def _table(folder: Path) -> pa.Table:
    rows = [json.loads(line) for file in sorted(folder.rglob("*.json")) for line in file.read_text().splitlines()]
    return pa.Table.from_pylist([{**row, "ts": dt.datetime.fromisoformat(row["ts"])} for row in rows])


def test_the_example_takes_every_row_and_answers_as_one_run_does(orders: Path):
    told = json.loads(invoke("run", str(orders), "--on", "local", "--available", "--json"))
    assert {name: stream["rows"] for name, stream in told["streams"].items()} == {
        name: rows_of(orders.parent / "orders" / name) for name in ("orders", "payments")
    }
    assert not any(stream["late"] or stream["unusable"] for stream in told["streams"].values())
    invoke("run", str(orders), "--on", "local", "--finish", "--json")
    streams = {name: _table(orders.parent / "orders" / name) for name in ("orders", "payments")}
    for query in ("paid", "revenue"):
        got = ms.read_results(str(orders.parent / "orders.checkpoint"), query)
        assert ms.snapshot_equal(got, ms.reference(told["queries"][query]["cql"], streams)), query


def test_a_job_file_says_where_it_runs(orders: Path):
    orders.write_text(orders.read_text().replace("[job]", '[job]\non = "local"'))
    assert json.loads(invoke("run", str(orders), "--available", "--json"))["batch"] is not None
    orders.write_text(orders.read_text().replace('on = "local"', 'on = "moon"'))
    done = CliRunner().invoke(app, ["run", str(orders)])
    assert done.exit_code == 2 and "job.on cannot be 'moon'" in done.output


def test_whoever_names_the_port_of_a_dashboard_gets_it_there(orders: Path):
    pytest.importorskip("uvicorn", reason="the package uvicorn is missing: pip install 'midstream[dashboard]'")
    run = ["run", str(orders), "--on", "local", "--available", "--dashboard-port"]
    shown = CliRunner().invoke(app, [*run, "0"])
    assert shown.exit_code == 0 and "the dashboard is at http://127.0.0.1:" in shown.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = CliRunner().invoke(app, [*run, port])
    assert refused.exit_code == 2 and f"cannot listen on 127.0.0.1, port {port}" in refused.stderr
