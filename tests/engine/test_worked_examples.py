"""The papers' examples, through the engine.

CAPE purges by tuples that come, on either side; here the query's least register does. A tuple with several timestamps
is an element whose interval is the intersection of its parts': it ends with the oldest part.
"""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest
from tests.engine import driving
from tests.engine.driving import Drive, Step

import midstream as ms
from midstream.algebra.snapshots import multiset_equal
from midstream.cluster.local.live_query import LiveQuery
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.plans import plan_query

WINDOW = 10
TREES = ["((A B) C)", "(A (B C))", "((A C) B)"]
PLANS = [*TREES, "A: B C, B: A C, C: A B"]
THREE = """SELECT A.ts AS a, B.ts AS b, C.ts AS c FROM A [RANGE 10], B [RANGE 10], C [RANGE 10]
WHERE A.k = B.k AND B.k = C.k AND A.k = C.k"""


def stream(*times: int) -> pa.Table:
    return pa.table({"ts": pa.array(times, pa.int64()), "k": pa.array([1] * len(times), pa.int64())})


class Live:
    """A query over streams A, B and C that is fed tuple by tuple, with registers set by hand."""

    def __init__(self, plan: str, query: str = THREE) -> None:
        relation, catalog = driving.question(query, {name: stream() for name in "ABC"})
        self.query = LiveQuery(plan_query(relation, plan), catalog.functions)
        self.results: list[tuple[int, int]] = []

    def feed(self, name: str, *times: int) -> None:
        rows = driving.one_batch(stream(*times))
        self.query.feed(name, rows, rows.column(0).to_numpy())

    def registers(self, a: int, b: int, c: int) -> None:
        result = self.query.table(self.query.advance({"A": a, "B": b, "C": c}))
        self.results += zip(result["valid_from"].to_pylist(), result["valid_to"].to_pylist(), strict=True)

    def kept(self, aliases: str) -> set[tuple[int, int]]:
        """The intervals of what is alive in the state of a stream or of a join of streams."""
        found: set[tuple[int, int]] = set()
        for state in self.query.execution.states():
            if aliases_of(state) == set(aliases):
                alive = state.alive(self.query.frontier)
                found |= set(zip(alive.valid_from.tolist(), alive.valid_to.tolist(), strict=True))
        return found


def aliases_of(state: SortedState) -> set[str]:
    return {name.partition(".")[0] for name in state.schema.names}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("age", [0, 9, 10, 11, 12])
def test_a_tuple_is_purged_exactly_when_it_is_older_than_the_window(plan: str, age: int) -> None:
    live = Live(plan)
    live.feed("A", 100)
    live.registers(100 + age, 100 + age, 100 + age)
    assert live.kept("A") == ({(100, 111)} if age <= WINDOW else set())


@pytest.mark.parametrize("second", [93, 100, 107])
@pytest.mark.parametrize("register", [101, 104, 105, 110, 111])
def test_a_joined_tuple_is_purged_when_any_of_its_parts_is_older_than_the_window(second: int, register: int) -> None:
    live = Live("((A B) C)")
    live.feed("A", 100)
    live.feed("B", second)
    live.registers(register, register, register)
    purged = register - 100 > WINDOW or register - second > WINDOW
    assert live.kept("AB") == (set() if purged else {(max(100, second), min(100, second) + WINDOW + 1)})


@pytest.mark.parametrize("plan", TREES)
def test_what_the_purging_lemma_lets_go_can_find_no_partner(plan: str) -> None:
    """If the oldest part of one tuple is more than a window after the newest of the other, they do not join."""
    for a, b, c in product((0, 4, 9), (0, 6, 12, 17), (0, 8, 20, 29)):
        inputs = {"A": stream(a), "B": stream(b), "C": stream(c)}
        found = ms.run(THREE, inputs, plan=plan, batch_rows=1)
        far = max(a, b, c) - min(a, b, c) > WINDOW
        assert found.num_rows == (0 if far else 1)


@pytest.mark.parametrize("plan", PLANS)
def test_a_tuple_is_not_purged_by_a_siblings_register_alone(plan: str) -> None:
    """A and B are at 20, C only at 3: what C brings next still meets a at 0 and b at 5."""
    live = Live(plan)
    live.feed("A", 0)
    live.feed("B", 5)
    live.registers(20, 20, 3)
    assert live.kept("A") == {(0, 11)} and live.kept("B") == {(5, 16)}
    live.feed("C", 3)
    live.registers(20, 20, 4)
    live.registers(20, 20, 12)
    assert live.results == [(5, 11)]
    assert live.kept("A") == set() and live.kept("B") == {(5, 16)}


@pytest.mark.parametrize("plan", PLANS)
def test_joined_tuples_need_not_come_in_the_order_of_any_of_their_times(plan: str) -> None:
    """Order of arrival of joined tuples is that of no stream; results still leave in order and none is lost."""
    inputs = {"A": stream(1, 2, 8), "B": stream(2, 7, 7), "C": stream(1, 9, 16)}
    expected = ms.reference(THREE, inputs)
    relation, catalog = driving.question(THREE, inputs)
    behind = (Step({"C": (0, 3)}), Step({"B": (0, 1)}), Step({"A": (0, 3)}), Step({"B": (1, 3)}))
    found = driving.run(Drive(plan_query(relation, plan), behind), inputs, catalog)
    assert multiset_equal(found, expected), str(multiset_equal(found, expected))
    assert found["valid_from"].to_pylist() == sorted(found["valid_from"].to_pylist())


A = pa.table({"ts": [10, 50], "k": ["a", "a"]})
B = pa.table({"ts": [20, 70], "k": ["a", "a"]})
FROM = "FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k"
PUSHED_DOWN = """SELECT A.k FROM (SELECT DISTINCT k FROM A [RANGE 100]) AS A,
(SELECT DISTINCT k FROM B [RANGE 100]) AS B WHERE A.k = B.k"""


def intervals(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table["valid_from"].to_pylist(), table["valid_to"].to_pylist(), strict=True))


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 4])
def test_genmig_example_1(batch_rows: int) -> None:
    inputs = {"A": A, "B": B}
    joined = ms.run(f"SELECT A.k {FROM}", inputs, batch_rows=batch_rows)
    assert intervals(joined) == [(20, 111), (50, 121), (70, 111), (70, 151)]
    once = pa.table({"k": ["a"], "valid_from": [20], "valid_to": [151]})
    for query in (f"SELECT DISTINCT A.k {FROM}", PUSHED_DOWN):
        assert ms.snapshot_equal(ms.run(query, inputs, batch_rows=batch_rows), once)
    entered = ms.run(f"SELECT ISTREAM DISTINCT A.k {FROM}", inputs, batch_rows=batch_rows)
    left = ms.run(f"SELECT DSTREAM DISTINCT A.k {FROM}", inputs, batch_rows=batch_rows)
    assert entered.to_pylist() == [{"k": "a", "ts": 20}] and left.to_pylist() == [{"k": "a", "ts": 151}]


def test_genmig_example_1_duplicate_elimination_gives_each_instant_once_and_early() -> None:
    """In batches of one row, what is given out is the part of each join result that was not covered before."""
    found = ms.run(f"SELECT DISTINCT A.k {FROM}", {"A": A, "B": B}, batch_rows=1)
    assert intervals(found) == [(20, 111), (111, 121), (121, 151)]
