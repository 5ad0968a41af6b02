"""Batch lines, `midstream status` and `midstream results` count the same: results that are released."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midstream.interface.cli import app

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
    assert (query["waiting"] > 0) == (how == "--available")
    assert f"{results} results" in told("status", checkpoint)
