"""Plans, slots and times of a query change in any order, several at once, and its snapshots stay as the oracle says."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.spreading import GroupBroughtHome
from tests.job.test_chain import GROUPS, STAGES, THREE
from tests.job.test_doubled_moves import SPLIT, moved
from tests.job.test_local_plans import many_keys
from tests.job.test_spread_groups import spread
from tests.profiles import always

import midstream as ms
from midstream.api import ask
from midstream.job.events import MoveCancelled
from midstream.job.task.lanes import Region
from midstream.migration import moving_state_paced
from midstream.operators.elements import Elements

TEXTS = {
    "three": THREE,
    "groups": GROUPS,
    "stages": STAGES,
    "pairs": "SELECT A.v AS a, C.k AS c FROM A [RANGE 20], B [RANGE 12], C [RANGE 20] WHERE A.k = B.k AND B.v = C.v",
    "counted": "SELECT C.k, count(*) AS n FROM A [RANGE 20], B [RANGE 20], C [RANGE 9] WHERE A.k = B.k AND B.v = C.v "
    "GROUP BY C.k",
    "united": "SELECT A.v FROM A [RANGE 20], B [RANGE 20], C [RANGE 9] WHERE A.k = B.k AND B.v = C.v "
    "UNION ALL SELECT C.v FROM C [RANGE 5]",
    "hops": "SELECT A.v, count(*) AS n FROM A [HOP 12, 4], B [HOP 12, 4], C [HOP 12, 4] WHERE A.k = B.k AND B.v = C.v "
    "GROUP BY A.v",
}
PLANS = ("((A B) C)", "(A (B C))", "((A C) B)")
STRATEGIES = ("genmig", "genmig", "genmig_reference_point", "moving_state", "moving_state_paced", "auto")
STEPS = (
    *("move", "move", "migrate", "migrate", "migrate", "rescale", "verify", "local"),
    *("cancel", "back", "restart", "spread", "spread", "home"),
)


@pytest.mark.parametrize("seed", always(8, range(400)))
def test_whatever_changes_no_snapshot_does(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    if seed % 2:
        monkeypatch.setattr(moving_state_paced, "LEAST_WORK", 8)
        monkeypatch.setattr(moving_state_paced, "SHARE", 0)
    name = sorted(TEXTS)[seed % len(TEXTS)]
    query, inputs = TEXTS[name], many_keys(rows=50, last=120, seed=seed % 11)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=rng.randint(2, 4), plan=rng.choice(PLANS[:2]))
    log = []
    for part in chain.cut(question.tables, rng.choice([5, 9, 16])):
        for _ in range(rng.randint(0, 2)):
            step = rng.choice(STEPS)
            state, plan, strategy = chain.driver.state, rng.choice(PLANS), rng.choice(STRATEGIES)
            wanted = moved(state.routing.groups, state.slots, rng, 200)
            protocol = rng.choice([SPLIT, SPLIT, "ptlb", "mslb"])
            log.append(f"{chain.next_batch}: {step} {plan} {strategy} {protocol}")
            with suppress(ms.MidstreamError):
                match step:
                    case "move":
                        chain.driver.rebalance(wanted, protocol=protocol)
                    case "rescale":
                        chain.driver.rescale(rng.randint(2, 4))
                    case "migrate":
                        chain.migrate(plan, strategy)
                    case "verify":
                        chain.driver.begin_migration("q", chain._by_plan(plan), strategy, "a test", verify=5)
                    case "local":
                        chain.migrate(plan, strategy, slots=[rng.randrange(state.slots)])
                    case "cancel":
                        chain.driver.cancel_migration("q")
                    case "spread":
                        spread(chain, rng.randrange(256), rng.randint(2, 3), rng.choice("ABC"))
                    case "home":
                        for group in list(state.spread.groups):
                            chain.driver.apply(GroupBroughtHome(group))
                    case "back":
                        chain.driver.apply(MoveCancelled())
                    case "restart" if state.manifest is not None and state.manifest.account("q").verifying is None:
                        chain = Chain(question.plan, question.catalog, tmp_path)
        chain.batch(part)
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), ms.reference(query, inputs))
    assert difference, f"{difference}\n{query}\n{log}"


def test_regions_that_partition_time_give_every_result_once():
    start, end = np.array([5, 9, 10, 15, 20]), np.array([12, 25, 30, 18, 21])
    results = Elements(pa.RecordBatch.from_pydict({"n": start}), start, end)

    def given(whole):
        regions = [Region(until=10, whole=whole), Region(10, 20, whole), Region(since=20, whole=whole)]
        return [
            list(zip(c.valid_from.tolist(), c.valid_to.tolist(), strict=True))
            for c in (region.clipped(results) for region in regions)
        ]

    assert given(True) == [[(5, 12), (9, 25)], [(10, 30), (15, 18)], [(20, 21)]]
    assert given(False) == [
        [(5, 10), (9, 10)],
        [(10, 12), (10, 20), (10, 20), (15, 18)],
        [(20, 25), (20, 30), (20, 21)],
    ]


def test_a_shared_group_stays_shared_while_plans_change_side_by_side(tmp_path):
    query = "SELECT A.v AS a, C.v AS c FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.v = C.v"
    inputs = many_keys(rows=60, last=160)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    shared = 0
    for number, part in enumerate(chain.cut(question.tables, 12)):
        if number == 2:
            spread(chain, 17, 3)
        if number == 4:
            chain.migrate("(A (B C))", "genmig")
        chain.batch(part)
        shared += (chain.manifest.account("q").plans.migration is not None) and bool(chain.manifest.slots.shared)
    chain.batch({}, end=True)
    assert shared and chain.query.plan.text == "(A (B C))"
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))
