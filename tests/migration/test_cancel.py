"""Cancelling at every step of every strategy: the old plan goes on as if nothing had been."""

from __future__ import annotations

import random
from functools import lru_cache, partial

import pyarrow as pa
import pytest
from tests.migration.drive import Action, drive, in_order
from tests.migration.families import group_for_distinct
from tests.profiles import always, mixed

import midstream as ms
from midstream.algebra.emission import emission_of
from midstream.algebra.plan import rewrite_plan
from midstream.algebra.snapshots import multiset_equal
from midstream.api import Question, ask
from midstream.cluster.local.live_query import LiveQuery
from midstream.migration.coalesce import CutAtSplit
from midstream.migration.genmig import SplitExecution
from midstream.migration.in_part import way
from midstream.migration.moving_state_paced import MovingStatePaced
from midstream.migration.registry import STRATEGIES
from midstream.optimizer.plans import Plan, plan_query

WINDOWS = "A [RANGE 10], B [RANGE 6], C [RANGE 14]"
JOINED = f"FROM {WINDOWS} WHERE A.k = B.k AND B.k = C.k"
QUERIES = {
    "join": f"SELECT A.v, C.v AS w {JOINED}",
    "count": f"SELECT A.k, count(*) AS n {JOINED} GROUP BY A.k",
    "changes": f"SELECT ISTREAM A.v {JOINED}",
    "early to slices": f"SELECT DISTINCT A.v {JOINED}",
    "slices to early": f"SELECT DISTINCT A.v {JOINED}",
}
TRIED = {**STRATEGIES, "moving_state_paced by 3": MovingStatePaced(budget=3)}
PLACE = 4


@lru_cache(maxsize=50)
def question(kind: str, seed: int) -> tuple[Question, Plan, Plan, pa.Table, pa.Table]:
    """A query over random streams, the plans it migrates between, and what it must give."""
    rng = random.Random(seed)
    inputs = {}
    for name in "ABC":
        times = sorted(rng.randint(0, 40) for _ in range(13))
        values = [rng.randint(0, 1) for _ in times]
        inputs[name] = pa.table({"ts": times, "k": [rng.randint(0, 1) for _ in times], "v": values})
    asked = ask(QUERIES[kind], inputs)
    old, new = plan_query(asked.plan, "((A B) C)"), plan_query(asked.plan, "(A (B C))")
    if "early" in kind:
        new = Plan(asked.plan, rewrite_plan(new.logical, group_for_distinct), emission_of(asked.plan))
    if kind == "slices to early":
        old, new = new, old
    return asked, old, new, ms.reference(QUERIES[kind], inputs), drive(asked, old, 3)[0]


def cancel_if_running(live: LiveQuery) -> None:
    if live.migrations.running is not None:
        live.cancel_migration()


def holds(kind: str, name: str, part: str, step: int, reopen: bool, seed: int) -> tuple[bool, bool]:
    """Whether a run that is cancelled after some steps gives what it should, and whether it was cancelled at all."""
    asked, old, new, expected, alone = question(kind, seed)
    begin = partial(LiveQuery.migrate, plan=new, strategy=TRIED[name], part=part)
    actions: list[tuple[int, Action]] = [(PLACE, begin), (PLACE + step, cancel_if_running)]
    found, live = drive(asked, old, 3, actions, reopen)
    cancelled = live.history[0].outcome == "cancelled"
    assert live.plan.logical == (old if cancelled else new).logical
    same = bool(ms.snapshot_equal(found, expected)) and in_order(found)
    return same and (kind != "join" or bool(multiset_equal(found, alone))), cancelled


def is_refused(name: str, kind: str, part: str) -> bool:
    """Plans that give at different times need a split that cuts; an aggregate is beyond those that keep intervals."""
    if kind in ("early to slices", "slices to early"):
        return name not in ("auto", "genmig", "genmig_shortened")
    return (kind, part) == ("count", "whole") and name in ("genmig_reference_point", "parallel_track")


PARTS = [(kind, part) for part in ("smallest", "whole") for kind in QUERIES]
CASES = [(name, *of) for name, of in mixed(sorted(TRIED), PARTS)]


