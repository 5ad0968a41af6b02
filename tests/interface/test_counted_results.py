"""Batch lines, logs, metrics and every view count the same: results that are released."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.interface.cli import app
from midstream.interface.dashboard.prometheus import exposition

EXAMPLES = Path(__file__).parents[2] / "examples"


def told(*arguments: str) -> str:
    answer = CliRunner().invoke(app, list(arguments))
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.mark.parametrize("how", ["--available", "--finish"])
def test_all_views_count_what_is_released(how: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "orders", tmp_path / "orders")
    shutil.copy(EXAMPLES / "orders.toml", tmp_path)
    lines = told("run", str(tmp_path / "orders.toml"), "--on", "local", how)
    checkpoint = str(tmp_path / "orders.checkpoint")
    results = len(json.loads(told("results", checkpoint, "paid", "--json"))["rows"])
    query = json.loads(told("status", checkpoint, "--json"))["queries"]["paid"]
    counted = sum(int(found.replace(",", "")) for found in re.findall(r"; results .*?paid ([\d,]+)", lines))
    assert results == query["results"] == counted > 0
    job = ms.open(checkpoint)
    assert job.queries["paid"].results == results
    assert json.loads(told("top", checkpoint, "--json"))["queries"]["paid"]["results"] == results
    assert f'midstream_query_results_total{{query="paid"}} {float(results)}' in exposition(job).decode()
    assert sum(dict(row["results"])["paid"] for row in job.metrics().to_pylist()) == results
    assert (query["waiting"] > 0) == (how == "--available")
    assert f"{results} results" in told("status", checkpoint)


def test_a_log_counts_what_each_batch_released(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "orders", tmp_path / "orders")
    shutil.copy(EXAMPLES / "orders.toml", tmp_path)
    lines = told("run", str(tmp_path / "orders.toml"), "--on", "local", "--available", "--log", "json").splitlines()
    batches = [json.loads(line) for line in lines if '"event": "batch"' in line]
    released = ms.read_results(str(tmp_path / "orders.checkpoint"), "paid").num_rows
    assert sum(batch["results"]["paid"] for batch in batches) == released > 0
