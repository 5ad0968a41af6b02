"""`auto` for plans of several stages: what fits into a batch is moved at once, anything larger bit by bit."""

from __future__ import annotations

import pytest
from tests.job.chain import Chain
from tests.job.test_chain import KEYS, tables

import midstream as ms
from midstream.adaptation.policy import Policy
from midstream.api import ask
from midstream.job.migrations import migrating
from midstream.job.queries.running_query import MigrationUnderWay
from midstream.job.slots.relocation import shipped_rows
from midstream.migration import costs
from midstream.optimizer.plans import plan_query


def migrated(chain: Chain) -> MigrationUnderWay:
    """The migration that was decided on."""
    chain.migrate("(A (B C))", "auto")
    assert chain.query.migration is not None
    return chain.query.migration


@pytest.mark.parametrize(("rows", "expected"), [(None, "moving_state"), (10**9, "moving_state_paced")])
def test_auto_chooses_by_what_a_batch_can_carry(rows, expected, tmp_path, monkeypatch):
    inputs = tables(rows=90, last=180)
    question = ask(KEYS, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)", adaptive=Policy("suggest"))
    parts = chain.cut(question.tables, 45)
    for part in parts[:3]:
        chain.batch(part)
    if rows is not None:
        monkeypatch.setattr(migrating, "shipped_rows", lambda *_: rows)
    migration = migrated(chain)
    assert {told["strategy"] for told in migration.decision["predictions"]} == {
        "moving_state",
        "moving_state_paced",
        "genmig",
    }
    assert migration.strategy == expected
    for part in parts[3:]:
        chain.batch(part)
    chain.batch({}, end=True)
    assert chain.query.plan.text == "(A (B C))"
    assert ms.snapshot_equal(chain.results(), ms.reference(KEYS, inputs))


def test_auto_runs_both_plans_where_a_window_is_shorter_than_moving_it(tmp_path, monkeypatch):
    """A batch carries so little that a window has passed before its state is moved."""
    monkeypatch.setattr(migrating, "shipped_rows", lambda *_: 10**9)
    monkeypatch.setattr(costs, "SHARE", 0.001)
    monkeypatch.setattr(costs, "LEAST_WORK", 1)
    question = ask(KEYS, tables(rows=90, last=180))
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)", adaptive=Policy("suggest"))
    for part in chain.cut(question.tables, 45)[:3]:
        chain.batch(part)
    assert migrated(chain).strategy == "genmig"


def test_auto_runs_both_plans_while_streams_are_not_watched(tmp_path):
    question = ask(KEYS, tables())
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    chain.batch(chain.cut(question.tables, 60)[0])
    assert migrated(chain).strategy == "genmig"


def test_rows_that_would_go_to_other_slots_are_counted(tmp_path):
    question = ask(KEYS, tables(rows=90, last=180))
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    chain.batch(chain.cut(question.tables, 90)[0])
    target = chain.driver.state.target(chain.query, plan_query(question.plan, "(A (B C))"))
    sent = shipped_rows(chain.query, target, chain.manifest, chain.driver.state.routing)
    held = sum(entry.rows for entry in chain.manifest.entries())
    assert 0 < sent <= held
    assert shipped_rows(chain.query, chain.query, chain.manifest, chain.driver.state.routing) == 0