@pytest.mark.parametrize(("name", "kind", "part"), always(2 * len(TRIED), CASES))
def test_a_migration_can_be_cancelled_at_every_step(name, kind, part):
    if is_refused(name, kind, part):
        _, old, new, _, _ = question(kind, 0)
        with pytest.raises(ms.MigrationError):
            way(TRIED[name], old, new, {}, part)
        return
    for step in range(13):
        right, cancelled = holds(kind, name, part, step, step % 2 == 0, step % 3)
        assert right, f"cancelled after {step} steps"
        if not cancelled:
            break


@pytest.mark.parametrize("kind", ["early to slices", "slices to early"])
@pytest.mark.parametrize("name", ["genmig", "genmig_shortened"])
def test_plans_that_give_at_different_times_are_cancelled_while_they_run(name, kind):
    outcomes = [
        holds(kind, name, "auto", step, reopen, seed)
        for step in (1, 2, 4)
        for reopen in (False, True)
        for seed in (0, 1)
    ]
    assert all(right for right, _ in outcomes) and any(cancelled for _, cancelled in outcomes)


def noticed(kind: str) -> bool:
    return any(not holds(kind, "genmig", "auto", step, False, seed)[0] for step in (1, 3, 5) for seed in range(6))


def test_giving_the_new_boxs_half_is_noticed(monkeypatch):
    monkeypatch.setattr(CutAtSplit, "forgo", CutAtSplit.flush)
    assert noticed("slices to early")


def test_giving_nothing_after_the_split_is_noticed(monkeypatch):
    monkeypatch.setattr(CutAtSplit, "forgo", lambda self: None)
    assert noticed("early to slices")


def test_results_that_leave_before_it_is_known_whose_they_are_are_noticed(monkeypatch):
    def hasty(self, batch):
        return batch.clipped(self.split.first, 10**9)

    monkeypatch.setattr(CutAtSplit, "new", hasty)
    assert noticed("slices to early")


def past_the_split_before_the_grid() -> bool:
    """Time has passed the split (51.5) but not the next multiple of the grid (55), and A's tuple has ended between."""
    columns = {"A": ([10, 12, 54, 70], [9, 1, 7, 7]), "B": ([10, 52, 54, 70], [9, 1, 7, 7])}
    inputs = {name: pa.table({"ts": times, "k": keys}) for name, (times, keys) in columns.items()}
    query = "SELECT DISTINCT A.k FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k"
    asked = ask(query, inputs)
    early = plan_query(asked.plan, "(A B)")
    slices = Plan(asked.plan, rewrite_plan(early.logical, group_for_distinct), emission_of(asked.plan))
    actions: list[tuple[int, Action]] = [
        (2, partial(LiveQuery.migrate, plan=slices, strategy="genmig")),
        (6, LiveQuery.cancel_migration),
    ]
    found, live = drive(asked, early, 1, actions)
    assert live.history[0].split_time == 51.5
    return bool(ms.snapshot_equal(found, ms.reference(query, inputs)))


def test_an_old_box_that_forgets_what_it_may_still_need_is_noticed(monkeypatch):
    assert past_the_split_before_the_grid()
    monkeypatch.setattr(SplitExecution, "_old_frontier", property(lambda self: self.frontier))
    assert not past_the_split_before_the_grid()


@pytest.mark.parametrize(("kind", "name"), always(len(QUERIES), mixed([*QUERIES], ["genmig", "genmig_shortened"])))
def test_a_migration_that_could_end_can_still_be_cancelled(name, kind, monkeypatch):
    """Where partitions must be asked first, the end is known a batch before it is carried out."""
    monkeypatch.setattr(LiveQuery, "_leave_if_done", lambda self: False)
    could_end = []

    def cancel(live: LiveQuery) -> None:
        assert live.migrations.running is not None
        could_end.append(live.migrations.running.execution.done)
        live.cancel_migration()

    for seed in range(4):
        asked, old, new, expected, _ = question(kind, seed)
        begin = partial(LiveQuery.migrate, plan=new, strategy=name)
        found, _ = drive(asked, old, 3, [(2, begin), (9, cancel)], seed % 2 == 0)
        assert ms.snapshot_equal(found, expected) and in_order(found)
    assert any(could_end)
