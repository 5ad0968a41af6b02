"""`midstream shell`: statements from anywhere, streams from files, answers as they come."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local import embedded
from midstream.errors import InputError
from midstream.interface.cli import app
from midstream.interface.shell import commands, prompt
from midstream.interface.shell.commands import Shell
from midstream.interface.shell.prompt import candidates
from midstream.interface.shell.statements import Statement, statements

JOIN = "SELECT orders.id, amount FROM orders [RANGE 5], paid [RANGE 5] WHERE orders.id = paid.id"
ORDERS = [{"ts": 1, "id": 1, "amount": 10}, {"ts": 2, "id": 2, "amount": 20}, {"ts": 5, "id": 1, "amount": 30}]
PAID = [{"ts": 3, "id": 1}, {"ts": 4, "id": 2}]


@pytest.fixture
def files(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("orders.csv").write_text("ts,id,amount\n" + "".join("{ts},{id},{amount}\n".format(**o) for o in ORDERS))
    Path("paid").mkdir()
    Path("paid/0.jsonl").write_text(json.dumps(PAID[0]) + "\n")
    pq.write_table(pa.Table.from_pylist(PAID[1:]), "paid/1.parquet")
    return tmp_path


def said(text: str, *arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["shell", *arguments], input=text)
    return done.exit_code, done.stdout, done.stderr


DECLARED = "\\stream orders orders.csv\nCREATE STREAM paid FROM 'paid' TIME ts;\n"


def test_a_script_declares_streams_of_files_and_folders_and_answers_over_them(files):
    code, out, _ = said(f"{DECLARED}\n-- a comment; with a semicolon\n{JOIN};\n\\streams")
    assert code == 0, out
    lines = [line.split() for line in out.splitlines()]
    wanted = ms.run(JOIN, {"orders": ORDERS, "paid": PAID}).to_pylist()
    shown = [[int(word) for word in line] for line in lines if line and all(word.isdigit() for word in line)]
    assert shown == [list(row.values()) for row in wanted]
    assert "3 rows" in out and out.count("paid from paid, time ts") == 2


def test_json_is_one_object_a_line_for_each_result(files):
    code, out, _ = said(f"{DECLARED}{JOIN};{JOIN};\n\\streams\n\\plans {JOIN}\nEXPLAIN {JOIN}", "--json")
    *answers, streams, plans, explained = [json.loads(line) for line in out.splitlines()]
    assert [stream["name"] for stream in streams["streams"]] == ["orders", "paid"]
    assert plans == {"plans": ["(orders paid)"]} and "logical_plan" in explained
    wanted = ms.run(JOIN, {"orders": ORDERS, "paid": PAID}).to_pylist()
    assert code == 0 and [answer["rows"] for answer in answers] == [wanted, wanted]


def test_the_first_mistake_of_a_script_ends_it_and_shows_its_place(files):
    code, out, err = said(f"{DECLARED}SELECT\n  idd FROM orders [NOW];\nSELECT id FROM orders [NOW];")
    assert code == 2 and "3 rows" not in out
    assert "unknown column idd" in err and "    ^" in err and "did you mean id?" in err
    assert "begins on line 3" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1;", "there are no streams yet"),
        ("\\stream orders", "a name and a path"),
        ("\\stream orders nowhere.csv", "no file or folder nowhere.csv"),
        ("\\stream orders orders.csv time=at", "has no column at"),
        ("\\stream 1x orders.csv", "cannot name a stream"),
        ("CREATE STREAM orders;", "this declares no stream"),
        ("\\fly", "unknown command"),
        ("\\limit many", "a limit is a number"),
        ("\\read nowhere.cql", "cannot read nowhere.cql"),
    ],
)
def test_mistakes_are_named(files, text, message):
    code, _, err = said(text)
    assert code == 2 and message in err


def test_explain_plans_plan_limit_and_read(files):
    Path("more.cql").write_text(f"\\limit 1\n{JOIN};")
    code, out, _ = said(
        f"{DECLARED}EXPLAIN {JOIN};\n\\plans {JOIN}\n\\plan (paid orders)\n\\read more.cql\n\\quit\n{JOIN};"
    )
    assert code == 0
    assert "Physical plan" in out and "(orders paid)" in out
    assert out.count("3 rows, 2 not shown") == 1  # nothing after \quit
    code, _, err = said(f"{DECLARED}\\plan (orders nobody)\n{JOIN};")
    assert code == 2 and "nobody" in err
    Path("circle.cql").write_text("\\read circle.cql")
    assert "circle" in said("\\read circle.cql")[2]


def test_streams_and_statements_may_be_options(files):
    code, out, _ = said("", "-s", "orders=orders.csv", "-c", "SELECT id FROM orders [NOW]", "-c", "\\streams")
    assert code == 0 and "3 rows" in out and "orders from orders.csv" in out


def test_a_file_that_grew_is_read_again(files):
    told: list[str] = []
    shell = Shell(told.append)
    shell.do_all(DECLARED.splitlines(), "test")
    shell.query("SELECT id FROM orders [NOW]")
    with Path("orders.csv").open("a") as file:
        file.write("9,9,9\n")
    shell.query("SELECT id FROM orders [NOW]")
    assert [line for line in told if line.endswith("rows")] == ["3 rows", "4 rows"]


def test_results_are_shown_before_the_run_has_ended(files, monkeypatch):
    monkeypatch.setattr(commands, "BATCH_ROWS", 1)
    told: list[str] = []
    shell = Shell(told.append)
    shell.do_all(DECLARED.splitlines(), "test")
    seen: list[int] = []

    def watched(plan: Any, tables: Any, catalog: Any, how: FiniteRun) -> pa.Table:
        def noted(table: pa.Table) -> None:
            assert how.results is not None
            how.results(table)
            seen.append(len(told))

        return embedded.run(plan, tables, catalog, replace(how, results=noted))

    monkeypatch.setattr(commands, "run", watched)
    shell.query(JOIN)
    assert len(set(seen)) > 1


def test_at_a_terminal_a_mistake_does_not_end_the_shell_and_ctrl_c_leaves_what_was_begun(files, capsys):
    mistaken = ["\\stream orders orders.csv", "SELECT idd FROM orders [NOW];", "SELECT", KeyboardInterrupt]
    typed: Iterator[Any] = iter([*mistaken, "SELECT id", "FROM orders [NOW];", EOFError])
    prompts: list[str] = []

    def read(shown: str) -> str:
        prompts.append(shown)
        line = next(typed)
        if not isinstance(line, str):
            raise line
        return line

    told: list[str] = []
    prompt.converse(Shell(told.append), read)
    assert "3 rows" in told and "unknown column idd" in capsys.readouterr().err
    assert prompts == [prompt.PROMPT] * 3 + [prompt.GOING_ON, prompt.PROMPT, prompt.GOING_ON, prompt.PROMPT]


def test_names_are_completed(files):
    shell = Shell(print)
    shell.do_all(DECLARED.splitlines(), "test")
    streams = shell.streams.named

    def offered(line: str) -> list[str]:
        return candidates(line, line.rpartition(" ")[2], streams, ("\\stream", "\\streams"))

    assert offered("SELECT id FROM or") == ["orders"] and "amount" in offered("SELECT am")
    assert offered("SELECT orders.am") == ["orders.amount"]
    assert "sum(" in offered("SELECT su") and "WHERE" in offered("SELECT id FROM orders WH")
    assert offered("\\str") == ["\\stream", "\\streams"]
    assert offered("\\stream x pa") == ["paid/"]


def test_semicolons_in_quotes_and_comments_end_nothing():
    text = ["SELECT ';', \"a;b\" -- ; no", "FROM A /* ;", "; */ ; SELECT 2", "", "; -- only a comment", ";;"]
    found = list(statements(text))
    assert [s.line for s in found] == [1, 3]
    assert found[0].text.startswith("SELECT ';'") and found[0].text.endswith("*/")
    assert found[1].text.strip() == "SELECT 2"


def test_a_stream_without_a_time_column_says_how_to_name_one(files):
    Path("plain.csv").write_text("a,b\nx,y\n")
    with pytest.raises(InputError, match="stream p: it has no time column among a, b") as error:
        Shell(print).do(Statement("\\stream p plain.csv", 1))
    assert "time=COLUMN" in str(error.value)
