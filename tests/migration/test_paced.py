"""Paced moving state: no batch does more for the migration than its budget, whatever has to be sorted or computed."""

from __future__ import annotations

import random
from functools import partial

import pyarrow as pa
import pytest
from tests.migration.drive import drive
from tests.profiles import always, mixed

import midstream as ms
from midstream.api import Question, ask
from midstream.cluster.local.live_query import LiveQuery
from midstream.migration.moving_state_paced import MovingStatePaced, PacedMove
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.plans import plan_query

KEYS = "SELECT A.v FROM A [RANGE 300], B [RANGE 300], C [RANGE 300] WHERE A.k = B.k AND A.v = C.v AND B.w = C.w"
BUDGET = 200


def asked_of(query: str) -> Question:
    rng = random.Random(1)
    tables = {}
    for name in "ABC":
        times = sorted(rng.randint(0, 400) for _ in range(200))
        values = {c: [rng.randint(0, 9) for _ in times] for c in "kvw"}
        tables[name] = pa.table({"ts": times, **values})
    return ask(query, tables)


@pytest.mark.parametrize(
    ("plans", "reopen"),
    always(1, mixed([("((A B) C)", "((A C) B)"), ("((A B) C)", "A: B C, B: A C, C: B A")], [False, True])),
)
def test_no_batch_spends_more_than_its_budget(plans, reopen, monkeypatch):
    old, new = plans
    """A is wanted by another key. Neither at the start nor at the switch is anything sorted beyond the budget."""
    asked = asked_of(KEYS)
    spent: list[int] = []
    sorted_rows: list[int] = []
    send, append = PacedMove.advance, SortedState.append

    def watched(self: PacedMove, frontier: int) -> None:
        before = self.move.work
        send(self, frontier)
        spent.append(self.move.work - before)

    monkeypatch.setattr(PacedMove, "advance", watched)

    def begin(live: LiveQuery) -> None:
        monkeypatch.setattr(SortedState, "append", counted)
        plan = plan_query(asked.plan, new)
        live.migrate(plan, MovingStatePaced(budget=BUDGET))
        monkeypatch.setattr(SortedState, "append", append)

    def counted(self: SortedState, elements, hashes) -> None:
        if self.key:
            sorted_rows.append(len(elements))
        append(self, elements, hashes)

    found, live = drive(asked, plan_query(asked.plan, old), 10, [(30, begin)], reopen)
    assert not sorted_rows
    (record,) = live.history
    assert record.outcome == "done" and record.batches > 1
    # What an element costs is learned from those before it, so the last slice of a batch may overrun a little.
    assert len(spent) == record.batches and max(spent) < 2 * BUDGET
    assert ms.snapshot_equal(found, ms.reference(KEYS, asked.tables))


def test_a_switch_sorts_nothing(monkeypatch):
    asked = asked_of(KEYS)
    old, new = (plan_query(asked.plan, shape) for shape in ("((A B) C)", "((A C) B)"))
    appended: list[int] = []
    finish, append = PacedMove.finish, SortedState.append

    def counted(self: SortedState, elements, hashes) -> None:
        appended.append(len(elements))
        append(self, elements, hashes)

    def watched(self: PacedMove):
        monkeypatch.setattr(SortedState, "append", counted)
        box = finish(self)
        monkeypatch.setattr(SortedState, "append", append)
        return box

    monkeypatch.setattr(PacedMove, "finish", watched)
    begin = partial(LiveQuery.migrate, plan=new, strategy=MovingStatePaced(budget=BUDGET))
    _, live = drive(asked, old, 10, [(30, begin)])
    assert live.history[0].outcome == "done" and not appended


def test_what_nobody_needs_is_not_computed():
    """The join of A and the missing state has been given out already: its pairs are not looked for again."""
    query = "SELECT A.v FROM A [RANGE 300], B [RANGE 300], C [RANGE 300] WHERE A.k = B.k AND B.k = C.k"
    asked = asked_of(query)
    old, new = (plan_query(asked.plan, shape) for shape in ("((A B) C)", "(A (B C))"))
    root: list[int] = []

    def begin(live: LiveQuery) -> None:
        live.migrate(new, "moving_state")
        box = live.execution.box  # type: ignore[attr-defined]
        root.append(next(o.work.matched for o in reversed(box.operators) if o.name == "join"))

    found, _ = drive(asked, old, 10, [(30, begin)])
    assert root == [0]
    assert ms.snapshot_equal(found, ms.reference(query, asked.tables))
