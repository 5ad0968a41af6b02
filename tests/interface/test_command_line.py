"""The command line as a whole: help with an example for every command, the version, explain."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.inputs import write_table
from midstream.interface.cli import app
from midstream.interface.cli.app import COMMANDS
from midstream.interface.cli.output import show_value


def midstream(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_help_lists_every_command():
    shown = midstream("--help")
    assert shown.exit_code == 0
    assert all(f"  {command} " in shown.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    shown = midstream(command, "--help")
    assert shown.exit_code == 0
    assert "Example:" in shown.stdout and f"midstream {command} " in shown.stdout


def test_help_loads_the_files_of_no_command_and_help_of_run_its_own_alone():
    """As processes, by what they load: times depend on the machine."""
    heavy = ["sqlglot", "starlette", "pyspark", "midstream.job", "midstream.operators", "midstream.optimizer"]
    for arguments in (["--help"], ["run", "--help"]):
        code = f"""
import sys
from midstream.interface.cli import app
try:
    app({arguments!r})
except SystemExit:
    print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "Usage: " in done.stdout and done.stderr.strip() == "[]", (arguments, done.stderr)


def test_the_version_is_the_package_version():
    assert midstream("--version").stdout == f"midstream {ms.__version__}\n"


def test_an_unknown_command_ends_with_code_2():
    assert midstream("conjure").exit_code == 2


def test_explain_shows_what_the_query_means_and_what_would_run(tmp_path):
    write_table(pa.table({"ts": [1], "k": ["a"]}), tmp_path / "a.parquet")
    arguments = ["explain", "SELECT DISTINCT k FROM A [RANGE 100]", "-s", f"A={tmp_path / 'a.parquet'}", "-t", "ts"]
    shown = midstream(*arguments)
    assert (shown.exit_code, shown.stderr) == (0, "")
    answer = json.loads(midstream(*arguments, "--json").stdout)
    assert answer["logical_plan"].splitlines()[0] == "Distinct"
    assert "Window [RANGE 100]" in answer["logical_plan"] and answer["logical_plan"].endswith("Stream A")
    assert answer["logical_plan"] in shown.stdout and answer["physical_plan"] in shown.stdout
    assert answer["columns"] == [{"name": "k", "type": "string"}]


def test_explain_shows_the_plan_that_was_asked_for(tmp_path):
    write_table(pa.table({"ts": [1], "k": ["a"]}), tmp_path / "t.parquet")
    query = "SELECT A.k FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.k = C.k"
    streams = [part for name in "ABC" for part in ("-s", f"{name}={tmp_path / 't.parquet'}")]
    for plan in ("(A (B C))", "((A B) C)"):
        assert json.loads(midstream("explain", query, *streams, "--plan", plan, "--json").stdout)["plan"] == plan
    done = midstream("explain", query, *streams, "--plan", "(A (B")
    assert done.exit_code == 2 and done.stderr.strip()


def test_explain_of_a_wrong_query_points_at_the_place(tmp_path):
    write_table(pa.table({"ts": [1], "k": ["a"]}), tmp_path / "a.parquet")
    done = midstream("explain", "SELECT kk FROM A [RANGE 100]", "-s", f"A={tmp_path / 'a.parquet'}")
    assert done.exit_code == 2
    assert "line 1, column 8" in done.stderr and "^" in done.stderr


@pytest.mark.parametrize(
    ("value", "column", "shown"),
    [
        (None, "k", "NULL"),
        (None, "valid_to", "∞"),
        (True, "k", "true"),
        (b"\x01\xff", "k", "01ff"),
        ("[bold]x[/]", "k", "[bold]x[/]"),
    ],
)
def test_values_are_shown_as_people_read_them(value, column, shown):
    assert show_value(value, column).plain == shown


def test_a_benchmark_refuses_parts_that_it_does_not_have():
    shown = midstream("bench", "spark-join", "--only", "five-way")
    assert shown.exit_code != 0
    assert "has no part 'five-way'" in shown.stderr and "two-way-100k" in shown.stderr


@pytest.mark.parametrize(
    ("command", "rest"),
    [("plan", ["q"]), ("migrate", ["q", "(A B)"]), ("drop", ["q"]), ("stop", []), ("rebalance", [])],
)
def test_nothing_is_made_where_no_job_has_run(tmp_path, command, rest):
    shown = midstream(command, tmp_path / "mistyped", *rest)
    assert (shown.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "no job has run at" in shown.stderr
