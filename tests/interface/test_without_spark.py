"""Without Spark installed everything works that needs none, and what needs it says how to install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

sys.modules["pyspark"] = sys.modules["py4j"] = None  # as if neither was installed

import pyarrow as pa
import typer
from typer.testing import CliRunner

import midstream as ms
from midstream.interface.cli import app

table = pa.table({"ts": [1, 2], "k": [1, 1]})
assert ms.run("SELECT k FROM A [NOW]", {"A": table}).num_rows == 2
assert ms.reference("SELECT k FROM A [NOW]", {"A": table}).num_rows == 2


def said(*arguments, code=0):
    answer = CliRunner().invoke(app, [str(word) for word in arguments])
    assert answer.exit_code == code, (arguments, answer.output, answer.exception)
    return answer.output


assert "midstream demo" in said("--help") or "demo" in said("--help")
assert "not installed" in said("doctor")
said("check", "job.toml")
said("explain", "SELECT k FROM A [NOW]", "--stream", "A=a.parquet")
assert "1" in said("query", "SELECT k FROM A [NOW]", "--stream", "A=a.parquet")
said("run", "job.toml", "--finish")
said("results", "job.checkpoint", "q")
said("status", "job.checkpoint")
shown = said("demo", "--seconds", 16)
assert "Spark is not installed: this runs in one process" in shown and "missing     0" in shown, shown
hint = "pip install 'midstream[spark]'"
assert hint in said("run", "job.toml", "--on", "spark", code=2)
assert hint in said("query", "SELECT k FROM A [NOW]", "--stream", "A=a.parquet", "--on", "spark", code=2)
assert hint in said("bench", "silent-stream", code=2)
for asked in (lambda: ms.run("SELECT k FROM A [NOW]", {"A": table}, on="spark"), lambda: ms.Session(checkpoint="new")):
    try:
        asked()
    except ms.JobError as error:
        assert error.message == "Spark is not installed" and hint in error.hint
    else:
        raise AssertionError("nobody has noticed")
assert not any(name.split(".")[0] in ("pyspark", "py4j") for name, module in sys.modules.items() if module)
print("all of it")
"""

JOB = """
[job]
checkpoint = "job.checkpoint"
on = "local"
[streams.A]
format = "parquet"
path = "A"
schema = "ts BIGINT, k BIGINT"
[queries.q]
cql = "SELECT k FROM A [NOW]"
"""


def test_what_needs_no_spark_works_without_it_and_the_rest_names_the_extra(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "A").mkdir()
    for path in (tmp_path / "a.parquet", tmp_path / "A" / "1.parquet"):
        pq.write_table(pa.table({"ts": [1, 2], "k": [1, 1]}), path)
    (tmp_path / "job.toml").write_text(JOB)
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert answer.returncode == 0 and "all of it" in answer.stdout, answer.stderr[-3000:]
