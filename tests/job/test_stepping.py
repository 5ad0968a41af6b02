"""Groups that move over several batches: each batch carries little, and results are those of a query that stays."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.job.chain import Chain
from tests.job.staged_queries import draw_query
from tests.job.test_chain import KEYS, as_multiset, tables
from tests.job.test_local_plans import many_keys
from tests.profiles import always

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.packs import SegmentEntry
from midstream.distribution.fragments import Routing
from midstream.job.queries import filling
from midstream.job.slots.pacing import next_step
from midstream.job.slots.segment_reuse import MOST_RANGES, ranges_of_groups

SCATTERED = [group % 2 for group in range(256)]
GROUPED = (
    "SELECT A.v, count(*) AS n FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k GROUP BY A.v"
)


@pytest.fixture
def small_batches(monkeypatch):
    """A batch carries few rows of state besides its own."""
    monkeypatch.setattr(filling, "LEAST_WORK", 10)
    monkeypatch.setattr(filling, "SHARE", 0)


def opened(query: str, inputs: dict, folder: Path, slots: int = 2) -> Chain:
    question = ask(query, inputs)
    return Chain(question.plan, question.catalog, folder, slots=slots, plan="((A B) C)")


def manifest(rows: int) -> Manifest:
    entry = SegmentEntry("s", ("k",), "f", 64, 1, rows, rows, 0, 0, 0, 0, 0, 0)
    return Manifest("q", 0, segments={"q": {0: {slot: [entry] for slot in range(2)}}})


def steps(old: Routing, wanted: Routing, rows: int) -> list[Routing]:
    found = [old]
    while found[-1].groups != wanted.groups or found[-1].slots != wanted.slots:
        step = next_step(found[-1], wanted, manifest(1000), {}, rows)
        assert step is not None
        found.append(step)
    return found[1:]


def test_scattered_groups_move_in_steps_of_few_ranges():
    old, wanted = Routing((0,) * 256, 2), Routing(tuple(SCATTERED), 2, "a test")
    found = steps(old, wanted, 100)
    assert len(found) == 5
    for before, after in zip([old, *found], found, strict=False):
        assert all(len(ranges_of_groups(slot, before.groups, after.groups)) <= MOST_RANGES for slot in (0, 1))
        assert after.trigger == "a test"


@pytest.mark.parametrize(("wanted", "rows"), [(SCATTERED, 2000), (SCATTERED, None), ([0] * 128 + [1] * 128, 10)])
def test_what_costs_little_moves_at_once(wanted, rows):
    old, wanted = Routing((0,) * 256, 2), Routing(tuple(wanted), 2)
    assert next_step(old, wanted, manifest(1000), {}, rows) is wanted


def test_slots_stay_until_their_last_group_has_left():
    old = Routing(tuple(group % 4 for group in range(256)), 4)
    wanted = Routing(tuple(random.Random(3).randrange(2) for _ in range(256)), 2)
    found = steps(old, wanted, 100)
    assert [step.slots for step in found] == [4] * (len(found) - 1) + [2]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("query", [KEYS, GROUPED])
def test_a_query_of_several_stages_moves_step_by_step_and_sends_nothing(query, tmp_path):
    inputs = many_keys(rows=60, last=100)
    chain = opened(query, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 12)):
        if i == 3:
            chain.driver.rebalance(SCATTERED)
        if i == 5:
            assert list(chain.manifest.slots.routing) != SCATTERED
            chain = opened(query, inputs, tmp_path)
        chain.batch(part)
    assert chain.query.staged.stages > 1
    assert list(chain.manifest.slots.routing) == SCATTERED
    moves = chain.manifest.slots.moves
    assert len(moves) > 2
    assert sum(move["groups"] for move in moves) == 128
    assert {(move["rows_sent"], move["bytes_written"]) for move in moves} == {(0, 0)}
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(ms.run(query, inputs)) or query is GROUPED
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


@pytest.mark.usefixtures("small_batches")
def test_between_slots_of_different_plans_a_batch_derives_little(tmp_path):
    inputs = many_keys(rows=60, last=100)
    chain = opened(GROUPED, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 12)):
        if i == 2:
            chain.migrate("(A (B C))", "moving_state", slots=[1])
        if i == 5:
            chain.driver.rebalance([1 - slot for slot in chain.manifest.slots.routing])
        chain.batch(part)
    moves = chain.manifest.slots.moves
    assert len(moves) > 2
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(GROUPED, inputs))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("seed", always(3, range(60)))
def test_random_queries_move_at_random(seed, tmp_path):
    chance = random.Random(seed)
    query, inputs = draw_query(chance), tables(rows=40, last=90, seed=seed)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=chance.randint(2, 4), seed=seed)
    for part in chain.cut(question.tables, chance.randint(5, 12)):
        if chance.random() < 0.25 and chain.driver.manifest is not None:
            chain = Chain(question.plan, question.catalog, tmp_path)
        slots = chain.driver.state.slots
        if chance.random() < 0.3 and chain.driver.state.wanted is None:
            chain.driver.rebalance([chance.randrange(slots) for _ in range(256)])
        elif chance.random() < 0.1 and chain.driver.state.wanted is None:
            chain.driver.rescale(chance.randint(1, 4))
        chain.batch(part)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs)), query
