"""What notebooks show: HTML of plans, results, histories, decisions, sessions and jobs; figures; frames of any kind."""

import builtins
from html.parser import HTMLParser

import pyarrow as pa
import pytest

import midstream as ms
from midstream.html import Records, escaped, rows_html
from midstream.testing import stream

JOIN = "SELECT A.k FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.k = C.k"
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])


def three(first: int = 0, last: int = 60) -> dict[str, pa.Table]:
    return {name: stream("ts k", *((t, t % 3) for t in range(first, last))) for name in "ABC"}


class Checked(HTMLParser):
    """Fails where elements are not closed in order, and gathers what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.elements: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.elements.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.seen.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.seen)


def shown(value) -> Checked:
    return Checked(value._repr_html_())


def test_plans_are_trees_and_a_change_sets_apart_what_both_compute():
    plans = {plan.text: plan for plan in ms.plans(JOIN, three())}
    old, new = plans["((A B) C)"], plans["(A (B C))"]
    assert shown(old).elements.count("li") == str(old.physical).count("\n") + 1
    change = old.change_to(new)._repr_html_()
    assert Checked(change).text.count("before") == 1
    assert change.count("both plans compute this") >= 6  # the three sources, in either plan


def test_a_result_shows_its_rows_migrations_and_decisions():
    change = ms.Migration(at=30, plan="(A (B C))")
    result = ms.run(JOIN, three(), plan="((A B) C)", migrations=[change], batch_rows=9, full=True, adaptive="suggest")
    found = shown(result)
    assert f"{len(result):,} rows" in found.text and "migrations" in found.text and "(A (B C))" in found.text
    assert "before: ((A B) C)" in shown(result.history[0]).text
    assert shown(result.decisions).elements.count("tr") == len(result.decisions) + 1
    assert all(shown(decision).text for decision in result.decisions)


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_sessions_queries_jobs_and_histories_are_shown_while_they_run(tmp_path, kind):
    session: ms.Session = ms.Session() if kind == "memory" else ms.Session(checkpoint=tmp_path / "job", on="local")
    with session:
        for name in "ABC":
            session.stream(name, SCHEMA)
        query = session.query("q", JOIN, plan="((A B) C)")
        session.start()
        session.push(three(0, 20))
        query.migrate("(A (B C))", "genmig")
        assert "migrating to (A (B C))" in shown(query).text
        for first in range(20, 80, 20):
            session.push(three(first, first + 20))
        assert "((A B) C)" not in shown(session).text and "(A (B C))" in shown(session).text
        assert "genmig" in shown(query.history).text
        assert "measured" in shown(next(change for change in query.history if change.strategy)).text
        axes = query.plot().axes
        assert len(axes) == (1 if kind == "memory" else 3)
        assert any("genmig" in text.get_text() for text in axes[0].get_legend().get_texts())
    if kind == "local":
        job = ms.open(tmp_path / "job")
        assert "stopped" in shown(job).text and "genmig" in shown(job.query("q")).text
        assert "before: ((A B) C)" in shown(job.history[-1]).text
        assert shown(job.query("q").graph).elements.count("li") >= 5
        assert len(job.plot("q").axes) == 3


def test_what_is_shown_is_escaped():
    evil = "<img src=x onerror=alert(1)>"
    assert escaped(evil) == "&lt;img src=x onerror=alert(1)&gt;"
    table = pa.table({evil: [evil]})
    assert Checked(rows_html(table)).elements == ["table", "caption", "thead", "tr", "th", "tbody", "tr", "td"]
    with ms.Session() as session:
        session.stream("A", SCHEMA)
        query = session.query("q", f"SELECT '{evil}' AS k FROM A [NOW]")
        assert "img" not in shown(query).elements + shown(session).elements
    assert Records()._repr_html_() == "<p>none</p>"


def test_frames_go_in_and_out():
    tables = three()
    polars = pytest.importorskip("polars")

    class Capsule:
        def __arrow_c_stream__(self, requested_schema=None):
            return tables["C"].__arrow_c_stream__(requested_schema)

    mixed = {"A": tables["A"].to_pandas(), "B": polars.from_arrow(tables["B"]), "C": Capsule()}
    result = ms.run(JOIN, mixed, full=True)
    assert ms.snapshot_equal(result.table, ms.run(JOIN, tables))
    assert result.to_pandas().shape == result.to_polars().shape == result.table.shape
    assert pa.table(result).equals(result.table)
    assert polars.DataFrame(result).equals(result.to_polars())


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    result, real = ms.run(JOIN, three(), full=True), builtins.__import__

    def missing(name, *rest, **named):
        if name.partition(".")[0] in ("matplotlib", "polars"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ms.JobError, match="plots need matplotlib") as error:
        result.plot()
    assert "midstream[plots]" in str(error.value)
    with pytest.raises(ms.InputError, match="Polars is not installed"):
        result.to_polars()


def test_a_finite_run_is_drawn_over_time_with_its_split_time():
    change = ms.Migration(at=30, plan="(A (B C))", strategy="genmig")
    result = ms.run(JOIN, three(), plan="((A B) C)", migrations=[change], batch_rows=9, full=True)
    labels = [text.get_text() for text in result.plot().axes[0].get_legend().get_texts()]
    assert "genmig: ((A B) C) → (A (B C))" in labels and "split time" in labels
