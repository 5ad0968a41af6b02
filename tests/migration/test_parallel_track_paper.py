"""Parallel track as published: right results, two windows long, silent for a while and then all at once."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.migration.drive import drive

import midstream as ms
from midstream.algebra.snapshots import multiset_equal
from midstream.api import ask
from midstream.lab.papers.parallel_track import ParallelTrackPaper
from midstream.optimizer.plans import plan_query

WINDOW = 20


def asked(streams: str, seed: int = 0, last: int = 150):
    rng = random.Random(seed)
    inputs = {}
    for name in streams:
        times = [t for t in range(last) if rng.random() < 0.7]
        inputs[name] = pa.table({"ts": times, "k": [rng.randint(0, 2) for _ in times]})
    from_ = ", ".join(f"{name} [RANGE {WINDOW}]" for name in streams)
    links = " AND ".join(f"{a}.k = {b}.k" for a, b in zip(streams, streams[1:], strict=False))
    return ask(f"SELECT {streams[0]}.k, {streams[-1]}.ts AS t FROM {from_} WHERE {links}", inputs)


def migrated(question, old, new, batch=4, place=15, cancel=None):
    plans = [plan_query(question.plan, shape) for shape in (old, new)]
    actions = [(place, lambda live: live.migrate(plans[1], ParallelTrackPaper()))]
    if cancel is not None:
        actions.append((cancel, lambda live: live.cancel_migration()))
    return drive(question, plans[0], batch, actions)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("old", "new"), [("((A B) C)", "(A (B C))"), ("((A C) B)", "((A B) C)")])
def test_it_gives_what_an_unmigrated_run_gives(seed, old, new):
    question = asked("ABC", seed)
    found, _ = migrated(question, old, new)
    assert multiset_equal(found, drive(question, plan_query(question.plan, old), 4)[0])


def test_cancelled_it_gives_the_same():
    question = asked("ABC")
    found, live = migrated(question, "((A B) C)", "(A (B C))", cancel=20)
    assert live.history[0].outcome == "cancelled"
    assert multiset_equal(found, drive(question, plan_query(question.plan, "((A B) C)"), 4)[0])


SHAPES = [("AB", "(A B)", "(B A)", 1), ("ABC", "((A B) C)", "(A (B C))", 2)]


@pytest.mark.parametrize(("streams", "old", "new", "windows"), SHAPES)
def test_it_takes_as_many_windows_as_the_tree_is_high_but_at_most_two(streams, old, new, windows):
    _, live = migrated(asked(streams), old, new)
    assert live.history[0].duration == pytest.approx(windows * WINDOW, abs=4)


def test_the_output_pauses_for_a_window_and_then_bursts():
    _, live = migrated(asked("ABC"), "((A B) C)", "(A (B C))")
    assert live.history[0].longest_silence >= WINDOW - 4


def test_it_asks_for_what_its_paper_assumes():
    question = ask("SELECT DISTINCT k FROM A [RANGE 5]", {"A": pa.table({"ts": [1], "k": [1]})})
    plan = plan_query(question.plan)
    with pytest.raises(ms.MigrationError, match="DISTINCT"):
        ParallelTrackPaper().refuse(plan, plan, {})
