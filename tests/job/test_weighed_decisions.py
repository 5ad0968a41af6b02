"""Plans and groups that are decided about after the same batch: the order that was weighed changes no answer."""

from __future__ import annotations

import random
from collections.abc import Callable
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
from midstream.adaptation.balance import BalanceController, BalancePolicy
from midstream.adaptation.hot_groups import HotController, HotPolicy
from midstream.adaptation.policy import Policy
from midstream.adaptation.weighing import Order, Weighed, weigh
from midstream.api import ask
from midstream.job.batch import Batch
from midstream.job.commands.accounts import decisions_of, history_of
from midstream.job.slots import weighed_moves
from midstream.job.slots.measuring import Measure, Measured
from midstream.job.slots.slot_decisions import SlotDecisions

EAGER = Policy("auto", least_gain=0.01, margin=0.1, evidence=0.0, patience=1, warm_up=3)
ORDERS: tuple[Order, ...] = ("plan", "move", "both")
RESTLESS = BalancePolicy(skewed=1.05, patience=1, gain=1.0, margin=0.0, rest=3, remembered=0.0)


def opened(query: str, inputs: dict[str, Any], folder: Path, slots: int = 2, per_slot: bool = True) -> Chain:
    question, policy = ask(query, inputs), replace(EAGER, per_slot=per_slot)
    chain = Chain(question.plan, question.catalog, folder, slots=slots, plan="((A C) B)", adaptive=policy)
    chain.driver.deciding = SlotDecisions(BalanceController(60.0, RESTLESS), measure=by_rows)
    return chain


def uneven_with_wishes(chain: Chain) -> Measure:
    """Measures that slots are uneven whenever a plan is to change, and else even."""

    def measure(batch: Batch, interval: float) -> Measured:
        wishes = chain.driver.watchers.by_query["q"].wishes
        heavy = 3.0 if wishes.whole is not None or wishes.by_slot else 1.0
        seen = by_rows(batch, interval)
        return replace(seen, groups=tuple(replace(g, seconds=heavy if g.owner == "0" else 1.0) for g in seen.groups))

    return measure


def forced(order: Callable[[], Order]) -> Callable[..., Weighed]:
    """Weighs, and then takes another order."""

    def weighed(*args: Any) -> Weighed:
        found, wanted = weigh(*args), order()
        return replace(found, order=wanted if wanted in found.seconds else "plan", reason=f"Weighed: {wanted}.")

    return weighed


@pytest.mark.parametrize("restart", always(1, [None, 1]))
@pytest.mark.parametrize("order", ORDERS)
def test_the_order_that_was_weighed_holds(order, restart, tmp_path, monkeypatch):
    monkeypatch.setattr(weighed_moves, "weigh", forced(lambda: order))
    inputs = different_slots(120)

    def watched() -> Chain:
        chain = opened(THREE, inputs, tmp_path)
        assert chain.driver.deciding is not None
        chain.driver.deciding.measure = uneven_with_wishes(chain)
        return chain

    chain, since, seen = watched(), None, []
    for part in chain.cut(inputs, 300):
        if since is not None and restart is not None and chain.next_batch == since + restart:
            chain = watched()
        batch = chain.batch(part)
        told = [d for d in chain.manifest.slots.decisions if "weighed" in d]
        since = told[0]["batch"] if told and since is None else since
        seen.append((batch.batch_id, batch.queries["q"].migrates, list(chain.manifest.slots.routing)))
    chain.batch({}, end=True)
    assert since is not None, "never were both decided at once"
    (first,) = [d for d in chain.manifest.slots.decisions if d["batch"] == since and "weighed" in d]
    assert first["weighed"]["order"] == order and first["action"] == ("wait" if order == "plan" else "move")
    assert f"Weighed: {order}." in first["reason"]
    routings = {number: routing for number, _, routing in seen}
    migrated = [number for number, migrates, _ in seen if migrates and number > since]
    moves = [move["batch"] for move in chain.manifest.slots.moves if move["batch"] > since]
    plans = [d for d in decisions_of(chain.driver, "q") if f"Weighed: {order}." in d["reason"]]
    if order == "both":
        assert moves[0] == since + 1
        assert history_of(chain.driver, chain.query)[0]["start_batch"] == since + 1
        assert all(d["action"] == "migrate" for d in plans[:1])
    elif order == "plan":
        assert routings[since + 1] == routings[since] and migrated[:1] in ([], [since + 1])
        assert all(number > since + 1 for number in moves)
        assert f"Weighed: {order}." in history_of(chain.driver, chain.query)[0]["trigger"]
    else:
        assert moves[0] == since + 1 and since + 1 not in migrated
        assert plans and plans[0]["action"] == "wait"
        assert f"Weighed: {order}." in next(m for m in chain.manifest.slots.moves if m["batch"] == since + 1)["trigger"]
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))


@pytest.mark.parametrize("seed", always(2, range(60)))
def test_any_order_gives_the_same_results(seed, tmp_path, monkeypatch):
    draw = random.Random(seed)
    monkeypatch.setattr(weighed_moves, "weigh", forced(lambda: draw.choice(ORDERS)))
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


@pytest.mark.parametrize("order", always(2, ["move", "plan"]))
def test_a_hot_key_and_a_plan_are_weighed_too(order, tmp_path, monkeypatch):
    """A group that slots share rests while a query migrates, so one of the two goes first."""
    monkeypatch.setattr(weighed_moves, "weigh", forced(lambda: order))
    inputs = different_slots(100)

    def uneven(batch: Batch, interval: float) -> Measured:
        seen = by_rows(batch, interval)
        wishes = chain.driver.watchers.by_query["q"].wishes.whole is not None
        hottest = max(range(256), key=lambda group: seen.groups[group].rate)
        groups = [replace(g, seconds=3000.0 if wishes and i == hottest else 1.0) for i, g in enumerate(seen.groups)]
        return replace(seen, groups=tuple(groups))

    chain = opened(THREE, inputs, tmp_path, per_slot=False)
    hot = HotController(HotPolicy(patience=1, gain=1.0, remembered=0.0))
    chain.driver.deciding = SlotDecisions(measure=uneven, hot=hot)
    shared, migrated = [], []
    for part in chain.cut(inputs, 300):
        batch = chain.batch(part)
        shared += [batch.batch_id] if batch.slots.shared else []
        migrated += [batch.batch_id] if batch.queries["q"].migrates else []
    chain.batch({}, end=True)
    told = next(d for d in chain.manifest.slots.decisions if "weighed" in d)
    since, decisions = told["batch"], decisions_of(chain.driver, "q")
    assert told["kind"] == "keys" and set(told["weighed"]["seconds"]) == {"plan", "move"}
    if order == "plan":
        assert told["action"] == "wait" and since + 1 not in shared
        assert any(d["action"] == "migrate" and "Weighed: plan." in d["reason"] for d in decisions)
    else:
        assert told["action"] == "spread" and since + 1 in shared and since + 1 not in migrated
        assert any(d["action"] == "wait" and "Weighed: move." in d["reason"] for d in decisions)
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))
