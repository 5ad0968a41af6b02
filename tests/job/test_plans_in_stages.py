"""Plans in the same stages: a fragment may run by another plan in some slots, and migrates inside its tasks."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.staged_queries import draw_query
from tests.job.test_chain import KEYS, tables
from tests.job.test_local_plans import different_slots, many_keys, texts
from tests.profiles import always, mixed

import midstream as ms
from midstream.adaptation.policy import Policy
from midstream.api import ask
from midstream.distribution.alignment import differing_fragments
from midstream.distribution.stages import cut
from midstream.job.commands.accounts import decisions_of, history_of
from midstream.job.plans.local_plans import require_seen
from midstream.job.task.lanes import TARGET
from midstream.migration import moving_state_paced
from midstream.optimizer.plans import plan_query

THREE = "FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
QUERIES = {
    "groups": f"SELECT A.v, count(*) AS n {THREE} GROUP BY A.v",
    "distinct": f"SELECT DISTINCT A.v, C.v AS w {THREE}",
    "global": f"SELECT count(*) AS n, max(A.v) AS m {THREE}",
    "rows": f"SELECT A.v, count(*) AS n {THREE} GROUP BY A.v".replace("A [RANGE 20]", "A [PARTITION BY k ROWS 3]"),
    "istream": f"SELECT ISTREAM A.v AS a, C.v AS c {THREE}",
    "unbounded": f"SELECT B.v, sum(A.v) AS n {THREE} GROUP BY B.v".replace("B [RANGE 20]", "B [UNBOUNDED]"),
    "hops": f"SELECT A.v, count(*) AS n {THREE} GROUP BY A.v".replace("RANGE 20", "HOP 20, 5"),
}
PLANS = ("((A B) C)", "(A (B C))", "((A C) B)")
STRATEGIES = ("auto", "moving_state", "moving_state_paced")


def opened(query: str, inputs: dict[str, pa.Table], folder: Path, slots: int = 3) -> Chain:
    question = ask(query, inputs)
    return Chain(question.plan, question.catalog, folder, slots=slots, plan="((A B) C)")


def stages_of(query: str, plan: str):
    return cut(plan_query(ask(query, tables()).plan, plan).physical)


def test_plans_that_differ_inside_a_fragment_are_in_the_same_stages():
    query = QUERIES["groups"]
    first, second = (stages_of(query, plan) for plan in PLANS[:2])
    assert first.stages == 2
    assert differing_fragments(first, second) == (0,)
    assert differing_fragments(first, first) == ()


@pytest.mark.parametrize(
    ("query", "plan"),
    [
        (KEYS, "(A (B C))"),
        (QUERIES["groups"], "((A B) C/grouped)"),
        (QUERIES["groups"], "A -> B -> C, B -> A -> C, C -> A -> B"),
    ],
)
def test_plans_that_send_something_else_are_not(query, plan):
    assert differing_fragments(stages_of(query, "((A B) C)"), stages_of(query, plan)) is None


@pytest.mark.parametrize(("name", "strategy"), always(7, mixed([*QUERIES], STRATEGIES)))
def test_one_slot_of_a_query_of_several_stages_has_a_plan_of_its_own(name, strategy, tmp_path):
    query, inputs = QUERIES[name], many_keys(rows=60, last=100)
    chain = opened(query, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 20)):
        if i == 3:
            chain.migrate("(A (B C))", strategy, slots=[1])
        chain.batch(part)
    assert chain.query.staged.stages == 2
    assert texts(chain) == ["((A B) C)", "(A (B C))", "((A B) C)"]
    chain.batch({}, end=True)
    (record,) = history_of(chain.driver, chain.query)
    assert (record["slots"], record["status"], record["new_plan"]) == ([1], "done", "(A (B C))")
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


@pytest.mark.parametrize("plan", ["((A B) C/grouped)", "A -> B -> C, B -> A -> C, C -> A -> B"])
def test_a_slot_cannot_run_by_a_plan_of_other_stages(plan, tmp_path):
    chain = opened(QUERIES["groups"], many_keys(), tmp_path)
    chain.batch({})
    with pytest.raises(ms.MigrationError, match="different stages, or need rows in other slots") as refused:
        chain.migrate(plan, "auto", slots=[1])
    assert refused.value.hint == "migrate all slots at once"


@pytest.mark.parametrize("strategy", ["genmig", "parallel_track"])
def test_strategies_that_later_stages_would_notice_are_refused_in_a_slot(strategy, tmp_path):
    chain = opened(QUERIES["groups"], many_keys(), tmp_path)
    with pytest.raises(ms.MigrationError, match=f"{strategy} cannot migrate a slot .* several stages") as refused:
        chain.migrate("(A (B C))", strategy, slots=[1])
    assert refused.value.hint == "use moving_state or moving_state_paced"


@pytest.mark.parametrize("name", always(2, ["groups", "rows", "distinct", "hops"]))
def test_all_slots_are_paced_inside_their_tasks(name, tmp_path, monkeypatch):
    """No state is sent and no second plan runs; row windows stay where they are."""
    monkeypatch.setattr(moving_state_paced, "LEAST_WORK", 8)
    monkeypatch.setattr(moving_state_paced, "SHARE", 0)
    query, inputs = QUERIES[name], many_keys(rows=60, last=100)
    chain = opened(query, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 12)):
        if i == 4:
            chain.migrate("(A (B C))", "moving_state_paced")
        chain.batch(part)
        assert f"q~{TARGET}" not in chain.manifest.segments
    chain.batch({}, end=True)
    (record,) = history_of(chain.driver, chain.query)
    assert record["status"] == "done"
    assert record["batches"] > 2
    assert (chain.moves, chain.query.plan.text) == (0, "(A (B C))")
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


def test_a_migration_inside_fragments_is_cancelled(tmp_path, monkeypatch):
    monkeypatch.setattr(moving_state_paced, "LEAST_WORK", 8)
    monkeypatch.setattr(moving_state_paced, "SHARE", 0)
    query, inputs = QUERIES["groups"], many_keys(rows=60, last=100)
    chain = opened(query, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 12)):
        if i == 4:
            chain.migrate("(A (B C))", "moving_state_paced")
        if i == 5:
            chain.driver.cancel_migration("q")
        chain.batch(part)
    chain.batch({}, end=True)
    (record,) = history_of(chain.driver, chain.query)
    assert (record["status"], chain.query.plan.text) == ("cancelled", "((A B) C)")
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


@pytest.mark.parametrize("seed", always(2, range(80)))
def test_random_plans_in_slots_and_random_moves(seed, tmp_path, monkeypatch):
    chance = random.Random(seed)
    if seed % 2:
        monkeypatch.setattr(moving_state_paced, "LEAST_WORK", 8)
        monkeypatch.setattr(moving_state_paced, "SHARE", 0)
    query, inputs = draw_query(chance, one_key=True), many_keys(rows=40, last=90, seed=seed)
    question = ask(query, inputs)
    chain = opened(query, inputs, tmp_path, chance.randint(2, 4))
    for part in chain.cut(question.tables, chance.randint(6, 20)):
        if chance.random() < 0.25 and chain.driver.manifest is not None:
            chain = Chain(question.plan, question.catalog, tmp_path)
        happens = chance.random()
        slots = chain.driver.state.slots
        with suppress(ms.MigrationError, ms.JobError):
            if happens < 0.35:
                some = chance.sample(range(slots), chance.randint(1, slots))
                chain.migrate(chance.choice(PLANS), chance.choice(STRATEGIES), slots=some)
            elif happens < 0.45:
                chain.migrate(chance.choice(PLANS), chance.choice((*STRATEGIES, "genmig")))
            elif happens < 0.6:
                groups = len(chain.driver.state.routing.groups)
                protocol = chance.choice(["mslb", "mslb", "split_time"])
                chain.driver.rebalance([chance.randrange(slots) for _ in range(groups)], protocol)
            elif happens < 0.7:
                chain.driver.rescale(chance.randint(1, 4))
            elif happens < 0.75:
                chain.driver.cancel_migration("q")
        chain.batch(part)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs)), query


@pytest.mark.parametrize(
    ("name", "restart"), always(2, [("groups", None), ("distinct", 9), ("rows", 7), ("hops", None)])
)
def test_slots_of_a_query_of_several_stages_choose_their_plans(name, restart, tmp_path):
    inputs, query = different_slots(200), QUERIES[name]
    policy = Policy("auto", least_gain=0.01, margin=0.1, evidence=0.0, patience=1, warm_up=2, per_slot=True)
    question = ask(query, inputs)

    def chained() -> Chain:
        return Chain(question.plan, question.catalog, tmp_path, slots=2, plan="((A C) B)", adaptive=policy)

    chain = chained()
    for i, part in enumerate(chain.cut(inputs, 400)):
        chain = chained() if i == restart else chain
        chain.batch(part)
    first, second = texts(chain)
    assert first != second and chain.query.staged.stages == 2
    done = [record for record in history_of(chain.driver, chain.query) if record["status"] == "done"]
    assert done and all(r["slots"] in ([0], [1]) and r["trigger"].startswith("In slot ") for r in done)
    # Slots choose between plans of the same stages: what else is better is left to the query, or refused.
    assert not any("no strategy can do it" in told["reason"] for told in decisions_of(chain.driver, "q"))
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.run(query, inputs))


def test_a_slot_does_not_choose_what_rows_of_other_slots_decide(tmp_path):
    """A slot sees the streams that arrive in it, and nothing of what other slots send to its later stages."""
    query = (
        "SELECT A.v FROM A [RANGE 20], B [RANGE 20], C [RANGE 20], D [RANGE 20] "
        "WHERE A.k = B.k AND B.v = C.v AND C.v = D.v"
    )
    inputs = many_keys()
    question = ask(query, {**inputs, "D": inputs["A"]})
    chain = Chain(question.plan, question.catalog, tmp_path, plan="(((A B) C) D)")
    target = chain.driver.state.target(chain.query, plan_query(chain.query.plan.query, "((A B) (C D))", None))
    assert differing_fragments(chain.query.staged, target.staged)
    with pytest.raises(ms.MigrationError, match="by what it sees itself"):
        require_seen(chain.query, target)


@pytest.mark.parametrize("seed", always(2, range(30)))
def test_slots_that_choose_eagerly_change_no_answer(seed, tmp_path):
    chance = random.Random(seed)
    query, inputs = draw_query(chance, one_key=True), many_keys(rows=60, last=120, seed=seed)
    policy = Policy("auto", least_gain=0.0, margin=0.0, evidence=0.0, patience=1, warm_up=1, per_slot=True)
    question, slots = ask(query, inputs), chance.randint(2, 4)

    def chained() -> Chain:
        return Chain(question.plan, question.catalog, tmp_path, slots=slots, adaptive=policy)

    chain = chained()
    for part in chain.cut(question.tables, chance.randint(10, 25)):
        if chance.random() < 0.15 and chain.driver.manifest is not None:
            chain = chained()
        if chance.random() < 0.15:
            with suppress(ms.JobError):
                chain.driver.rebalance([chance.randrange(slots) for _ in range(256)])
        chain.batch(part)
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), ms.reference(query, inputs))
    assert difference, f"{query}\n{difference}\n{history_of(chain.driver, chain.query)}"
