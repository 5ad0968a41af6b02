"""The balancing protocols with real boxes on simulated machines: exact results whatever happens on the way."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import always
from tests.simulated.balanced_runs import MANAGER, SINK, Balanced

from midstream.lab.papers.partitioned_load_balancing.legality import legal_protocols
from midstream.lab.papers.partitioned_load_balancing.protocols.manager import MoveRequest
from midstream.lab.simulated_cluster import SimulatedLink

PROTOCOLS = ["ptlb", "mslb", "split_time_balancing"]
JOIN = "SELECT A.k, A.v, B.v AS w, C.v AS x FROM A [RANGE 10], B [RANGE 10], C [RANGE 10] WHERE A.k = B.k AND B.k = C.k"
SHAPES: list[str | None] = ["((A B) C)", "(A (B C))", "((A C) B)", "A: B C, B: A C, C: B A"]
KINDS: dict[str, tuple[str, list[str | None]]] = {
    "join": (JOIN, SHAPES),
    "windows": (JOIN.replace("B [RANGE 10]", "B [HOP 8, 4]").replace("A [RANGE 10]", "A [RANGE 4]"), SHAPES),
    "filtered": (f"{JOIN} AND A.v <= B.v", SHAPES),
    "distinct": ("SELECT DISTINCT A.k, B.v FROM A [RANGE 10], B [RANGE 6] WHERE A.k = B.k", ["(A B)", "(B A)"]),
    "aggregate": (
        "SELECT A.k, count(*) AS n, sum(B.v) AS s FROM A [RANGE 10], B [RANGE 10], C [RANGE 10] "
        "WHERE A.k = B.k AND B.k = C.k GROUP BY A.k",
        SHAPES[:3],
    ),
    "difference": ("SELECT k FROM A [RANGE 10] EXCEPT ALL SELECT k FROM B [RANGE 6]", [None]),
    "outer": ("SELECT A.k, A.v, B.v AS w FROM A [RANGE 10] LEFT JOIN B [RANGE 6] ON A.k = B.k", [None]),
    "anti": ("SELECT A.k, A.v FROM A [RANGE 10] ANTI JOIN B [RANGE 6] ON A.k = B.k", [None]),
    "sequence": ("SELECT A.k, A.v, B.v AS w FROM A FOLLOWED BY B ON A.k = B.k WITHIN 9", [None]),
    "all pairs": ("SELECT A.k, A.v, B.v AS w FROM A FOLLOWED BY B ALL ON A.k = B.k WITHIN 9", [None]),
    "chronicle": ("SELECT A.k, A.v, B.v AS w FROM A FOLLOWED BY B CHRONICLE ON A.k = B.k WITHIN 9", [None]),
    "rows": ("SELECT A.k, A.v, B.v AS w FROM A [PARTITION BY k ROWS 2], B [RANGE 5] WHERE A.k = B.k", [None]),
    "unbounded": ("SELECT A.k, A.v, B.v AS w FROM A [UNBOUNDED], B [RANGE 5] WHERE A.k = B.k", ["(A B)", "(B A)"]),
    "istream": ("SELECT ISTREAM A.k, B.v FROM A [RANGE 10], B [RANGE 6] WHERE A.k = B.k", ["(A B)", "(B A)"]),
    "dstream": ("SELECT DSTREAM A.k, B.v FROM A [RANGE 10], B [RANGE 6] WHERE A.k = B.k", ["(A B)", "(B A)"]),
}


def streams(seed: int, names: str = "ABC", rows: int = 50, end: int = 80, keys: int = 8) -> dict[str, pa.Table]:
    rng = random.Random(seed)
    tables = {}
    for name in names:
        times = sorted(rng.randint(0, end) for _ in range(rows))
        columns = {"ts": times, "k": [rng.randint(0, keys - 1) for _ in times], "v": [rng.randint(0, 2) for _ in times]}
        tables[name] = pa.table({n: pa.array(column, pa.int64()) for n, column in columns.items()})
    return tables


def legal(run: Balanced) -> list[str]:
    first, *rest = [plan.physical for plan in [*run.plans, *run.later]]
    allowed = set(legal_protocols(first, first))
    for plan in rest:
        allowed &= set(legal_protocols(first, plan)) & set(legal_protocols(plan, first))
    return [name for name in PROTOCOLS if name in allowed]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_moves_between_machines_with_different_plans(protocol):
    run = Balanced(JOIN, streams(1), ["((A B) C)", "(A (B C))"])
    run.move(30, MoveRequest(protocol, "p0", "p1", groups=(0, 2)))
    run.run()
    assert run.manager.owners == ("p1", "p1", "p1", "p1", "p0", "p1")
    assert run.check_result().num_rows > 50


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_sender_chooses_groups_near_an_amount(protocol):
    run = Balanced(JOIN, streams(2), ["((A B) C)", "(A (B C))"])
    run.move(40, MoveRequest(protocol, "p0", "p1", amount=12))
    run.run()
    moved = [g for g, owner in enumerate(run.manager.owners) if owner == "p1" and g % 2 == 0]
    assert 0 < len(moved) < 3
    run.check_result()


@pytest.mark.parametrize("kind", always(8, KINDS))
def test_every_legal_protocol_is_exact_for_every_kind_of_operator(kind):
    query, shapes = KINDS[kind]
    for seed in range(2):
        pair = [shapes[seed % len(shapes)], shapes[(seed + 1) % len(shapes)]]
        for protocol in legal(Balanced(query, streams(seed), pair)):
            run = Balanced(query, streams(seed), pair, seed=seed)
            run.move(28, MoveRequest(protocol, "p0", "p1", groups=(0, 2, 4)))
            run.move(30, MoveRequest(protocol, "p1", "p0", groups=(1,)))
            run.run()
            assert run.manager.owners == ("p1", "p0", "p1", "p1", "p1", "p1")
            assert run.check_result().num_rows > 10


LINKS = st.builds(
    SimulatedLink,
    latency=st.sampled_from([0.0, 1.0, 7.0]),
    jitter=st.sampled_from([0.0, 3.0, 30.0]),
    loss=st.sampled_from([0.0, 0.1, 0.3]),
    duplication=st.sampled_from([0.0, 0.3]),
    reordering=st.sampled_from([0.0, 0.5]),
)


@st.composite
def troubled(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(KINDS)) -> tuple[Balanced, list[str]]:
    """A run with random moves, local migrations, faults and crashes, and what happens in it."""
    query, shapes = KINDS[draw(st.sampled_from(kinds))]
    machines = draw(st.integers(2, 3))
    plans = draw(st.lists(st.sampled_from(shapes), min_size=machines, max_size=machines))
    run = Balanced(
        query,
        streams(draw(st.integers(0, 1000)), rows=draw(st.sampled_from([12, 40])), keys=draw(st.sampled_from([3, 8]))),
        plans,
        groups=draw(st.sampled_from([3, 6])),
        seed=draw(st.integers(0, 10_000)),
        link=draw(LINKS),
        splits=draw(st.integers(1, 3)),
        step=draw(st.sampled_from([2, 5])),
        others=shapes,
    )
    told = [f"{query} on {plans}, {run.link}"]
    moments = st.floats(0, 110)
    protocols = legal(run)
    for _ in range(draw(st.integers(1, 4)) if protocols else 0):
        at, sender = draw(moments), draw(st.sampled_from(run.processors))
        receiver = draw(st.sampled_from([p for p in run.processors if p != sender]))
        groups = draw(st.lists(st.integers(0, run.groups - 1), max_size=3, unique=True))
        request = MoveRequest(
            draw(st.sampled_from(protocols)), sender, receiver, draw(st.sampled_from([5, 50])), tuple(groups)
        )
        run.move(at, request)
        told.append(f"{at}: {request}")
    for _ in range(draw(st.integers(0, 3))):
        at, down = draw(moments), draw(st.floats(1, 60))
        name = draw(st.sampled_from([MANAGER, SINK, *run.split_names, *run.processors]))
        run.crash(name, at, down)
        told.append(f"{at}: {name} is down for {down}")
    for _ in range(draw(st.integers(0, 2))):
        at, name, plan = draw(moments), draw(st.sampled_from(run.processors)), draw(st.sampled_from(run.later))
        run.change_plan(at, name, plan)
        told.append(f"{at}: {name} changes to {plan.text}")
    return run, told


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(troubled())
def test_nothing_is_lost_doubled_or_out_of_order_and_every_move_ends(case):
    run, told = case
    try:
        run.run()
        run.check_result()
    except AssertionError:
        print("\n".join(told))
        raise


@pytest.mark.slow
@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(troubled())
def test_nothing_is_lost_doubled_or_out_of_order_in_many_runs(case):
    run, told = case
    try:
        run.run()
        run.check_result()
    except AssertionError:
        print("\n".join(told))
        raise
