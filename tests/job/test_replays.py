"""Paced moving state between plans of several stages: some of the state with each batch, while the old plan answers."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.job.chain import Chain
from tests.job.staged_queries import draw_query
from tests.job.test_chain import KEYS, KEYS_GROUPED, STAGES, as_multiset, tables
from tests.profiles import always, mixed

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.packs import SegmentEntry
from midstream.checkpoint.query_windows import FilledWindow
from midstream.job.commands.accounts import history_of
from midstream.job.queries import filling
from midstream.job.queries.filling import parted
from midstream.job.task.lanes import KEPT, TARGET
from midstream.optimizer.plans import enumerate_plans

FOR_EVER = KEYS.replace("A [RANGE 20]", "A [UNBOUNDED]")
HOPS = KEYS_GROUPED.replace("C [RANGE 20]", "C [HOP 20, 5]")
QUERIES = {"join": KEYS, "groups": KEYS_GROUPED, "distinct": STAGES, "unbounded": FOR_EVER, "hops": HOPS}


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    """A batch carries few rows of state, so that a migration takes several."""
    monkeypatch.setattr(filling, "LEAST_WORK", 10)
    monkeypatch.setattr(filling, "SHARE", 0.5)


def opened(query: str, inputs: dict, folder: Path, slots: int = 3, plan: str = "((A B) C)") -> Chain:
    question = ask(query, inputs)
    return Chain(question.plan, question.catalog, folder, slots=slots, plan=plan)


@pytest.mark.parametrize("name", always(3, QUERIES))
def test_state_goes_through_the_new_plan_over_several_batches(name, tmp_path):
    query, inputs = QUERIES[name], tables(rows=60, last=120)
    chain = opened(query, inputs, tmp_path)
    got = chain.run(inputs, 15, {3: ("(A (B C))", "moving_state_paced"), 9: ("((A B) C)", "moving_state_paced")})
    assert chain.query.plan.text == "((A B) C)"
    first, second = history_of(chain.driver, chain.query)
    assert (first["status"], first["strategy"], first["start_batch"]) == ("done", "moving_state_paced", 3)
    assert first["end_batch"] > 4
    assert second["status"] == "done"
    assert set(chain.manifest.segments) == {"q"}
    expected = ms.run(query, inputs)
    assert got.num_rows
    assert ms.snapshot_equal(got, expected)
    if name in ("join", "unbounded"):
        assert as_multiset(got) == as_multiset(expected)


def test_each_batch_carries_a_part_of_the_state_and_results_go_on(tmp_path):
    inputs = tables(rows=60, last=120)
    chain = opened(KEYS, inputs, tmp_path)
    left, results = [], []
    for i, part in enumerate(chain.cut(inputs, 15)):
        if i == 4:
            chain.migrate("(A (B C))", "moving_state_paced")
        chain.batch(part)
        rest = chain.manifest.segments.get(f"q~{KEPT}", {})
        left.append(sum(e.rows for slots in rest.values() for entries in slots.values() for e in entries))
        results.append(chain.results().num_rows)
    under_way = [rows for rows in left if rows]
    assert len(under_way) > 2
    assert under_way == sorted(under_way, reverse=True)
    assert results[4 + len(under_way)] > results[4]


def test_a_small_state_goes_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(filling, "LEAST_WORK", 10**6)
    inputs = tables(rows=60, last=120)
    chain = opened(KEYS, inputs, tmp_path)
    got = chain.run(inputs, 25, {2: ("(A (B C))", "moving_state_paced")})
    (record,) = history_of(chain.driver, chain.query)
    assert (record["start_batch"], record["end_batch"]) == (2, 2)
    assert as_multiset(got) == as_multiset(ms.run(KEYS, inputs))


@pytest.mark.parametrize(("name", "after"), always(3, mixed(["join", "groups", "distinct"], [0, 2])))
def test_it_is_cancelled(name, after, tmp_path):
    query, inputs = QUERIES[name], tables(rows=60, last=120)
    chain = opened(query, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 15)):
        if i == 4:
            chain.migrate("(A (B C))", "moving_state_paced")
        if i == 4 + after:
            chain.driver.cancel_migration("q")
        chain.batch(part)
    chain.batch({}, end=True)
    (record,) = history_of(chain.driver, chain.query)
    assert (record["status"], chain.query.plan.text) == ("cancelled", "((A B) C)")
    assert set(chain.manifest.segments) == {"q"}
    assert ms.snapshot_equal(chain.results(), ms.run(query, inputs))


@pytest.mark.parametrize("name", ["join", "groups"])
def test_a_restart_goes_on_with_what_is_left(name, tmp_path):
    query, inputs = QUERIES[name], tables(rows=60, last=120)
    chain = opened(query, inputs, tmp_path)
    parts = chain.cut(inputs, 15)
    for i, part in enumerate(parts):
        if i == 4:
            chain.migrate("(A (B C))", "moving_state_paced")
        if i > 4:
            chain = opened(query, inputs, tmp_path)
        if i == 6:
            assert {f"q~{TARGET}", f"q~{KEPT}"} <= set(chain.manifest.segments)
        chain.batch(part)
    chain.batch({}, end=True)
    assert chain.query.plan.text == "(A (B C))"
    assert ms.snapshot_equal(chain.results(), ms.run(query, inputs))


def test_slots_wait_until_everything_was_sent(tmp_path):
    inputs = tables(rows=60, last=120)
    chain = opened(KEYS, inputs, tmp_path)
    for i, part in enumerate(chain.cut(inputs, 15)):
        if i == 4:
            chain.migrate("(A (B C))", "moving_state_paced")
        if i == 5:
            chain.driver.rescale(2)
            assert chain.query.migration is not None
        chain.batch(part)
    chain.batch({}, end=True)
    (record,) = history_of(chain.driver, chain.query)
    (moved,) = chain.manifest.slots.moves
    assert moved["batch"] >= record["end_batch"]
    assert as_multiset(chain.results()) == as_multiset(ms.run(KEYS, inputs))


@pytest.mark.parametrize(
    ("query", "what"),
    [
        (KEYS.replace("A [RANGE 20]", "A [PARTITION BY k ROWS 3]"), "a ROWS window"),
        (KEYS.replace("SELECT", "SELECT ISTREAM"), "ISTREAM"),
    ],
)
def test_what_depends_on_the_order_of_rows_is_refused_by_name(query, what, tmp_path):
    chain = opened(query, tables(), tmp_path)
    with pytest.raises(ms.MigrationError, match=f"moving_state_paced cannot migrate .*{what}") as refused:
        chain.migrate("(A (B C))", "moving_state_paced")
    assert refused.value.hint == "use strategy moving_state, which moves it at once"


def entry(rows: int, file: str) -> SegmentEntry:
    return SegmentEntry("s", ("k",), file, 64, 1, rows, rows, 0, 0, 0, 0, 0, 0)


def test_what_is_given_bit_by_bit_is_everything_of_few_segments_at_a_time():
    every = {0: {0: [entry(60, file="a"), entry(30, file="b"), entry(0, file="c")], 1: [entry(10, file="d")]}}
    kept, taken, until = dict(every), [], dict.fromkeys("abcd", 0)
    while kept:
        now, kept = parted(kept, 35)
        assert all(len(entries) < 4 for slots in now.values() for entries in slots.values())
        given = [e for slots in now.values() for entries in slots.values() for e in entries]
        for part in given:
            assert part.hash_from == until[part.file]
            until[part.file] = part.hash_to
        taken.append(sum(part.rows for part in given))
    assert set(until.values()) == {2**64} and len(taken) == 3
    assert 98 <= sum(taken) <= 102 and max(taken) <= 37


def test_the_newest_rows_are_given_first_and_of_one_fragment_after_the_other():
    old, new = (replace(entry(10, file), latest_to=ends) for file, ends in (("old", 20), ("new", 30)))
    kept, order = {0: {0: [old, new]}, 1: {0: [new, old]}}, []
    while kept:
        now, kept = parted(kept, 10)
        order += [(number, e.file) for number, slots in now.items() for entries in slots.values() for e in entries]
    assert order == [(0, "new"), (0, "old"), (1, "new"), (1, "old")]


def test_rows_that_have_ended_by_now_are_not_given():
    window = FilledWindow("A", "q", {}, True, ("k",), False, sooner=5)
    held = {0: [replace(entry(10, str(ends)), latest_to=ends) for ends in (14, 15, 16)]}
    assert [e.file for e in window.needed(held, 10)[0]] == ["16"]
    assert replace(window, sooner=None).needed(held, 10) == held


@pytest.mark.parametrize("seed", always(2, range(80)))
def test_random_queries_migrate_and_restart_at_random(seed, tmp_path):
    chance = random.Random(seed)
    query, inputs = draw_query(chance), tables(rows=40, last=90, seed=seed)
    question = ask(query, inputs)
    plans = enumerate_plans(question.plan, None, 8)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=chance.randint(1, 4), plan=plans[0], seed=seed)
    for part in chain.cut(question.tables, chance.randint(5, 20)):
        if chance.random() < 0.3 and chain.driver.manifest is not None:
            chain = Chain(question.plan, question.catalog, tmp_path)
        if chance.random() < 0.4 and chain.query.migration is None:
            with suppress(ms.MigrationError):
                chain.migrate(chance.choice(plans).text, "moving_state_paced")
        elif chance.random() < 0.1 and chain.query.migration is not None:
            chain.driver.cancel_migration("q")
        chain.batch(part)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs)), query
