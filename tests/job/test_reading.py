"""A job read from its checkpoint alone says what the job itself would say, at its end and on the way."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generators import EVERYTHING, random_case
from tests.job.chain import Chain
from tests.job.many import Many
from tests.job.test_adaptive import EAGER, shifting
from typer.testing import CliRunner

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.subscriptions import Subscription
from midstream.inputs import table_of
from midstream.interface.cli import app
from midstream.optimizer.plan_graph import join_tree

JOIN = "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"


SUGGESTING = replace(EAGER, mode="suggest")


def tables(rows: int = 60) -> dict[str, pa.Table]:
    return {
        name: pa.table({"k": [i % 5 for i in range(rows)], "v": [i + s for i in range(rows)], "ts": range(rows)})
        for s, name in enumerate("ABC")
    }


def many(folder, **queries):
    question = ask(next(iter(queries.values())), tables())
    job = Many(catalog=question.catalog, folder=folder)
    for name, cql in queries.items():
        job.add(name, cql)
    return job


@pytest.mark.parametrize("seed", range(12))
def test_results_read_from_the_checkpoint_are_those_of_the_job(seed, tmp_path):
    case = random_case(seed, EVERYTHING)
    question = ask(case.query, case.inputs, time=case.time)
    chain = Chain(question.plan, question.catalog, tmp_path)
    found = chain.run(question.tables, batch_rows=7)
    assert ms.read_results(tmp_path, "q").equals(found)
    assert ms.snapshot_equal(ms.read_results(str(tmp_path), "q"), ms.run(case.query, case.inputs, time=case.time))


def test_a_stream_of_changes_is_read_with_its_times(tmp_path):
    query = "SELECT ISTREAM k FROM A [RANGE 5]"
    question = ask(query, {"A": tables()["A"]})
    Chain(question.plan, question.catalog, tmp_path).run(question.tables, batch_rows=9)
    found = ms.read_results(tmp_path, "q")
    assert found.column_names == ["k", "ts"]
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, ms.reference(query, question.tables).to_pylist()))
    with pytest.raises(ms.QueryError, match="gives a stream"):
        ms.read_results(tmp_path, "q", current=True)


def test_only_files_that_a_manifest_names_are_read(tmp_path):
    job = many(tmp_path, q=JOIN, r="SELECT k FROM A [RANGE 20]")
    for part in job.cut(tables(), 20):
        job.batch(part)
    before = {name: job.table(name) for name in "qr"}
    for file in list(tmp_path.rglob("results/**/*.parquet")):
        file.with_name(f"000000000000-00-0000-{file.name}").write_bytes(file.read_bytes())
    assert all(ms.read_results(tmp_path, name).equals(before[name]) and before[name].num_rows for name in "qr")


@settings(max_examples=25)
@given(st.integers(0, 59))
def test_current_results_are_the_snapshot_at_the_newest_instant(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("current")
    inputs = {"A": tables()["A"].slice(0, cut + 1)}
    query = "SELECT k, v FROM A [RANGE 9]"
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, folder)
    for part in chain.cut(question.tables, 13):
        chain.batch(part)
    released = ms.open(folder).query("q").released
    oracle = ms.reference(query, inputs).to_pylist()
    wanted = [r for r in oracle if released is not None and r["valid_from"] < released <= r["valid_to"]]
    assert sorted(map(str, ms.read_results(folder, "q", current=True).to_pylist())) == sorted(map(str, wanted))


def test_results_that_are_followed_come_once_each(tmp_path):
    job = many(tmp_path, q=JOIN)
    parts = job.cut(tables(), 30)
    job.batch(parts[0])
    waiting = iter(parts[1:])

    def next_batch(_):
        part = next(waiting, None)
        if part is not None:
            job.batch(part)

    held = True

    def runs(store):
        nonlocal held
        held, before = job.next_batch < len(parts), held
        return before

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("midstream.checkpoint.subscriptions.is_running", runs)
        seen = list(Subscription(str(tmp_path), "q", sleep=next_batch))
    assert len(seen) > 2 and pa.concat_tables(seen).equals(job.table("q").combine_chunks())


def test_a_query_without_results_still_has_columns(tmp_path):
    job = many(tmp_path, none="SELECT k, v FROM A [RANGE 5] WHERE v < 0")
    job.batch(job.cut(tables(), 20)[0])
    assert ms.read_results(tmp_path, "none").column_names == ["k", "v", "valid_from", "valid_to"]
    assert ms.read_results(tmp_path, "none").num_rows == 0


def test_an_opened_job_tells_of_migrations_decisions_and_operators(tmp_path):
    query, inputs = shifting()
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, plan="((A B) C)", adaptive=SUGGESTING)
    for number, part in enumerate(chain.cut(inputs, 200)[:6]):
        if number == 3:
            chain.migrate("(A (B C))", "genmig")
        chain.batch(part)
    opened = ms.open(tmp_path).query("q")
    under_way = opened.migration
    assert under_way is not None and under_way.new_plan == "(A (B C))" and under_way.status == "under way"
    assert under_way.forecast is not None and under_way.actual is not None and under_way.target is not None
    shared = {n.content for n in opened.graph.nodes} & {n.content for n in under_way.target.nodes}
    assert len(shared) == 5  # the sources, the join of all three, and what is computed of it
    assert {n.stream for n in opened.graph.nodes if n.stream} == {"A", "B", "C"} and opened.streams == ("A", "B", "C")
    page = (Path(__file__).parents[2] / "frontend/src/graph.js").read_text()
    assert {n.kind for n in opened.graph.nodes} <= set(re.findall(r'^  (\w+): "', page, re.MULTILINE))
    joins = [n for n in opened.graph.nodes if n.kind == "HashJoin"]
    assert all(n.figures is not None and n.figures.rows_in > 0 for n in joins)
    assert any(n.figures is not None and n.figures.state_rows for n in under_way.target.nodes)
    assert opened.decisions[-1].action == "suggest" and opened.adaptivity.mode == "suggest"
    for part in chain.cut(inputs, 200)[6:]:
        chain.batch(part)
    job = ms.open(tmp_path)
    assert [m.new_plan for m in job.history if m.status == "done"][0] == "(A (B C))"
    assert [row["batch_id"] for row in job.metrics().to_pylist()] == list(range(job.batch + 1))
    assert job.at(job.batches[0]).batch == job.batches[0] and job.refresh() is job
    assert set(job.streams) == {"A", "B", "C"} and job.streams["A"].rows == inputs["A"].num_rows
    assert job.slots.count == 2 and sum(job.slots.bytes) > 0 and not job.running
    with pytest.raises(FrozenInstanceError):
        job.query("q").released = None  # type: ignore[misc]
    with pytest.raises(ms.JobError, match="not retained"):
        job.at(0)


def test_dead_letters_are_read_newest_first(tmp_path):
    late = pa.table({"k": [1, 2, 3, 4], "v": [1, 2, 3, 4], "ts": [50, 60, 1, None]})
    question = ask("SELECT k FROM A [RANGE 5]", {"A": tables()["A"]})
    chain = Chain(question.plan, question.catalog, tmp_path)
    for part in (tables()["A"].slice(0, 20), late.slice(0, 2), late.slice(2)):
        chain.batch({"A": part.combine_chunks().to_batches()[0]})
    job = ms.open(tmp_path)
    dead = job.dead_letters()
    assert job.dead_letter_rows == 2 and sorted(dead.column("reason").to_pylist()) == ["late", "null time"]
    assert job.dead_letters(1).num_rows == 1 and json.loads(dead.column("row")[0].as_py())["k"] in (3, 4)


@pytest.mark.parametrize(
    ("plan", "labels"),
    [
        ("", []),
        ("((A B) C)", ["Join", "Join", "A", "B", "C"]),
        ("A: B C, B: A C, C: B A", ["Multi-way join", "A", "B", "C"]),
        ("((A", []),
    ],
)
def test_a_join_tree_is_known_from_a_plans_text(plan, labels):
    assert [node.label for node in join_tree(plan).nodes] == labels


def test_the_results_command_prints_one_object_or_writes_a_file(tmp_path):
    job = many(tmp_path / "job", q=JOIN)
    for part in job.cut(tables(), 30):
        job.batch(part)
    run = CliRunner()
    where = str(tmp_path / "job")
    shown = json.loads(run.invoke(app, ["results", where, "q", "--json"]).stdout)
    assert [c["name"] for c in shown["columns"]] == ["a", "b", "valid_from", "valid_to"]
    assert len(shown["rows"]) == job.table("q").num_rows
    now = json.loads(run.invoke(app, ["results", where, "q", "--current", "--json"]).stdout)
    assert 0 < len(now["rows"]) < len(shown["rows"])
    followed = run.invoke(app, ["results", where, "q", "--follow", "--json"])
    assert json.loads(followed.stdout) == shown  # nobody runs the job: what there is, and the end
    assert run.invoke(app, ["results", where, "q", "-o", str(tmp_path / "r.parquet")]).exit_code == 0
    assert table_of("r", tmp_path / "r.parquet").num_rows == len(shown["rows"])
    wrong = run.invoke(app, ["results", where, "p"])
    assert wrong.exit_code == 2 and "the queries are q" in wrong.stderr
    assert run.invoke(app, ["results", str(tmp_path / "none"), "q"]).exit_code == 2


def test_neither_spark_nor_the_program_is_needed(tmp_path):
    job = many(tmp_path, q=JOIN)
    job.batch(job.cut(tables(), 30)[0])
    code = (
        "import sys, midstream as ms; job = ms.open(sys.argv[1]); ms.read_results(sys.argv[1], 'q'); job.metrics(); "
        "sys.exit(any(name.startswith('pyspark') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0
