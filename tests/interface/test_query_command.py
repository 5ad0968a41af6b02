"""`midstream query` answers over files, shows or writes the result, and ends with words rather than tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.inputs import read_table, write_table
from midstream.interface.cli import app

A = pa.table({"ts": [10, 50], "k": ["a", "a"], "v": [1, 2]})
B = pa.table({"ts": [20, 70], "k": ["a", "a"], "v": [3, 4]})
JOIN = "SELECT A.k, A.v AS x, B.v AS y FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k"
SOURCE = Path(ms.__file__).parent.parent


@pytest.fixture
def files(tmp_path):
    write_table(A, tmp_path / "a.parquet")
    write_table(B, tmp_path / "b.csv")
    return ["--stream", f"A={tmp_path / 'a.parquet'}", "--stream", f"B={tmp_path / 'b.csv'}", "--time", "ts"]


def midstream(*arguments, **settings):
    return CliRunner().invoke(app, [str(a) for a in arguments], **settings)


def test_the_reference_answers_as_the_library_does(files):
    done = midstream("query", JOIN, *files, "--on", "reference", "--json")
    answer = json.loads(done.stdout)
    expected = ms.reference(JOIN, {"A": A, "B": B})
    assert done.exit_code == 0 and done.stderr == ""
    assert sorted(map(str, answer["rows"])) == sorted(map(str, expected.to_pylist()))
    assert answer["row_count"] == 4 and answer["on"] == "reference"
    assert [c["name"] for c in answer["columns"]] == ["k", "x", "y", "valid_from", "valid_to"]


def test_a_table_shows_rows_and_says_how_many_it_hides(files):
    shown = midstream("query", JOIN, *files, "--on", "reference", "--limit", 1)
    assert shown.stdout.splitlines()[0].split() == ["k", "x", "y", "valid_from", "valid_to"]
    assert "4 rows, 3 not shown (--limit 0 shows all)" in shown.stdout
    assert "not shown" not in midstream("query", JOIN, *files, "--on", "reference").stdout


def test_what_never_ends_is_shown_as_infinity_and_is_null_in_json(files):
    query = "SELECT v FROM A [UNBOUNDED]"
    assert midstream("query", query, *files, "--on", "reference").stdout.count("∞") == 2
    rows = json.loads(midstream("query", query, *files, "--on", "reference", "--json").stdout)["rows"]
    assert [row["valid_to"] for row in rows] == [None, None]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "arrow"])
def test_a_result_is_written_in_the_format_of_its_suffix(files, tmp_path, suffix):
    out = tmp_path / f"r.{suffix}"
    done = midstream("query", JOIN, *files, "--on", "reference", "--out", out)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "4 rows written to" in done.stderr
    assert ms.snapshot_equal(read_table(out), ms.reference(JOIN, {"A": A, "B": B}))


def test_json_with_out_says_where_the_rows_are(files, tmp_path):
    out = tmp_path / "r.parquet"
    answer = json.loads(midstream("query", JOIN, *files, "--on", "reference", "--json", "-o", out).stdout)
    assert answer["out"] == str(out) and "rows" not in answer


def test_a_query_comes_from_a_file_or_from_standard_input(files, tmp_path):
    (tmp_path / "q.cql").write_text(JOIN)
    plain = midstream("query", JOIN, *files, "--on", "reference").stdout
    assert midstream("query", f"@{tmp_path / 'q.cql'}", *files, "--on", "reference").stdout == plain
    assert midstream("query", "-", *files, "--on", "reference", input=JOIN).stdout == plain


def test_each_stream_may_have_its_own_time_column(tmp_path):
    write_table(A, tmp_path / "a.parquet")
    write_table(B.rename_columns(["at", "k", "v"]), tmp_path / "b.parquet")
    streams = ["-s", f"A={tmp_path / 'a.parquet'}", "-s", f"B={tmp_path / 'b.parquet'}"]
    for times in (["-t", "ts", "-t", "B=at"], ["-t", "A=ts", "-t", "B=at"]):
        answer = json.loads(midstream("query", JOIN, *streams, *times, "--on", "reference", "--json").stdout)
        assert answer["row_count"] == 4


def test_timestamps_are_readable(tmp_path):
    (tmp_path / "a.csv").write_text("ts,v\n2024-05-01 12:00:00,1\n")
    done = midstream(
        "query", "SELECT v FROM A [RANGE '1 minute']", "-s", f"A={tmp_path / 'a.csv'}", "--on", "reference"
    )
    assert "2024-05-01 12:00:00" in done.stdout and "2024-05-01 12:01:00.000001" in done.stdout


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nothing FROM A [RANGE 100]", "nothing"),
        ("SELECT A.v FROM A [RANGE 100], B WHERE A.k = B.k", "window"),
        ("SELEKT", "line 1, column 1"),
        ("", ""),
    ],
)
def test_a_wrong_query_ends_with_code_2_and_its_own_words(files, query, message):
    done = midstream("query", query, *files, "--on", "reference")
    assert done.exit_code == 2 and done.stdout == ""
    assert message in done.stderr and done.stderr.strip() and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-s", "A=missing.parquet"], "there is no file or folder missing.parquet"),
        (["-s", f"A={__file__}"], "cannot tell the format of"),
        (["-s", "A"], "'A' is not NAME=PATH"),
        (["-s", "=a.csv"], "'=a.csv' is not NAME=PATH"),
        (["-s", "A=a.csv", "-s", "A=b.csv"], "stream A is given twice"),
        (["-s", "A=a.csv", "-t", "x", "-t", "y"], "x and y cannot both be for all streams"),
        (["-s", "A=a.csv", "--plan", "(A B)", "--on", "reference"], "the reference evaluates without a plan"),
        (["-s", "A=a.csv", "--on", "the moon"], "the moon"),
        (["-s", "A=a.csv", "--out", "r.docx"], "cannot tell the format of r.docx"),
        ([], "--stream"),
    ],
)
def test_wrong_arguments_end_with_code_2(arguments, message):
    done = midstream("query", "SELECT v FROM A [NOW]", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_stream_is_a_folder_or_a_pattern_as_in_the_shell(tmp_path):
    folder = tmp_path / "days" / "below"
    folder.mkdir(parents=True)
    for day, rows in enumerate((A, B)):
        write_table(rows, folder / f"{day}.csv")
    write_table(A, tmp_path / "[x].csv")
    query = "SELECT COUNT(*) AS n FROM A [UNBOUNDED]"

    def newest(path):
        done = midstream("query", query, "-s", f"A={path}", "--json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)["rows"][-1]["n"]

    assert newest(tmp_path / "days") == 4
    assert newest(tmp_path / "*" / "*" / "?.csv") == 4
    assert newest(tmp_path / "*" / "*" / "1.csv") == 2
    assert newest(tmp_path / "[x].csv") == 2
    assert midstream("explain", query, "-s", f"A={tmp_path / 'days'}").exit_code == 0


def test_a_missing_time_column_names_the_columns(files):
    done = midstream("query", JOIN, *files[:-1], "when", "--on", "reference")
    assert done.exit_code == 2
    assert "stream A has no time column 'when'" in done.stderr and "its columns are ts, k, v" in done.stderr


def test_a_query_file_that_cannot_be_read_is_named(files, tmp_path):
    (tmp_path / "q.cql").write_bytes(b"\xff\xfe\x80")
    assert "is not UTF-8 text" in midstream("query", f"@{tmp_path / 'q.cql'}", *files).stderr
    done = midstream("query", "@nowhere.cql", *files)
    assert done.exit_code == 2 and "cannot read the query from nowhere.cql" in done.stderr


def test_a_defect_ends_with_code_70_and_says_whose_fault_it_is(files, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("midstream.api.reference", fail)
    done = midstream("query", JOIN, *files, "--on", "reference")
    assert (done.exit_code, done.stdout) == (70, "")
    assert "ZeroDivisionError: division by zero" in done.stderr and "Traceback" not in done.stderr
    monkeypatch.setenv("MIDSTREAM_TRACEBACK", "1")
    assert "Traceback" in midstream("query", JOIN, *files, "--on", "reference").stderr


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "midstream", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE)}


def test_the_program_runs_as_a_process(files):
    arguments = command("query", JOIN, *files, "--on", "reference", "--json")
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["row_count"] == 4
    assert done.stderr == ""


def test_a_reader_that_goes_away_is_no_defect(files):
    arguments = command("query", JOIN, *files, "--on", "reference", "--json")
    with subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        complaint = process.stderr.read().decode()
    assert complaint == "" and process.returncode != 70
