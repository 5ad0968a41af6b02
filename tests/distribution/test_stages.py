"""Where plans are cut: one shuffle serves all joins on one key, and one slot is used only where it must be."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.generators import EVERYTHING, random_case

from midstream.algebra import physical as p
from midstream.algebra.physical.selections import Selection
from midstream.api import ask
from midstream.distribution.fragments import ONE_SLOT, STAY, Received, Route, Staged, leaves
from midstream.distribution.stages import cut
from midstream.inputs import catalog_of
from midstream.language import parse
from midstream.optimizer.plans import plan_query

COLUMNS = pa.schema(
    [("k", pa.int64()), ("j", pa.int64()), ("small", pa.int32()), ("v", pa.float64()), ("ts", pa.int64())]
)
CATALOG = catalog_of({name: COLUMNS for name in "ABCD"}, "ts")
ON_ONE_KEY = (
    "SELECT A.v FROM A [RANGE 9], B [RANGE 9], C [RANGE 9], D [RANGE 9] WHERE A.k = B.k AND B.k = C.k AND C.k = D.k"
)


def staged(cql: str, plan: str | None = None, arriving: dict[str, Route] | None = None) -> Staged:
    return cut(plan_query(parse(cql, CATALOG), plan).physical, arriving)


@pytest.mark.parametrize("plan", ["(((A B) C) D)", "((A B) (C D))", "A: B C D, B: A C D, C: D B A, D: C B A"])
def test_joins_on_one_key_need_one_stage(plan):
    found = staged(ON_ONE_KEY, plan)
    assert found.stages == 1
    assert found.routes == {name: Route(("k",)) for name in "ABCD"}


def test_a_join_on_another_key_needs_an_exchange():
    found = staged("SELECT A.v FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.j = C.j", "((A B) C)")
    assert found.stages == 2
    assert sorted(str(leaf.route) for leaf in found.root.received) == ["Exchange by B.j", "Exchange by C.j"]


def test_what_is_received_is_selected_as_it_was_where_it_comes_from():
    found = staged("SELECT A.v FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.j = C.j AND A.v > 3")
    selections = [Selection.of(leaf) for leaf in found.root.received]
    assert [set(selection.windows) for selection in selections if selection] == [{"A", "B"}, {"C"}]
    assert selections == [Selection.of(leaf.producer) for leaf in found.root.received]


def test_a_group_by_a_join_key_stays_where_it_is():
    grouped = "SELECT A.k, count(*) AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k GROUP BY A.k"
    assert staged(grouped).stages == 1


def test_a_group_by_more_than_the_join_key_stays_where_it_is():
    grouped = "SELECT A.k, A.j, count(*) AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k GROUP BY A.k, A.j"
    assert staged(grouped).stages == 1


def test_a_group_by_another_column_is_exchanged_by_it():
    found = staged("SELECT A.j, count(*) AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k GROUP BY A.j")
    assert [str(leaf.route) for leaf in found.root.received] == ["Exchange by A.j"]


@pytest.mark.parametrize(
    "cql",
    [
        "SELECT count(*) AS n FROM A [RANGE 9]",
        "SELECT k FROM A [ROWS 3]",
        "SELECT A.k FROM A [RANGE 9], B [RANGE 9] WHERE A.v < B.v",
    ],
)
def test_what_must_all_meet_goes_to_one_slot_and_says_so(cql):
    found = staged(cql)
    assert set(found.routes.values()) == {ONE_SLOT}
    assert "one slot" in str(found)


def test_a_key_that_is_cast_is_exchanged_after_it_was_computed():
    found = staged("SELECT A.v FROM A [RANGE 9], B [RANGE 9] WHERE A.small = B.k")
    assert found.stages == 2


def test_a_stream_that_arrives_by_another_key_is_exchanged():
    cql = "SELECT A.v FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"
    found = staged(cql, arriving={"A": Route(("j",))})
    assert found.routes["A"] == Route(("j",))
    assert found.stages == 2


def test_an_outer_join_is_not_placed_by_the_side_it_pads():
    cql = "SELECT B.k, count(*) AS n FROM A [RANGE 9] LEFT JOIN B [RANGE 9] ON A.k = B.k GROUP BY B.k"
    assert staged(cql).stages == 2


def test_selections_stay_below_the_exchange():
    found = staged("SELECT x.k FROM A [RANGE 9] AS x, A [RANGE 5] AS y WHERE x.k = y.j AND x.v > 1")
    assert any(isinstance(f.plan, p.Filter) for f in found.fragments if f.stage == 0)


@pytest.mark.parametrize("seed", range(100))
def test_fragments_of_random_plans_fit_together(seed):
    case = random_case(seed, EVERYTHING)
    question = ask(case.query, case.inputs, time=case.time)
    plan = plan_query(question.plan).physical
    found = cut(plan)
    numbers = [f.number for f in found.fragments]
    assert numbers == list(range(len(numbers)))
    assert found.root.reader is None and found.root.route == STAY
    read = [leaf.fragment for f in found.fragments for leaf in f.received]
    assert sorted(read) == numbers[:-1]
    for f in found.fragments:
        assert all(found.fragment(leaf.fragment).stage < f.stage for leaf in f.received)
        assert not (f.stage > 0 and f.sources)
    aliases = sorted(s.stream.alias for f in found.fragments for s in f.sources)
    assert aliases == sorted(leaf.stream.alias for leaf in leaves(plan))
    assert all(isinstance(leaf, Received) for f in found.fragments if f.stage for leaf in leaves(f.plan))
