"""`midstream explain` goes by what the files hold, however few rows there are."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from midstream.interface.cli import app


def test_the_rates_of_a_few_rows_are_those_of_the_file(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("ts,k\n" + "".join(f"{10 * i},{i % 2}\n" for i in range(12)))
    arguments = ["explain", "SELECT DISTINCT k FROM A [RANGE 100]", "--stream", f"A={path}", "--json"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert 0.05 <= json.loads(shown.stdout)["statistics"]["streams"]["A"]["rate"] <= 0.2
