"""Queries of several stages whose groups move to two slots while their fragments migrate inside their tasks."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.job.chain import Chain
from tests.job.test_doubled_moves import SPLIT, moved
from tests.job.test_local_plans import many_keys
from tests.job.test_plans_in_stages import PLANS, QUERIES, STRATEGIES, THREE, opened
from tests.profiles import always

import midstream as ms
from midstream.api import ask
from midstream.job.commands.accounts import history_of
from midstream.job.events import MoveCancelled
from midstream.migration import moving_state_paced

JOINED, JOINED_SEEDS = f"SELECT A.v AS a, C.k AS c {THREE}".replace("B.k = C.k", "B.v = C.v"), range(100, 160)
"""The only query here that PTLB can move."""

WANTED = [(slot + 1) % 3 if group % 4 else slot for group, slot in enumerate([g * 3 // 256 for g in range(256)])]


@pytest.fixture
def bit_by_bit(monkeypatch):
    """Has states be moved a few rows at a time."""
    monkeypatch.setattr(moving_state_paced, "LEAST_WORK", 8)
    monkeypatch.setattr(moving_state_paced, "SHARE", 0)


@pytest.mark.parametrize(
    ("name", "verify"), always(2, [("groups", None), ("distinct", 2), ("hops", None), ("global", 2)])
)
def test_fragments_migrate_while_groups_move(name, verify, tmp_path, bit_by_bit):
    query, inputs = QUERIES[name], many_keys(rows=80, last=160)
    chain, both = opened(query, inputs, tmp_path), 0
    for number, part in enumerate(chain.cut(inputs, 12)):
        if number == 4:
            assert chain.driver.rebalance(WANTED, protocol=SPLIT)
        if number == 5:
            target = chain._by_plan("(A (B C))")
            chain.driver.begin_migration("q", target, "moving_state_paced", "a test", verify=verify)
        chain.batch(part)
        under_way = chain.query.migrates or chain.manifest.account("q").verifying is not None
        both += chain.manifest.slots.doubled is not None and under_way
    assert both and list(chain.manifest.slots.routing) == WANTED
    assert chain.query.plan.text == "(A (B C))" and not [name for name in chain.manifest.segments if "~" in name]
    chain.batch({}, end=True)
    assert [record["status"] for record in history_of(chain.driver, chain.query)] == ["done"]
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


@pytest.mark.parametrize("seed", always(4, [9, 13, 21, 123, *JOINED_SEEDS[:2], *range(60), *JOINED_SEEDS[2:]]))
def test_stages_move_and_migrate_at_random_moments(seed, tmp_path, request):
    rng = random.Random(seed)
    if seed % 2:
        request.getfixturevalue("bit_by_bit")
    query = JOINED if seed in JOINED_SEEDS else QUERIES[sorted(QUERIES)[seed % len(QUERIES)]]
    inputs = many_keys(rows=50, last=120, seed=seed % 7)
    chain, log = opened(query, inputs, tmp_path, rng.randint(2, 4)), []
    for part in chain.cut(inputs, rng.choice([5, 9, 16])):
        for _ in range(rng.randint(0, 2)):
            step = rng.choice(["move", "move", "migrate", "migrate", "verify", "local", "cancel", "back", "restart"])
            state, plan, strategy = chain.driver.state, rng.choice(PLANS), rng.choice(STRATEGIES)
            log.append(f"{chain.next_batch}: {step}")
            with suppress(ms.MidstreamError):
                match step:
                    case "move":
                        wanted = moved(state.routing.groups, state.slots, rng, 200)
                        chain.driver.rebalance(wanted, protocol=rng.choice([SPLIT, SPLIT, "ptlb", "mslb"]))
                    case "migrate":
                        chain.migrate(plan, strategy)
                    case "verify":
                        chain.driver.begin_migration("q", chain._by_plan(plan), strategy, "a test", verify=5)
                    case "local":
                        chain.migrate(plan, strategy, slots=[rng.randrange(state.slots)])
                    case "cancel":
                        chain.driver.cancel_migration("q")
                    case "back":
                        chain.driver.apply(MoveCancelled())
                    case "restart" if state.manifest is not None and not state.verifications.by_query:
                        question = ask(query, inputs)
                        chain = Chain(question.plan, question.catalog, tmp_path)
        chain.batch(part)
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), ms.run(query, inputs))
    assert difference, f"{difference}\n{query}\n{log}"
