"""Adaptive runs of the embedded engine: what is observed, and that adapting never changes an answer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.generators import RELATIONAL, random_case

import midstream as ms
from midstream.adaptation.policy import Policy
from midstream.adaptation.smoothing import Smoothed
from midstream.adaptation.wanted_statistics import wanted_statistics_of
from midstream.api import ask
from midstream.cluster.local.observing import observe
from midstream.lab.bench.adaptivity_streams import Phase, chain_columns, chain_query, record

EAGER = Policy("auto", least_gain=0.01, margin=0.1, evidence=0.0, patience=1, warm_up=2)


def shifting(seed: int = 1) -> tuple[str, dict[str, pa.Table]]:
    """A chain whose first link is hot first, whose last link is hot later."""
    rates = {name: 2.0 for name in "ABC"}
    phases = [Phase(1200, rates, {"ab": 20.0, "bc": 2000.0}), Phase(1200, rates, {"ab": 2000.0, "bc": 20.0})]
    return chain_query("ABC", 100), record(chain_columns("ABC"), phases, seed)


def test_a_query_follows_its_streams_and_answers_the_same():
    query, tables = shifting()
    adaptive = ms.run(query, tables, batch_rows=100, adaptive="auto", full=True)
    migrations = [d for d in adaptive.decisions if d.action == "migrate"]
    assert len(migrations) >= 1 and migrations[-1].moment > 1200
    assert migrations[-1].target.text.startswith("((A B)") or ":" in migrations[-1].target.text
    assert ms.snapshot_equal(adaptive.table, ms.run(query, tables, batch_rows=100))


def test_an_adaptive_query_verifies_what_it_decides():
    query, tables = shifting()
    result = ms.run(query, tables, batch_rows=100, adaptive=Policy(verify=50), full=True)
    assert result.history and all(record.verified is not None for record in result.history)
    assert ms.snapshot_equal(result.table, ms.run(query, tables, batch_rows=100))


def test_suggesting_does_not_touch_the_plan():
    query, tables = shifting()
    result = ms.run(query, tables, batch_rows=100, plan="((A B) C)", adaptive="suggest", full=True)
    decisions = result.decisions
    assert "suggest" in {d.action for d in decisions} and "migrate" not in {d.action for d in decisions}
    assert {d.plan.text for d in decisions} == {"((A B) C)"}


@pytest.mark.parametrize("seed", range(12))
def test_adapting_eagerly_never_changes_an_answer(seed):
    case = random_case(500 + seed, RELATIONAL, most_rows=30)
    late = 10**6 if pa.types.is_integer(next(iter(case.inputs.values())).schema.field("ts").type) else "1 day"
    want = ms.reference(case.query, case.inputs, lateness=late)
    got = ms.run(case.query, case.inputs, lateness=late, batch_rows=3, adaptive=EAGER)
    same = ms.snapshot_equal(got, want)
    assert same, f"{case!r}\n{same}"


def test_interests_are_what_the_optimizer_asks_for():
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
    empty = {name: schema.empty_table() for name in "ABC"}
    query = (
        "SELECT DISTINCT A.k, B.v FROM A [TUMBLE 9], B [TUMBLE 9], C [TUMBLE 9] "
        "WHERE A.k = B.k AND B.v = C.v + 1 AND A.v > 3 AND A.v < C.v"
    )
    found = wanted_statistics_of(ask(query, empty).plan)
    assert set(found.keys["A"]) == {"A.k", "A.k, A.v"} and "(C.v + 1)" in found.keys["C"]
    assert [text for text, _ in found.selections["A"]] == ["(A.v > 3)"]
    assert [text for text, _, _ in found.pairs] == ["(A.v < C.v)"]
    assert frozenset({"A.k", "B.k"}) in found.classes


def test_what_is_observed_is_about_right():
    rng = np.random.default_rng(2)

    def table(rows: int, keys: int) -> pa.Table:
        times = np.sort(rng.integers(0, 10_000, rows))
        return pa.table({"ts": times, "k": rng.integers(0, keys, rows), "v": rng.integers(0, 100, rows)})

    tables = {"A": table(20_000, 500), "B": table(5_000, 500)}
    query = "SELECT A.k FROM A [RANGE 500], B [RANGE 500] WHERE A.k = B.k AND A.v < 25 AND A.v < B.v"
    question = ask(query, tables)
    seen = observe(question.plan, question.tables, question.catalog)
    assert seen.streams["A"].rate.value == pytest.approx(2.0, rel=0.1)
    assert seen.streams["B"].rate.value == pytest.approx(0.5, rel=0.15)
    assert seen.selectivities["(A.v < 25)"].value == pytest.approx(0.25, rel=0.2)
    assert seen.selectivities["(A.v < B.v)"].value == pytest.approx(0.87, rel=0.2)
    equal = seen.equality(["A.k", "B.k"])
    assert equal is not None and equal.value == pytest.approx(1 / 500, rel=0.4)


def test_plans_of_tables_are_ranked_by_what_is_in_them():
    query, tables = shifting()
    early = {name: table.slice(0, table.num_rows // 2) for name, table in tables.items()}
    assert ms.plans(query, early)[0].text == "(A (B C))"


def test_smoothing_follows_a_jump_but_not_noise():
    rng = np.random.default_rng(4)
    steady = Smoothed(0.9)
    for _ in range(100):
        steady.add(100 * (1 + 0.3 * (2 * rng.random() - 1)), 10)
    assert steady.value == pytest.approx(10, rel=0.1) and 0.05 < steady.noise < 0.4
    jumps = [steady.add(500, 10) for _ in range(5)]
    assert any(jumps) and steady.value == pytest.approx(50, rel=0.05)


def test_a_stream_that_only_multiplies_can_be_observed():
    tables = {name: pa.table({"ts": range(40), "k": [i % 3 for i in range(40)]}) for name in "AB"}
    query = "SELECT DISTINCT 1 AS one FROM A [RANGE 5], B [RANGE 5]"
    assert ms.plans(query, tables)
    assert ms.snapshot_equal(ms.run(query, tables, batch_rows=5, adaptive=EAGER), ms.reference(query, tables))
