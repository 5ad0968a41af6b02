"""Random queries whose groups move while their rows go to two slots, with restarts: the results are the same."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.generators import EVERYTHING, random_case
from tests.job.chain import Chain
from tests.job.test_doubled_moves import moved

import midstream as ms
from midstream.api import ask
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import run as run_embedded

CHOSEN = {*range(12), 58}
SEEDS = [seed if seed in CHOSEN else pytest.param(seed, marks=pytest.mark.slow) for seed in range(80)]
"""Number 58 has an ISTREAM inside a plan, whose state was taken for that of the root."""


@pytest.mark.parametrize("seed", SEEDS)
def test_random_queries_give_the_same_while_groups_move(seed, tmp_path):
    case, rng = random_case(seed, EVERYTHING), random.Random(seed)
    question = ask(case.query, case.inputs, time=case.time)
    expected = run_embedded(question.plan, question.tables, question.catalog, FiniteRun())
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2 + seed % 3, seed=seed)
    for part in chain.cut(question.tables, 3 + seed * 7 % 20):
        if rng.random() < 0.15 and chain.driver.manifest is not None:
            chain = Chain(question.plan, question.catalog, tmp_path, seed=seed)
        state = chain.driver.state
        with suppress(ms.MigrationError):
            wanted = moved(state.routing.groups, state.slots, rng, 250)
            chain.driver.rebalance(wanted, protocol=rng.choice(["split_time_balancing", "ptlb", "auto"]))
        chain.batch(part)
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), expected)
    assert difference, f"{difference}\n{chain.query.staged}\n{case.replay()}"
