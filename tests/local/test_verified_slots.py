"""Verified migrations of single slots, and what retention and restarts do to verifications under way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.local.test_verified_migrations import (
    BATCHES,
    COUNT,
    DISTINCT,
    JOIN,
    NEW,
    OLD,
    expected,
    opened,
    parts,
    wrongly_rewritten,
)
from tests.profiles import always, mixed

import midstream as ms
from midstream.checkpoint.check import check

__all__ = ["wrongly_rewritten"]


def run(folder: Path, cql: str, restarts: bool, begin: Any, **options: Any) -> Any:
    """All batches; `begin` is called with the query before the third; gives the session, finished."""
    rows = parts()
    session = opened(folder, cql, **options)
    for i in range(BATCHES):
        if restarts and i:
            session.stop()
            session = opened(folder, cql, **options)
        if i == 3:
            begin(session.queries["q"])
        session.push({name: rows[name][i] for name in "ABC"})
    session.finish()
    return session


def plans(session: Any) -> dict[int, str]:
    """The plan of each slot."""
    query = session._job.queries["q"]
    return {slot: query.in_slot(slot).plan.text for slot in range(session._job.state.slots)}


@pytest.mark.parametrize(
    ("migration", "restarts"),
    always(3, mixed([(JOIN, "genmig"), (COUNT, "moving_state"), (COUNT, "genmig")], [False, True])),
)
def test_a_right_plan_takes_over_in_the_slots_asked_for(tmp_path, migration, restarts):
    cql, strategy = migration
    session = run(tmp_path, cql, restarts, lambda query: query.migrate(NEW, strategy, slots=[1], verify=20))
    record = session.queries["q"].history[-1].record
    assert record["status"] == "done" and record["slots"] == [1]
    assert record["verified"]["difference"] is None
    assert record["verified"]["compared_to"] >= record["verified"]["since"] + 20
    assert plans(session) == {0: OLD, 1: NEW}
    assert list(session.queries) == ["q"]
    assert ms.snapshot_equal(session.queries["q"].table(), expected(cql, parts()))
    session.stop()
    stored = ms.open(tmp_path)
    assert list(stored.queries) == ["q"]
    assert not check(stored.store.files, stored.manifest)
    assert stored.manifest.account("q").plans.of_slots == {1: NEW}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_wrong_plan_takes_over_in_no_slot(tmp_path, restarts, wrongly_rewritten):
    session = run(tmp_path, DISTINCT, restarts, lambda query: query.migrate(NEW, "genmig", slots=[0], verify=20))
    record = session.queries["q"].history[-1].record
    assert record["status"] == "differs" and record["slots"] == [0]
    assert plans(session) == {0: OLD, 1: OLD}
    assert ms.snapshot_equal(session.queries["q"].table(), expected(DISTINCT, parts()))
    session.stop()


def test_a_query_whose_slots_differ_is_verified_as_a_whole(tmp_path):
    rows = parts()
    session = opened(tmp_path, COUNT)
    for i in range(BATCHES):
        if i == 1:
            session.queries["q"].migrate(NEW, "moving_state", slots=[1])
        if i == 4:
            assert plans(session) == {0: OLD, 1: NEW}
            session.queries["q"].migrate(NEW, "moving_state", verify=20)
            with pytest.raises(ms.MigrationError, match="being verified"):
                session.queries["q"].migrate(OLD, "moving_state", slots=[1])
        session.push({name: rows[name][i] for name in "ABC"})
    session.finish()
    assert session.queries["q"].history[-1].record["status"] == "done"
    assert plans(session) == {0: NEW, 1: NEW}
    assert ms.snapshot_equal(session.queries["q"].table(), expected(COUNT, rows))
    session.stop()


def test_slots_that_migrate_are_not_copied_meanwhile(tmp_path):
    rows = parts()
    with opened(tmp_path, COUNT) as session:
        session.push({name: rows[name][0] for name in "ABC"})
        session.queries["q"].migrate(NEW, "genmig", slots=[1])
        session.push({name: rows[name][1] for name in "ABC"})
        with pytest.raises(ms.MigrationError, match="migrating already in slot 1, to"):
            session.queries["q"].migrate(NEW, "genmig", slots=[0], verify=20)


@pytest.mark.parametrize("restarts", [False, True])
def test_retention_takes_nothing_that_is_still_to_be_compared(tmp_path, restarts):
    kept = {"results": "1 batches"}
    session = run(
        tmp_path, COUNT, restarts, lambda query: query.migrate(NEW, "genmig", verify=60), retention=kept, retained=1
    )
    record = session.queries["q"].history[-1].record
    assert record["status"] == "done" and record["verified"]["compared_to"] >= record["verified"]["since"] + 60
    session.stop()
    assert not check(ms.open(tmp_path).store.files, ms.open(tmp_path).manifest)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_difference_is_found_under_retention(tmp_path, restarts, wrongly_rewritten):
    kept = {"results": "1 batches"}
    session = run(
        tmp_path, DISTINCT, restarts, lambda query: query.migrate(NEW, "genmig", verify=60), retention=kept, retained=1
    )
    record = session.queries["q"].history[-1].record
    assert record["status"] == "differs" and record["verified"]["instant"] is not None
    session.stop()
