"""Rules broken on purpose: what holds the strategies right must notice when they are not."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pytest
from tests.migration.drive import drive, in_order

import midstream as ms
from midstream.algebra.expressions import Call
from midstream.algebra.snapshots import multiset_equal
from midstream.api import ask
from midstream.migration.coalesce import pair
from midstream.migration.genmig import GenMig, after_every_start_seen
from midstream.migration.parallel_track import ParallelTrack
from midstream.migration.split import Split
from midstream.optimizer.plans import plan_query

TEXT = "SELECT A.v FROM A [RANGE 10], B [RANGE 6], C [RANGE 14] WHERE A.k = B.k AND B.k = C.k"
DISTINCT = "SELECT DISTINCT A.v FROM A [RANGE 10], B [RANGE 6], C [RANGE 14] WHERE A.k = B.k AND B.k = C.k"


def noticed(strategy, text: str = TEXT, seeds: int = 12) -> bool:
    """Whether any of a number of runs differs from what it should be."""
    return any(not holds(strategy, text, seed) for seed in range(seeds))


def holds(strategy, text: str, seed: int) -> bool:
    """The conformance suite's three questions: right snapshots, right order, right elements."""
    asked, old, new, expected, alone = question(text, seed)
    rng = random.Random(seed)
    found, _ = drive(asked, old, rng.choice([2, 5]), [(rng.randint(3, 10), lambda live: live.migrate(new, strategy))])
    same = ms.snapshot_equal(found, expected) and in_order(found)
    return bool(same and ("DISTINCT" in text or multiset_equal(found, alone)))


@lru_cache(maxsize=200)
def question(text: str, seed: int):
    """A query over random streams, two plans, and what any migration between them must give."""
    rng = random.Random(seed)
    inputs = {}
    for name in "ABC":
        times = sorted(rng.randint(0, 40) for _ in range(16))
        inputs[name] = pa.table({"ts": times, "k": [rng.randint(0, 1) for _ in times], "v": [0 for _ in times]})
    asked = ask(text, inputs)
    old, new = plan_query(asked.plan, "((A B) C)"), plan_query(asked.plan, "(A (B C))")
    return asked, old, new, ms.reference(text, inputs), drive(asked, old, 5)[0]


class CutsNothing(Split):
    """Gives the new box only what starts after the split."""

    def parts(self, batch):
        before, crossing, later = super().parts(batch)
        return before, crossing.slice(0, 0), later


class CutsWithoutHalfATick(Split):
    """Takes the split for a whole tick, at which genuine starts cannot be told from cut ones."""

    def parts(self, batch):
        before, crossing, later = super().parts(batch)
        return before, crossing.with_validity(np.full(len(crossing), self.first), crossing.valid_to), later


class GivesOldBoxEverything(Split):
    """Lets the old box see what starts after the split."""

    def parts(self, batch):
        _, crossing, later = super().parts(batch)
        return batch, crossing, later


def pairs_any_equal_tuples(before, after, exact):
    """Pairs equal tuples whatever their true ends."""
    return pair(before, after, False)


def pairs_nothing(before, after, exact):
    """Leaves all halves apart."""
    none = np.empty(0, np.intp)
    return none, none


def pairs_with_one_half_twice(before, after, exact):
    """Uses the first half for all its equals."""
    here, there = pair(before, after, exact)
    return here, np.zeros_like(there)


def all_parts_old(marks):
    """Takes a tuple for old only if all its parts are."""
    return marks[0] if len(marks) == 1 else Call("and", marks, marks[0].type)


def first_part_old(marks):
    """Asks one part only."""
    return marks[0]


@pytest.mark.parametrize("text", [TEXT, DISTINCT])
@pytest.mark.parametrize("strategy", [GenMig(), ParallelTrack()], ids=["genmig", "parallel_track"])
def test_nothing_is_noticed_where_nothing_is_wrong(strategy, text):
    if text == TEXT or strategy.name == "genmig":
        assert not noticed(strategy, text)


@pytest.mark.parametrize("earlier", [3, 6, 100])
def test_an_earlier_split_is_noticed(earlier):
    """By one tick it may be earlier: no end lies at the half tick before the last end either."""

    def rule(situation):
        return max(after_every_start_seen(situation) - earlier, situation.frontier)

    assert noticed(GenMig(split_rule=rule), seeds=60)


@pytest.mark.parametrize("splitter", [CutsNothing, CutsWithoutHalfATick, GivesOldBoxEverything])
def test_a_broken_split_is_noticed(splitter):
    assert noticed(GenMig(splitter=splitter))


@pytest.mark.parametrize("pairing", [pairs_any_equal_tuples, pairs_nothing, pairs_with_one_half_twice])
def test_a_broken_coalesce_is_noticed(pairing):
    assert noticed(GenMig(pairing=pairing))


@pytest.mark.parametrize("rule", [all_parts_old, first_part_old])
def test_a_broken_mark_is_noticed(rule):
    assert noticed(ParallelTrack(rule=rule))


def test_a_track_that_ends_too_early_is_noticed():
    class Hasty(ParallelTrack):
        def decide(self, situation):
            return {"old_until": situation.frontier + 2}

    assert noticed(Hasty())
