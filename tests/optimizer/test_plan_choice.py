"""Which plan is chosen, by what is known: shapes, estimates and costs."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from tests.generators import INNER_JOINS, random_case
from tests.optimizer.executed import answers, bound

import midstream as ms
from midstream.algebra.plan import Join, walk_plan
from midstream.algebra.semantics import evaluate
from midstream.algebra.statistics import Estimate, KeyProfile, Statistics, StreamStatistics, common
from midstream.inputs import catalog_of
from midstream.language import parse
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.explanation import explain_plan
from midstream.optimizer.join_graph import join_graph
from midstream.optimizer.ordering import EXHAUSTIVE, all_trees
from midstream.optimizer.plans import enumerate_plans, plan_query

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])


def query(names: str, where: str, window: int = 100, select: str = ""):
    catalog = catalog_of({name: SCHEMA for name in names.split()}, "ts")
    sources = ", ".join(f"{name} [RANGE {window}]" for name in names.split())
    return parse(f"SELECT {select or names.split()[0] + '.k'} FROM {sources} WHERE {where}", catalog)


def profile(values: int, rows: float = 1000.0) -> KeyProfile:
    """A key with so many equally frequent values, all of them known."""
    hashes = np.arange(values, dtype=np.uint64)
    return KeyProfile(hashes, np.full(values, 1 / values), np.ones(values, bool), 4, rows)


def statistics(rates: dict[str, float], keys: dict[str, int]) -> Statistics:
    streams = {alias: StreamStatistics(Estimate(rate, 0.05)) for alias, rate in rates.items()}
    return Statistics(streams, {text: profile(values) for text, values in keys.items()})


CHAIN = query("A B C", "A.k = B.k AND B.v = C.v")
RATES = {"A": 1.0, "B": 1.0, "C": 1.0}


def test_the_selective_join_comes_first():
    few_ab = statistics(RATES, {"A.k": 5000, "B.k": 5000, "B.v": 5, "C.v": 5})
    few_bc = statistics(RATES, {"A.k": 5, "B.k": 5, "B.v": 5000, "C.v": 5000})
    assert plan_query(CHAIN, None, statistics=few_ab).text == "((A B) C)"
    assert plan_query(CHAIN, None, statistics=few_bc).text == "(A (B C))"


def test_a_multi_way_join_wins_where_every_intermediate_result_is_large():
    many = statistics({"A": 1.0, "B": 1.0, "C": 1.0}, {"A.k": 20, "B.k": 20, "B.v": 20, "C.v": 20})
    star = statistics({"A": 0.01, "B": 5.0, "C": 5.0}, {"A.k": 100, "B.k": 100, "B.v": 100, "C.v": 100})
    texts = {plan_query(CHAIN, None, statistics=s).text for s in (many, star)}
    assert any(":" in text for text in texts)


@pytest.mark.parametrize("keys", [(5000, 5), (5, 5000), (20, 20), (300, 40)])
def test_plans_rank_alike_whatever_a_tick_is(keys):
    """The same streams, timed by whole seconds and by timestamps."""
    schema = pa.schema([SCHEMA.field(i) if i else pa.field("ts", pa.timestamp("us")) for i in range(len(SCHEMA))])
    text = "SELECT A.k FROM A [RANGE {0}], B [RANGE {0}], C [RANGE {0}] WHERE A.k = B.k AND B.v = C.v"
    by_second = parse(text.format(600), catalog_of(dict.fromkeys("ABC", SCHEMA), "ts"))
    by_timestamp = parse(text.format("'10 minutes'"), catalog_of(dict.fromkeys("ABC", schema), "ts"))
    values = dict(zip(("A.k", "B.k", "B.v", "C.v"), np.repeat(keys, 2).tolist(), strict=True))
    rates = {"A": 50.0, "B": 200.0, "C": 1000.0}
    slow = {alias: rate / 1_000_000 for alias, rate in rates.items()}
    ranked = [p.text for p in enumerate_plans(by_second, statistics=statistics(rates, values))]
    assert [p.text for p in enumerate_plans(by_timestamp, statistics=statistics(slow, values))] == ranked


def test_spread_rows_get_a_multi_way_join_only_by_one_key():
    many = statistics(RATES, {"A.k": 20, "B.k": 20, "B.v": 20, "C.v": 20})
    assert ":" not in plan_query(CHAIN, None, statistics=many, spread=True).text


def test_equalities_imply_others_so_that_any_pair_may_come_first():
    plan = query("A B C", "A.k = B.k AND B.k = C.k")
    texts = {p.text for p in enumerate_plans(plan)}
    assert "((A C) B)" in texts
    logical = next(p for p in enumerate_plans(plan) if p.text == "((A C) B)").logical
    assert not any(isinstance(n, Join) and "cross" in n.label for n in walk_plan(logical))


def test_a_chain_has_no_plan_with_an_accidental_cross_product():
    for plan in enumerate_plans(CHAIN):
        assert "cross" not in str(plan.logical), plan


def test_a_cross_product_that_cannot_be_helped_is_planned():
    plan = query("A B C", "A.k = B.k")
    texts = [p.text for p in enumerate_plans(plan)]
    assert texts and all(text in ("((A B) C)",) or ":" in text or "->" in text for text in texts)


def test_the_number_of_trees_of_a_chain_and_of_a_clique():
    chain = join_graph(query("A B C D", "A.k = B.k AND B.v = C.v AND C.w = D.w").input)
    clique = join_graph(query("A B C D", "A.k = B.k AND B.k = C.k AND C.k = D.k").input)
    assert len(list(all_trees(chain, chain.everyone))) == 5
    assert len(list(all_trees(clique, clique.everyone))) == 15


def test_plans_of_equal_inputs_keep_equal_states_whatever_they_compare():
    plan = query("A B C", "A.k = B.k AND B.k = C.k")
    contents = {plan_query(plan, text).physical.content for text in ("((A B) C)", "((A C) B)", "(A (B C))")}
    contents.add(plan_query(plan, "A: B C, B: C A, C: A B").physical.content)
    assert len(contents) == 1


@pytest.mark.parametrize("text", ["((A B) C)", "(A (B C))", "A: B C, B: C A, C: B A", "(A B): C, C: (A B)"])
def test_a_plan_reads_back_from_its_text(text):
    plan = plan_query(CHAIN, text)
    assert plan_query(CHAIN, plan.text).logical == plan.logical


@pytest.mark.parametrize(
    "text", ["", "(", "((A B)", "A B", "(A B))", "A:", "A: B", "((A B) A)", "(A X)", "(A/early B)", "A: B C, B", "()"]
)
def test_a_plan_that_means_nothing_is_refused(text):
    with pytest.raises(ms.QueryError):
        plan_query(CHAIN, text)


@pytest.mark.parametrize("links", ["chain", "star", "one key", "theta"])
def test_thirty_streams_are_ordered(links):
    names = [f"S{i}" for i in range(30)]
    where = {
        "chain": [f"{a}.{c} = {b}.{c}" for i, (a, b) in enumerate(pairwise(names)) for c in ["kv"[i % 2]]],
        "star": [f"S0.k = {name}.k" for name in names[1:]],
        "one key": [f"{a}.k = {b}.k" for a, b in pairwise(names)],
        "theta": [f"{a}.k < {b}.k" for a, b in pairwise(names)],
    }[links]
    plan = plan_query(query(" ".join(names), " AND ".join(where)))
    assert len(names) > EXHAUSTIVE
    assert "cross" not in str(plan.logical)
    assert sum(isinstance(n, Join) for n in walk_plan(plan.logical)) == 29


def test_every_plan_of_a_random_join_gives_the_same():
    tried = 0
    for seed in range(12):
        case = random_case(1000 + seed, INNER_JOINS)
        question = bound(case.query, case.inputs)
        want = evaluate(question.plan, question.tables, question.catalog)
        for plan in enumerate_plans(question.plan)[:6]:
            assert ms.snapshot_equal(answers(plan.logical, question), want), f"{case.query}\n{plan}"
            tried += 1
    assert tried > 12


def test_early_distinct_and_aggregation_give_the_same():
    rng = np.random.default_rng(3)

    def table():
        times = np.sort(rng.integers(0, 150, 50))
        return pa.table({"ts": times, "k": rng.integers(0, 4, 50), "v": rng.integers(0, 3, 50)})

    inputs = {name: table() for name in "ABC"}
    queries = (
        "SELECT DISTINCT A.k, B.v FROM A [TUMBLE 20], B [RANGE 15], C [HOP 20, 10] WHERE A.k = B.k AND B.k = C.k",
        "SELECT B.v, sum(A.v) AS s, count(*) AS n, min(C.v) AS m FROM A [TUMBLE 20], B [TUMBLE 20], C [TUMBLE 20] "
        "WHERE A.k = B.k AND B.k = C.k GROUP BY B.v",
    )
    for text in queries:
        want = ms.reference(text, inputs)
        marked = [plan for plan in ms.plans(text, inputs) if "/" in plan.text]
        assert marked
        for plan in marked[::5]:
            assert ms.snapshot_equal(ms.run(text, inputs, plan=plan.text, batch_rows=17), want), plan


class TestEstimates:
    def test_a_join_of_known_keys_has_the_size_of_its_snapshots(self):
        known = statistics(RATES, {"A.k": 50, "B.k": 50, "B.v": 10, "C.v": 10})
        flow = Estimator(known).flow(plan_query(CHAIN, "((A B) C)").logical)
        assert flow.population == pytest.approx(101**3 / 50 / 10)
        assert flow.rate == pytest.approx(3 * 101**2 / 50 / 10)

    def test_sizes_do_not_depend_on_the_order_of_joins(self):
        known = statistics({"A": 2.0, "B": 1.0, "C": 0.5}, {"A.k": 50, "B.k": 70, "B.v": 10, "C.v": 30})
        flows = {Estimator(known).flow(p.logical.inputs[0]) for p in enumerate_plans(CHAIN, statistics=known)}
        assert len({(round(f.rate, 9), round(f.population, 6)) for f in flows}) == 1

    def test_keys_in_common_are_estimated_from_samples_and_heavy_hitters(self):
        from midstream.adaptation.key_counts import HeavyValues, KeyCounts
        from midstream.operators.hashing import hash_columns

        rng = np.random.default_rng(5)
        shares = 1 / np.arange(1, 5001) ** 1.1
        shares /= shares.sum()
        heavy = HeavyValues()
        counts = [KeyCounts(heavy), KeyCounts(heavy)]
        for _ in range(10):
            for count in counts:
                count.add(hash_columns([pa.array(rng.choice(5000, 2000, p=shares))]), 0.9)
        estimate = common([c.profile() for c in counts])
        assert math.isclose(estimate.value, float((shares**2).sum()), rel_tol=0.2)
        assert estimate.error < 0.3 and counts[0].profile().skew > 0.3

    def test_nothing_in_common_is_a_small_number_and_a_doubtful_one(self):
        other = profile(10)
        apart = KeyProfile(other.hashes + np.uint64(100), other.shares, other.heavy, 4, 1000.0)
        estimate = common([other, apart])
        assert 0 < estimate.value < 1e-4 and estimate.confidence <= 0.5


class TestExplanation:
    def test_it_says_what_would_have_to_change(self):
        known = statistics(RATES, {"A.k": 400, "B.k": 400, "B.v": 100, "C.v": 100})
        explanation = explain_plan(plan_query(CHAIN, None, statistics=known), known)
        assert explanation.plan.text == "((A B) C)" and 1 <= len(explanation.alternatives) <= 3
        assert all(a.cost >= explanation.cost for a in explanation.alternatives)
        assert any(a.wins_if for a in explanation.alternatives)
        assert "selectivity 0.0025" in explanation.tree and "per tick" in explanation.tree
        assert "((A B) C)" in explanation.why and "would win if" in explanation.why

    def test_a_plan_that_was_asked_for_is_not_called_the_best(self):
        known = statistics(RATES, {"A.k": 400, "B.k": 400, "B.v": 100, "C.v": 100})
        explanation = explain_plan(plan_query(CHAIN, "(A (B C))"), known)
        (best, *_) = explanation.alternatives
        assert best.plan.text == "((A B) C)" and best.cost < explanation.cost and best.wins_if is None
        assert "It is not the best: ((A B) C)" in explanation.why and "cheaper as things are" in explanation.why

    def test_a_query_without_joins_has_nothing_to_choose(self):
        plan = plan_query(parse("SELECT k FROM A [NOW]", catalog_of({"A": SCHEMA}, "ts")))
        assert explain_plan(plan).alternatives == ()


TWO_PLACES = """SELECT A.k FROM A [NOW], B [NOW] WHERE A.k = B.k EXCEPT ALL
                SELECT C.k FROM C [NOW], B [NOW] WHERE C.k = B.k"""


class TestTheTextOfAPlan:
    """A checkpoint keeps a plan as its text, so the text must say all that was chosen."""

    def round_trip(self, relation, most=8):
        for plan in [plan_query(relation), *enumerate_plans(relation, limit=most)]:
            assert plan_query(relation, plan.text).physical == plan.physical, plan.text

    @pytest.mark.parametrize(
        "cql",
        [
            """SELECT A.k FROM A [RANGE 50], B [RANGE 5], C [RANGE 10] WHERE A.k = B.k AND B.k = C.k UNION ALL
               SELECT A.k FROM A [RANGE 50], B [RANGE 5], C [RANGE 10] WHERE A.k = B.k AND B.v = C.v""",
            """SELECT x.k FROM (SELECT A.k, count(*) AS n FROM A [RANGE 50], B [RANGE 5], C [RANGE 10]
               WHERE A.k = B.k AND B.v = C.v GROUP BY A.k) AS x, A [RANGE 50], B [RANGE 5]
               WHERE x.k = A.k AND A.v = B.v""",
            """SELECT DISTINCT x.k FROM (SELECT DISTINCT A.k FROM A [NOW], B [NOW] WHERE A.k = B.k) AS x,
               (SELECT C.k FROM C [NOW], B [NOW] WHERE C.k = B.k) AS y WHERE x.k = y.k""",
            "SELECT k FROM A [NOW] UNION ALL SELECT k FROM B [NOW]",
            """SELECT "a b".k FROM A [NOW] AS "a b", B [NOW] AS "b;(", C [NOW] AS "c/distinct", C [NOW] AS ":"
               WHERE "a b".k = "b;(".k AND "b;(".k = "c/distinct".k AND "c/distinct".k = ":".k""",
            """SELECT DISTINCT "a""b".k FROM A [NOW] AS "a""b", B [NOW] WHERE "a""b".k = B.k""",
        ],
        ids=["a union of joins", "a join over a join", "three places", "no join", "awkward names", "a quote"],
    )
    def test_it_says_all_that_can_be_chosen(self, cql):
        self.round_trip(parse(cql, catalog_of({name: SCHEMA for name in "ABC"}, "ts")), most=40)

    @pytest.mark.parametrize("seed", range(60))
    def test_it_does_for_any_query(self, seed):
        case = random_case(seed)
        self.round_trip(bound(case.query, case.inputs).plan)

    def test_a_place_that_is_not_named_is_joined_as_written(self):
        relation = parse(TWO_PLACES, catalog_of({name: SCHEMA for name in "ABC"}, "ts"))
        assert plan_query(relation, "(B A)").text == "(B A); (C B_2)"
        assert plan_query(relation, "(B_2 C)").text == "(A B); (B_2 C)"

    @pytest.mark.parametrize("text", ["(A B); (D E)", "(A B);", "; (A B)", '("A B)', "(A B) (C B_2)", "(A \0)"])
    def test_what_cannot_be_meant_is_refused(self, text):
        with pytest.raises(ms.QueryError, match="the plan"):
            plan_query(parse(TWO_PLACES, catalog_of({name: SCHEMA for name in "ABC"}, "ts")), text)
