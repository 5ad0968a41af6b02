"""Routed joins in this process: read from their text, found among the plans, run, and migrated to and from."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from tests.distribution.routed.joins import draw_join, draw_plan

import midstream as ms
from midstream.algebra.physical import walk_physical
from midstream.algebra.physical.routed import RoutedJoin
from midstream.api import ask
from midstream.optimizer.plans import plan_query

STRATEGIES = ("genmig", "genmig_reference_point", "genmig_shortened", "moving_state", "moving_state_paced")

CHAIN = "SELECT A.v AS a FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE A.x = B.x AND B.y = C.y"
WAYS = "A -> B <- C, B <- A -> C, C -> B <- A"


def tables(kind: pa.DataType | None = None) -> dict[str, pa.Table]:
    columns = {"ts": pa.int64(), "v": pa.int64(), "x": kind or pa.int64(), "y": pa.int64()}
    return {name: pa.schema(columns).empty_table() for name in "ABC"}


@pytest.mark.parametrize("seed", range(24))
def test_a_routed_join_agrees_with_the_oracle(seed):
    random = Random(seed)
    count = 3 + seed % 3
    joined = draw_join(random, count, 12 if count < 5 else 6)
    text = str(draw_plan(random, joined.query.conditions))
    found = ms.run(joined.text, joined.tables, plan=text, batch_rows=random.choice([1, 3, 100]))
    same = ms.snapshot_equal(found, ms.reference(joined.text, joined.tables))
    assert same, f"{same}\n{text}\n{joined.text}"


@pytest.mark.parametrize("seed", range(24))
def test_migrations_between_all_kinds_of_plans(seed):
    random = Random(100 + seed)
    joined = draw_join(random, 3 + seed % 2, 12)
    query = joined.query
    trees = [p.text for p in ms.plans(joined.text, {n: t.schema for n, t in joined.tables.items()})]
    routed = [str(draw_plan(random, query.conditions)) for _ in range(2)]
    first, second = random.sample([*routed, *random.sample(trees, min(2, len(trees)))], 2)
    endless = "UNBOUNDED" in joined.text
    change = ms.Migration(at=8, plan=second, strategy="moving_state" if endless else random.choice(STRATEGIES))
    found = ms.run(joined.text, joined.tables, plan=first, migrations=[change], batch_rows=3)
    same = ms.snapshot_equal(found, ms.reference(joined.text, joined.tables))
    assert same, f"{same}\n{first} to {second} by {change.strategy}\n{joined.text}"


def test_the_text_reads_back_and_explain_shows_it():
    asked = ask(CHAIN, tables())
    plan = plan_query(asked.plan, WAYS)
    assert plan.text == WAYS and plan_query(asked.plan, plan.text) == plan
    node = next(n for n in walk_physical(plan.physical) if isinstance(n, RoutedJoin))
    assert "by 0 -> 1 <- 2, 1 <- 0 -> 2, 2 -> 1 <- 0" in node.label
    tree = plan_query(asked.plan, "((A B) C)")
    join = next(n for n in walk_physical(tree.physical) if type(n).__name__ == "HashJoin")
    assert node.content == join.content


def test_routed_joins_are_among_the_plans():
    texts = [str(plan) for plan in ms.plans(CHAIN, {n: t.schema for n, t in tables().items()})]
    assert any("->" in text for text in texts) and "((A B) C)" in texts


def test_a_query_that_joins_at_two_places_has_a_shape_for_each():
    text = f"{CHAIN} UNION ALL SELECT D.v AS a FROM A AS D [RANGE 5], B AS E [RANGE 3], C AS F [RANGE 2] "
    asked = ask(f"{text} WHERE D.x = E.x AND E.y = F.y", tables())
    plan = plan_query(asked.plan, f"{WAYS}; ((D E) F)")
    assert plan_query(asked.plan, plan.text) == plan and plan.text.count("->") == 3


@pytest.mark.parametrize(
    ("plan", "problem", "column"),
    [
        ("A -> C -> B, B -> A -> C, C -> B -> A", "probes C without a condition", 6),
        ("A -> B@eu -> C, B -> A -> C, C -> B -> A", "the site eu, at which B does not live", 7),
        ("A -> Z -> C, B -> A -> C, C -> B -> A", "names Z", 6),
        ("A -> B -> C, B -> A -> C", "no way for C", 25),
        ("X; A -> B -> C, B -> A -> C, C -> B", "never meets A", 36),
    ],
)
def test_a_wrong_text_is_refused_at_its_place(plan, problem, column):
    with pytest.raises(ms.QueryError) as refused:
        ms.run(CHAIN, tables(), plan=plan)
    assert problem in str(refused.value) and refused.value.column == column


def test_lists_are_keys_of_routed_joins():
    inputs = tables(pa.list_(pa.int64()))
    assert ms.snapshot_equal(ms.run(CHAIN, inputs, plan=WAYS), ms.reference(CHAIN, inputs))


def test_only_windows_of_streams_can_be_routed():
    text = CHAIN.replace("C [RANGE 5]", "C [ROWS 3]")
    with pytest.raises(ms.QueryError, match="cannot read C: it is not a stream's time window") as refused:
        ms.run(text, tables(), plan=WAYS)
    assert refused.value.column == 27
