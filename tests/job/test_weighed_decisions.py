"""Plans and groups that are decided about after the same batch: plans go first, and groups as plans will leave them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.job.chain import Chain
from tests.job.test_chain import THREE, as_multiset
from tests.job.test_local_plans import QUERIES, different_slots, many_keys
from tests.job.test_moving import by_rows
from tests.profiles import always

import midstream as ms
from midstream.adaptation.decider import Caution
from midstream.adaptation.group_moves import BalancePolicy
from midstream.adaptation.hot_groups import HotPolicy
from midstream.adaptation.policy import Policy
from midstream.api import ask
from midstream.job.batch import Batch
from midstream.job.commands.accounts import decisions_of, history_of
from midstream.job.slots.measuring import DecidedPlanChange, Measure, Measured, PlansDecided
from midstream.job.slots.slot_decisions import SlotDecisions

EAGER = Policy("auto", least_gain=0.01, margin=0.1, evidence=0.0, patience=1, warm_up=3)
RESTLESS = BalancePolicy(skewed=1.05, gain=1.0, caution=Caution(1, 0.0, rest=3))


def opened(query: str, inputs: dict[str, Any], folder: Path, slots: int = 2, per_slot: bool = True) -> Chain:
    question, policy = ask(query, inputs), replace(EAGER, per_slot=per_slot)
    chain = Chain(question.plan, question.catalog, folder, slots=slots, plan="((A C) B)", adaptive=policy)
    chain.driver.deciding = SlotDecisions(RESTLESS, measure=by_rows, smoothed=0.0)
    return chain


def wishing(chain: Chain) -> bool:
    watcher = chain.driver.watchers.by_query["q"]
    return watcher.wish is not None or bool(watcher.slot_wishes)


def uneven_with_wishes(chain: Chain) -> Measure:
    """Measures that slots are uneven whenever a plan is to change, and else even."""

    def measure(batch: Batch, interval: float) -> Measured:
        seen, heavy = by_rows(batch, interval), 3.0 if wishing(chain) else 1.0
        return replace(seen, groups=tuple(replace(g, seconds=heavy if g.owner == 0 else 1.0) for g in seen.groups))

    return measure


@pytest.mark.parametrize("restart", always(1, [None, 1]))
@pytest.mark.parametrize("per_slot", [True, False])
def test_a_plan_and_the_move_that_still_pays_begin_at_once(per_slot, restart, tmp_path):
    inputs = different_slots(120)

    def watched() -> Chain:
        chain = opened(THREE, inputs, tmp_path, per_slot=per_slot)
        assert chain.driver.deciding is not None
        chain.driver.deciding = replace(chain.driver.deciding, measure=uneven_with_wishes(chain))
        return chain

    chain, since = watched(), None
    for part in chain.cut(inputs, 300):
        if since is not None and restart is not None and chain.next_batch == since + restart:
            chain = watched()
        batch = chain.batch(part)
        moved = chain.manifest.slots.decisions[-1]["action"] == "move" if chain.manifest.slots.decisions else False
        since = batch.batch_id if since is None and wishing(chain) and moved else since
    chain.batch({}, end=True)
    assert since is not None, "never were both decided at once"
    (made,) = [d for d in chain.manifest.slots.decisions if d["batch"] == since and d["action"] == "move"]
    assert "as another plan for query q" in made["reason"]
    assert [move["trigger"] for move in chain.manifest.slots.moves if move["batch"] == since + 1] == [made["reason"]]
    assert since + 1 in [record["start_batch"] for record in history_of(chain.driver, chain.query)]
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))


def test_a_plan_that_takes_the_imbalance_away_leaves_nothing_to_move(tmp_path):
    inputs = different_slots(60)
    chain = opened(THREE, inputs, tmp_path, per_slot=False)
    chain.driver.deciding = None
    for part in chain.cut(inputs, 300):
        batch = chain.batch(part)
    seen = by_rows(batch, 1.0)
    uneven = replace(seen, groups=tuple(replace(g, seconds=3.0 if g.owner == 0 else 1.0) for g in seen.groups))
    for ratio, moves in [(1.0, True), (1 / 3, False)]:
        decisions = SlotDecisions(RESTLESS, measure=lambda batch, interval: uneven, smoothed=0.0)
        plans = PlansDecided([DecidedPlanChange("q", 0, ratio)])
        assert (decisions.after(batch, 1.0, plans=plans).routing is not None) == moves
    decisions = SlotDecisions(RESTLESS, measure=lambda batch, interval: uneven, smoothed=0.0)
    waits = PlansDecided(
        [DecidedPlanChange("q", None, 0.5)], lambda protocol: "The plan of query q changes first: why."
    )
    found = decisions.after(batch, 1.0, plans=waits)
    assert found.routing is None and found.decisions[-1]["reason"].endswith(
        "The plan of query q changes first: why. Staying."
    )


@pytest.mark.parametrize("seed", always(2, range(60)))
def test_whatever_begins_at_once_the_results_are_the_same(seed, tmp_path):
    draw = random.Random(seed)
    query = QUERIES[sorted(QUERIES)[seed % len(QUERIES)]]
    inputs, slots, per_slot = many_keys(seed=seed), draw.randint(2, 4), draw.random() < 0.6
    chain = opened(query, inputs, tmp_path, slots, per_slot)
    for part in chain.cut(inputs, draw.randint(10, 25)):
        if draw.random() < 0.15 and chain.driver.manifest is not None:
            chain = opened(query, inputs, tmp_path, slots, per_slot)
        chain.batch(part)
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), ms.reference(query, inputs))
    assert difference, f"{difference}\n{chain.manifest.slots.decisions}"


def test_a_hot_key_waits_for_a_plan(tmp_path):
    """A group that slots share rests while a query migrates, so the plan goes first."""
    inputs = different_slots(100)

    def uneven(batch: Batch, interval: float) -> Measured:
        seen = by_rows(batch, interval)
        hottest = max(range(256), key=lambda group: seen.groups[group].rate)
        groups = [replace(g, seconds=3000.0 if i == hottest else 1.0) for i, g in enumerate(seen.groups)]
        return replace(seen, groups=tuple(groups))

    chain = opened(THREE, inputs, tmp_path, per_slot=False)
    hot = HotPolicy(gain=1.0, caution=Caution(99))
    chain.driver.deciding = SlotDecisions(hot=hot, measure=uneven, smoothed=0.0)
    shared, since = [], None
    for part in chain.cut(inputs, 300):
        batch = chain.batch(part)
        shared += [batch.batch_id] if batch.slots.shared else []
        if wishing(chain) and since is None:
            since, told = batch.batch_id, chain.manifest.slots.decisions[-1]
            chain.driver.deciding = replace(chain.driver.deciding, hot=replace(hot, caution=Caution(1)))
    chain.batch({}, end=True)
    assert since is not None and told["kind"] == "keys" and told["action"] == "stay"
    assert "The plan of query q changes first: slots share no group while a query migrates." in told["reason"]
    assert shared and min(shared) > since + 1
    assert any(d["action"] == "migrate" for d in decisions_of(chain.driver, "q"))
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))
