"""Every strategy, between any two plans, at any moment, however the input is cut: the answer stays the answer."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.generators import cases
from tests.migration.drive import Action, drive, in_order
from tests.migration.families import (
    ENDLESS,
    KEEPING,
    Setting,
    equivalent_plans,
    join_settings,
    rule_settings,
    topped_settings,
)
from tests.profiles import examples

import midstream as ms
from midstream.algebra.semantics import evaluate
from midstream.algebra.snapshots import multiset_equal
from midstream.api import ask
from midstream.cluster.local.live_query import LiveQuery
from midstream.migration.in_part import PARTS, way
from midstream.migration.legality import keeps_intervals, relational_part
from midstream.migration.moving_state_paced import MovingStatePaced
from midstream.migration.protocol import Strategy
from midstream.migration.registry import STRATEGIES

TRIED = {**STRATEGIES, "moving_state_paced by 3": MovingStatePaced(budget=3)}
NARROW = {"parallel_track", "genmig_reference_point"}
PLACES = st.integers(0, 12)
BATCHES = st.sampled_from([1, 2, 3, 5, 8, 40])
PARTS_TRIED = st.sampled_from(PARTS)
MOMENTS = {
    "rows": BATCHES,
    "place": PLACES,
    "gap": st.integers(0, 6),
    "reopen": st.booleans(),
    "part": PARTS_TRIED,
}


def legal(strategy: Strategy, setting: Setting, part: str) -> bool:
    try:
        for old, new in zip(setting.plans, setting.plans[1:], strict=False):
            way(strategy, old, new, setting.asked.catalog.functions, part)
    except ms.MigrationError:
        return False
    return True


def cancel_if_running(live: LiveQuery) -> None:
    if live.migrations.running is not None:
        live.cancel_migration()


def check(
    setting: Setting,
    strategy: Strategy,
    rows: int,
    place: int,
    gap: int,
    cancel: int | None,
    reopen: bool,
    part: str = "whole",
) -> None:
    """Migrates along the setting's plans, one after the other, and holds the result against the oracle."""
    assume(legal(strategy, setting, part))
    actions: list[tuple[int, Action]] = [
        (place + i * gap, partial(LiveQuery.migrate, plan=plan, strategy=strategy, part=part, queue=True))
        for i, plan in enumerate(setting.plans[1:])
    ]
    if cancel is not None:
        actions.append((place + cancel, cancel_if_running))
    found, _ = drive(setting.asked, setting.plans[0], rows, actions, reopen)
    expected = evaluate(setting.asked.plan, setting.asked.tables, setting.asked.catalog)
    same = ms.snapshot_equal(found, expected)
    assert same, f"{same}\n{[p.text for p in setting.plans]}"
    assert in_order(found)
    if all(keeps_intervals(relational_part(plan.physical)) for plan in setting.plans):
        alone, _ = drive(setting.asked, setting.plans[0], rows)
        same = multiset_equal(found, alone)
        assert same, f"{same}\n{[p.text for p in setting.plans]}"


@pytest.mark.parametrize("name", sorted(TRIED))
@examples(8)
@given(setting=join_settings(), **MOMENTS)
def test_join_orders_replace_each_other(name, setting, rows, place, gap, reopen, part):
    check(setting, TRIED[name], rows, place, gap, None, reopen, part)


@pytest.mark.parametrize("name", sorted(TRIED.keys() - NARROW))
@examples(8)
@given(setting=rule_settings(), **MOMENTS)
def test_rewritten_plans_replace_each_other(name, setting, rows, place, gap, reopen, part):
    check(setting, TRIED[name], rows, place, gap, None, reopen, part)


@pytest.mark.parametrize("name", sorted(NARROW))
@examples(15)
@given(setting=rule_settings(KEEPING), **MOMENTS)
def test_plans_of_selections_and_unions_replace_each_other(name, setting, rows, place, gap, reopen, part):
    check(setting, TRIED[name], rows, place, gap, None, reopen, part)


@pytest.mark.parametrize("name", sorted(TRIED))
@examples(12)
@given(setting=topped_settings(), **MOMENTS)
def test_joins_below_operators_that_stay_replace_each_other(name, setting, rows, place, gap, reopen, part):
    check(setting, TRIED[name], rows, place, gap, None, reopen, "smallest" if name in NARROW else part)


@examples(40)
@given(data=st.data(), rows=BATCHES, place=PLACES, gap=st.integers(1, 5), reopen=st.booleans())
def test_plans_come_and_go_by_different_strategies(data, rows, place, gap, reopen):
    """A to B to A to C, each step by a strategy and a part of its own."""
    setting = data.draw(st.one_of(join_settings(), topped_settings(), rule_settings()))
    one, two, *more = setting.plans
    along = [one, two, one, *(more or [two])]
    actions: list[tuple[int, Action]] = []
    for step, (old, new) in enumerate(zip(along, along[1:], strict=False)):
        name, part = data.draw(st.sampled_from(sorted(TRIED))), data.draw(PARTS_TRIED)
        assume(legal(TRIED[name], Setting(setting.text, setting.asked, (old, new)), part))
        actions.append(
            (place + step * gap, partial(LiveQuery.migrate, plan=new, strategy=TRIED[name], part=part, queue=True))
        )
    found, live = drive(setting.asked, one, rows, actions, reopen)
    expected = evaluate(setting.asked.plan, setting.asked.tables, setting.asked.catalog)
    same = ms.snapshot_equal(found, expected)
    assert same, f"{same}\n{[p.text for p in along]}\n{[(r.strategy, r.part) for r in live.history]}"
    assert in_order(found)


@pytest.mark.parametrize("name", ["moving_state", "moving_state_paced by 3"])
@examples(12)
@given(setting=rule_settings(ENDLESS), **MOMENTS)
def test_plans_without_a_split_time_replace_each_other(name, setting, rows, place, gap, reopen, part):
    check(setting, TRIED[name], rows, place, gap, None, reopen, part)


@pytest.mark.parametrize("name", sorted(TRIED))
@examples(10)
@given(data=st.data(), rows=BATCHES, place=PLACES, cancel=st.integers(0, 8), reopen=st.booleans(), part=PARTS_TRIED)
def test_a_cancelled_migration_leaves_no_trace(name, data, rows, place, cancel, reopen, part):
    rewritten = rule_settings(KEEPING) if name in NARROW else rule_settings()
    check(data.draw(st.one_of(join_settings(), rewritten)), TRIED[name], rows, place, 100, cancel, reopen, part)


@examples(15)
@given(setting=join_settings(most=6), name=st.sampled_from(sorted(TRIED)), rows=BATCHES, place=PLACES, part=PARTS_TRIED)
def test_joins_of_up_to_six_streams_replace_each_other(setting, name, rows, place, part):
    check(setting, TRIED[name], rows, place, 3, None, False, part)


@examples(40)
@given(case=cases(most_rows=8), data=st.data(), name=st.sampled_from(sorted(TRIED)), rows=BATCHES, place=PLACES)
def test_any_query_of_the_language_survives_a_migration(case, data, name, rows, place):
    """All constructs, types and kinds of time; plans as the rules give them."""
    asked = ask(case.query, case.inputs)
    plans = data.draw(st.lists(st.sampled_from(list(equivalent_plans(asked.plan))), min_size=2, max_size=2))
    cancel = data.draw(st.sampled_from([None, None, 1, 3]))
    setting, part = Setting(case.query, asked, tuple(plans)), data.draw(PARTS_TRIED)
    check(setting, TRIED[name], rows, place, 0, cancel, data.draw(st.booleans()), part)
