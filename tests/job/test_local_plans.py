"""Slots of one query that run by different plans: whatever runs where, migrates and moves, results are the same."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.test_chain import GROUPS, KEYS, THREE, as_multiset, tables
from tests.profiles import always, mixed

import midstream as ms
from midstream.adaptation.policy import Policy
from midstream.api import ask
from midstream.job.commands.accounts import decisions_of, history_of
from midstream.job.plans.local_plans import plans_by_slot
from midstream.job.task.exchange import default_routing, groups_of
from midstream.operators.group_hash import group_hash

ROWS = THREE.replace("A [RANGE 20]", "A [PARTITION BY k ROWS 3]")
DISTINCT = THREE.replace("SELECT A.v AS a, B.v AS b, C.v AS c", "SELECT DISTINCT A.k AS k")
ENTERED = THREE.replace("SELECT", "SELECT ISTREAM")
LEFT = THREE.replace("SELECT", "SELECT DSTREAM")
FOR_EVER = THREE.replace("A [RANGE 20]", "A [UNBOUNDED]")
HOPS = GROUPS.replace("C [RANGE 20]", "C [HOP 20, 5]")
QUERIES = {
    "join": THREE,
    "groups": GROUPS,
    "rows": ROWS,
    "distinct": DISTINCT,
    "istream": ENTERED,
    "dstream": LEFT,
    "unbounded": FOR_EVER,
    "hops": HOPS,
}
PLANS = ("((A B) C)", "(A (B C))", "((A C) B)")
STRATEGIES = ("auto", "moving_state", "moving_state_paced", "genmig")


def many_keys(rows: int = 90, last: int = 150, seed: int = 4) -> dict[str, pa.Table]:
    made = tables(rows, last, seed)
    keys = np.random.default_rng(seed)
    return {name: table.set_column(0, "k", pa.array(keys.integers(0, 14, rows))) for name, table in made.items()}


def opened(query: str, inputs: dict[str, pa.Table], folder: Path, slots: int = 3) -> Chain:
    question = ask(query, inputs)
    return Chain(question.plan, question.catalog, folder, slots=slots, plan="((A B) C)")


def texts(chain: Chain) -> list[str]:
    return [plan.text for plan in plans_by_slot(chain.query, chain.driver.state.slots).values()]


@pytest.mark.parametrize(
    ("strategy", "name"), always(len(STRATEGIES), mixed([*STRATEGIES], ["join", "groups", "rows"]))
)
def test_one_slot_goes_over_to_a_plan_of_its_own(name, strategy, tmp_path):
    query, inputs = QUERIES[name], many_keys()
    chain = opened(query, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 20)):
        if i == 3:
            chain.migrate("(A (B C))", strategy, "smallest", slots=[1])
        chain.batch(part)
    assert texts(chain) == ["((A B) C)", "(A (B C))", "((A B) C)"]
    assert chain.manifest.queries["q"].plan == "((A B) C)"
    chain.batch({}, end=True)
    (record,) = history_of(chain.driver, chain.query)
    assert (record["slots"], record["status"], record["new_plan"]) == ([1], "done", "(A (B C))")
    assert ms.snapshot_equal(chain.results(), ms.run(query, inputs))
    if name == "join":
        assert as_multiset(chain.results()) == as_multiset(ms.run(query, inputs))


def test_a_plan_that_all_slots_have_come_to_is_the_plan_of_the_query(tmp_path):
    inputs = many_keys()
    chain = opened(THREE, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 15)):
        if i in (2, 5, 8):
            chain.migrate("(A (B C))", "moving_state", slots=[i // 3])
        chain.batch(part)
    assert chain.query.plan.text == "(A (B C))"
    assert chain.query.local == {}
    assert chain.manifest.queries["q"].plan == "(A (B C))"
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.run(THREE, inputs))


def test_all_slots_come_to_one_plan_again(tmp_path):
    inputs = many_keys()
    chain = opened(THREE, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 15)):
        if i == 2:
            chain.migrate("(A (B C))", "genmig", slots=[0, 2])
        if i == 9:
            chain.migrate("((A C) B)", "moving_state")
        chain.batch(part)
    assert chain.query.plan.text == "((A C) B)"
    assert chain.query.local == {}
    chain.batch({}, end=True)
    assert [record["slots"] for record in history_of(chain.driver, chain.query)] == [[0], [2], [0], [1], [2]]
    assert ms.snapshot_equal(chain.results(), ms.run(THREE, inputs))


def test_a_migration_of_one_slot_is_cancelled(tmp_path):
    inputs = many_keys()
    chain = opened(THREE, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 10)):
        if i == 4:
            chain.migrate("(A (B C))", "genmig", slots=[1])
        if i == 6:
            chain.driver.cancel_migration("q")
        chain.batch(part)
    assert texts(chain) == ["((A B) C)"] * 3
    chain.batch({}, end=True)
    (record,) = history_of(chain.driver, chain.query)
    assert (record["slots"], record["status"]) == ([1], "cancelled")
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))


@pytest.mark.parametrize("slots", [[], [3], [-1], ["1"]])
def test_slots_that_are_not_there_are_refused(slots, tmp_path):
    chain = opened(THREE, many_keys(), tmp_path)
    with pytest.raises(ms.MigrationError, match="cannot migrate in slots") as refused:
        chain.migrate("(A (B C))", "auto", slots=slots)
    assert refused.value.detail == "the slots are 0 to 2"


def test_a_slot_that_migrates_is_not_sent_elsewhere(tmp_path):
    inputs = many_keys()
    chain = opened(THREE, inputs, tmp_path)
    chain.batch(chain.cut(inputs, 30)[0])
    chain.migrate("(A (B C))", "genmig", slots=[1])
    with pytest.raises(ms.MigrationError, match="is migrating already in slot 1"):
        chain.migrate("((A C) B)", "genmig", slots=[0, 1])
    assert chain.query.in_slot(0).migration is None


def test_plans_of_different_stages_are_the_same_in_all_slots(tmp_path):
    chain = opened(KEYS, many_keys(), tmp_path)
    with pytest.raises(ms.MigrationError, match="different stages"):
        chain.migrate("(A (B C))", "auto", slots=[1])


@pytest.mark.parametrize("seed", always(2, range(64)))
def test_random_plans_per_slot_moves_rescales_and_restarts(seed, tmp_path):
    draw = random.Random(seed)
    name = sorted(QUERIES)[seed % len(QUERIES)]
    query, inputs = QUERIES[name], many_keys(seed=seed)
    chain = opened(query, inputs, tmp_path, slots=draw.randint(1, 4))
    parts = chain.cut(inputs, draw.randint(8, 25))
    question, done = ask(query, inputs), []
    for part in parts:
        event = draw.choice(["migrate", "migrate", "move", "rescale", "restart", "nothing"])
        if event == "migrate":
            free = [s for s in range(chain.driver.state.slots) if chain.query.in_slot(s).migration is None]
            slots = draw.sample(free, draw.randint(0, len(free)))
            plan, strategy = draw.choice(PLANS), draw.choice(STRATEGIES)
            try:
                chain.migrate(plan, strategy, "smallest", slots=slots)
            except ms.MigrationError as refused:
                done.append(str(refused))
        elif event == "move":
            with suppress(ms.JobError):  # a rescale may be waiting for migrations
                chain.driver.rebalance([draw.randrange(chain.driver.state.slots) for _ in default_routing(1)])
        elif event == "rescale":
            with suppress(ms.JobError):
                chain.driver.rescale(draw.randint(1, 4))
        elif event == "restart":
            chain = Chain(question.plan, question.catalog, tmp_path, slots=chain.driver.state.slots, plan="((A B) C)")
        done.append(event)
        chain.batch(part)
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), ms.reference(query, inputs))
    assert difference, f"{difference}\n{done}"


def different_slots(last: int = 400) -> dict[str, pa.Table]:
    """Streams of which the keys of one slot are rare in A and frequent in C, those of the other the reverse."""
    keys = np.arange(400)
    owner = np.asarray(default_routing(2))[groups_of(group_hash([pa.array(keys)]), 256)]
    own = {slot: keys[owner == slot] for slot in (0, 1)}
    drawn = np.random.default_rng(3)

    def table(rates: tuple[int, int]) -> pa.Table:
        parts = [
            (drawn.choice(own[slot], rate * last), np.sort(drawn.integers(0, last, rate * last)))
            for slot, rate in enumerate(rates)
        ]
        k, ts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(ts, kind="stable")
        return pa.table({"k": k[order], "v": drawn.integers(0, 30, len(k)), "ts": ts[order]})

    return {"A": table((1, 12)), "B": table((4, 4)), "C": table((12, 1))}


@pytest.mark.parametrize("restart", [None, 9])
def test_slots_choose_their_plans_by_what_they_see_themselves(restart, tmp_path):
    inputs = different_slots()
    policy = Policy("auto", least_gain=0.01, margin=0.1, evidence=0.0, patience=1, warm_up=2, per_slot=True)
    question = ask(THREE, inputs)

    def chained() -> Chain:
        return Chain(question.plan, question.catalog, tmp_path, slots=2, plan="((A C) B)", adaptive=policy)

    chain = chained()
    for i, part in enumerate(chain.cut(inputs, 500)):
        chain = chained() if i == restart else chain
        chain.batch(part)
    first, second = texts(chain)
    assert first != second
    reasons = [record["trigger"] for record in history_of(chain.driver, chain.query) if record["status"] == "done"]
    assert reasons and all(reason.startswith("In slot ") for reason in reasons)
    assert any(told["reason"].startswith("In slot ") for told in decisions_of(chain.driver, "q"))
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))


AT_ONCE = ("parallel_track", "genmig_reference_point", "genmig", "moving_state_paced")


@pytest.mark.parametrize("strategy", AT_ONCE)
@pytest.mark.parametrize("change", always(1, ["move", "more", "fewer"]))
@pytest.mark.parametrize("ending", ["done", pytest.param("cancelled", marks=pytest.mark.slow)])
def test_groups_move_while_their_slots_migrate(strategy, change, ending, tmp_path):
    inputs = many_keys()
    chain = opened(THREE, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 12)):
        if i == 4:
            chain.migrate("(A (B C))", strategy)
        if i == 5 and change == "move":
            chain.driver.rebalance([(group // 16) % 3 for group in range(256)])
        elif i == 5:
            chain.driver.rescale(5 if change == "more" else 2)
        if i == 6 and ending == "cancelled" and chain.query.migration is not None:
            chain.driver.cancel_migration("q")
        chain.batch(part)
    chain.batch({}, end=True)
    (record,), (move,) = history_of(chain.driver, chain.query), chain.manifest.slots.moves
    assert record["status"] == ending or strategy == "moving_state_paced"
    if strategy in ("parallel_track", "genmig_reference_point"):
        assert record["start_batch"] < move["batch"] <= record["end_batch"]
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))


def test_a_migration_of_some_slots_waits_for_a_move_to_others_or_the_reverse(tmp_path):
    """Only slots that migrate in the same way can go on with each other's states."""
    inputs = many_keys()
    chain = opened(THREE, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 12)):
        if i == 4:
            chain.migrate("(A (B C))", "parallel_track", slots=[1])
            chain.driver.rebalance([2 if slot == 0 else slot for slot in chain.manifest.slots.routing])
        chain.batch(part)
        if i == 4:  # both begin with the same batch: what is moved is not under way yet
            assert [move["batch"] for move in chain.manifest.slots.moves] == [4]
            chain.driver.rebalance([1 if slot == 2 else slot for slot in chain.manifest.slots.routing])
    chain.batch({}, end=True)
    (record,) = history_of(chain.driver, chain.query)
    assert chain.manifest.slots.moves[-1]["batch"] > record["end_batch"]
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))
