"""`CREATE MACRO`: values that stand before a query and are put in place of their calls."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import midstream as ms
from midstream.interface.shell.commands import Shell
from midstream.language.over_queries import with_queries

TABLE = pa.table({"ts": [1, 2, 3], "k": [1, 2, 1], "v": [10, 20, 30]})
MACROS = "CREATE MACRO net(a, tax) AS a * (100 - tax) / 100; CREATE FUNCTION total(a) AS sum(net(a, 10));\n"


def test_a_macro_is_what_it_stands_for() -> None:
    found = ms.run(f"{MACROS}SELECT k, total(v) AS s FROM A [RANGE 1] GROUP BY k", {"A": TABLE}, time="ts")
    written = "SELECT k, sum(v * (100 - 10) / 100) AS s FROM A [RANGE 1] GROUP BY k"
    assert found.num_rows
    assert ms.snapshot_equal(found, ms.run(written, {"A": TABLE}, time="ts"))


def test_a_session_keeps_macros_with_their_query(tmp_path: Path) -> None:
    """Also over a restart, and where a query reads another one."""
    for number in range(2):
        with ms.Session(checkpoint=str(tmp_path), on="local", slots=2) as session:
            session.stream("A", TABLE.schema)
            session.query("twice", "CREATE MACRO f(a) AS 2 * a; SELECT f(v) AS v FROM A [NOW]")
            session.query("again", "CREATE MACRO f(a) AS a + 1; SELECT f(v) AS w FROM twice")
            session.start()
            session.push("A", TABLE.slice(number, 1))
            if number:
                session.finish()
                assert session.queries["again"].table().column("w").to_pylist() == [21, 41]


def test_macros_of_a_query_that_is_read_are_its_own() -> None:
    queries = {"twice": "CREATE MACRO f(a) AS 2 * a; SELECT f(v) AS v FROM A [NOW]"}
    text = with_queries("CREATE MACRO f(a) AS a + 1; SELECT f(v) AS w FROM twice", queries)
    assert ms.run(text, {"A": TABLE}, time="ts").column("w").to_pylist() == [21, 41, 61]
    text = with_queries("SELECT f(v) AS w FROM twice", queries)
    with pytest.raises(ms.QueryError, match="unknown function f"):
        ms.run(text, {"A": TABLE}, time="ts")


def test_macros_that_double_each_other_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midstream.language.call_grammar.MOST_EXPANDED", 1_000)
    macros = [f"CREATE MACRO m{i}(a) AS m{i - 1}(a) + m{i - 1}(a);" for i in range(1, 50)]
    with pytest.raises(ms.QueryError, match="macros make more than"):
        ms.run(f"CREATE MACRO m0(a) AS a; {''.join(macros)} SELECT m49(v) FROM A", {"A": TABLE}, time="ts")


def test_a_shell_keeps_macros_for_the_queries_that_follow(tmp_path: Path) -> None:
    path, lines = tmp_path / "a.csv", list[str]()
    path.write_text("ts,v\n1,10\n2,20\n")
    shell = Shell(lines.append)
    script = [f"\\stream A {path} time=ts", "CREATE MACRO f(a) AS a + 1;", "CREATE MACRO g(a) AS f(f(a));"]
    shell.do_all([*script, "SELECT g(v) AS w FROM A;"], "script.sql")
    assert any(line.split()[:1] == ["12"] for line in lines)
    with pytest.raises(ms.QueryError, match="expected MACRO"):
        shell.do_all(["CREATE VIEW x AS SELECT 1;"], "script.sql")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE MACRO f(x) AS (SELECT count(*) FROM A [UNBOUNDED] AS y WHERE y.v = x); SELECT f(v) FROM A [NOW]",
        "CREATE MACRO f(x) AS (SELECT count(*) FROM A [UNBOUNDED] AS y WHERE y.v = x); SELECT f(y.v) FROM A [NOW] AS y",
        "CREATE MACRO f(x) AS list_transform([1, 2], v -> v + x); SELECT f(v) FROM A [NOW]",
    ],
)
def test_a_column_that_means_something_else_in_a_macro_is_refused(text: str) -> None:
    with pytest.raises(ms.QueryError, match="could be taken for what f has by this name"):
        ms.run(text, {"A": TABLE}, time="ts")


def test_a_column_that_only_the_caller_has_is_an_argument_of_a_macro() -> None:
    counted = (
        "CREATE MACRO f(x) AS (SELECT count(*) FROM A [UNBOUNDED] AS y WHERE y.v <= x); SELECT f(A.v) AS n FROM A [NOW]"
    )
    assert ms.run(counted, {"A": TABLE}, time="ts").column("n").to_pylist() == [1, 2, 3]
