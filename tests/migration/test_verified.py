"""Verified migrations in this process: right plans take over, wrong ones never do, and the answer stays the answer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.migration.drive import drive, in_order
from tests.migration.families import (
    ENDLESS,
    Setting,
    join_settings,
    rule_settings,
    topped_settings,
)
from tests.migration.test_conformance import TRIED, legal
from tests.migration.test_mutations import CutsNothing
from tests.profiles import examples

import midstream as ms
from midstream.algebra.plan import Distinct, Relation, rewrite_plan
from midstream.algebra.semantics import evaluate
from midstream.algebra.snapshots_so_far import Comparison
from midstream.api import ask
from midstream.cluster.local.live_query import LiveQuery
from midstream.migration.genmig import GenMig
from midstream.migration.verified import can_be_adopted
from midstream.optimizer.plans import Plan, plan_query

TEXT = "SELECT DISTINCT A.k, B.v FROM A [RANGE 10], B [RANGE 6], C [RANGE 14] WHERE A.k = B.k AND B.k = C.k"
COUNT = (
    "SELECT A.k, count(*) AS n FROM A [RANGE 10], B [RANGE 6], C [RANGE 14] WHERE A.k = B.k AND B.k = C.k GROUP BY A.k"
)
MOMENTS = {
    "strategy": st.sampled_from(sorted(TRIED)),
    "rows": st.sampled_from([1, 2, 5, 8]),
    "place": st.integers(0, 8),
    "verify": st.sampled_from([1, 5, 30]),
}


def streams(rows: int = 60, names: str = "ABC") -> dict[str, pa.Table]:
    times = list(range(rows))
    return {
        name: pa.table({"ts": times, "k": [(t * (i + 2)) % 3 for t in times], "v": [t % 2 for t in times]})
        for i, name in enumerate(names)
    }


def check(setting: Setting, strategy: str, rows: int, place: int, verify: int) -> None:
    setting = replace(setting, plans=setting.plans[:2])
    assume(legal(TRIED[strategy], setting, "auto"))
    old, new = setting.plans
    begin = partial(LiveQuery.migrate, plan=new, strategy=TRIED[strategy], verify=verify)
    found, live = drive(setting.asked, old, rows, [(place, begin)])
    assert in_order(found)
    difference = ms.snapshot_equal(found, evaluate(setting.asked.plan, setting.asked.tables, setting.asked.catalog))
    assert difference, str(difference)
    for record in live.history:
        assert record.outcome == "done" and record.verified is not None, record
        assert live.plan is new or not can_be_adopted(old, new)


@given(join_settings(), st.fixed_dictionaries(MOMENTS))
@examples(40)
def test_joins_are_verified_and_go_over(setting: Setting, moments: dict[str, Any]) -> None:
    check(setting, **moments)


@given(topped_settings(), st.fixed_dictionaries(MOMENTS))
@examples(40)
def test_joins_below_other_operators_are_verified_and_go_over(setting: Setting, moments: dict[str, Any]) -> None:
    check(setting, **moments)


@given(rule_settings(), st.fixed_dictionaries(MOMENTS))
@examples(60)
def test_rewritten_plans_are_verified_and_go_over(setting: Setting, moments: dict[str, Any]) -> None:
    check(setting, **moments)


@given(rule_settings(ENDLESS), st.fixed_dictionaries(MOMENTS))
@examples(30)
def test_plans_without_a_split_time_are_verified_and_go_over(setting: Setting, moments: dict[str, Any]) -> None:
    check(setting, **moments)


def without_distinct(node: Relation) -> Relation:
    return node.input if isinstance(node, Distinct) else node


def wrong_plans(query: Relation) -> list[Plan]:
    right = plan_query(query, "(A (B C))")
    wrong = rewrite_plan(right.logical, without_distinct)
    assert wrong != right.logical
    return [replace(right, logical=wrong)]


@pytest.mark.parametrize("strategy", sorted(TRIED))
@pytest.mark.parametrize("rows", [3, 20])
def test_a_plan_that_is_wrong_never_takes_over(strategy: str, rows: int) -> None:
    asked = ask(TEXT, streams())
    old, (wrong,) = plan_query(asked.plan, "((A B) C)"), wrong_plans(asked.plan)
    setting = Setting(TEXT, asked, (old, wrong))
    if not legal(TRIED[strategy], setting, "auto"):
        pytest.skip("refused for such plans")
    begin = partial(LiveQuery.migrate, plan=wrong, strategy=TRIED[strategy], verify=20)
    found, live = drive(asked, old, rows, [(2, begin)])
    (record,) = live.history
    expected = evaluate(asked.plan, asked.tables, asked.catalog)
    assert record.outcome == "differs" and live.plan.logical == old.logical
    assert ms.snapshot_equal(found, expected)
    verified = record.verified
    assert verified is not None and verified.instant is not None and verified.since <= verified.instant
    # Where the wrong plan by itself first differs is where the verification says so, or later: states were copied.
    assert verified.only_in_new and not verified.only_in_old
    old_answer, new_answer = verified.answers
    assert not ms.snapshot_equal(old_answer, new_answer)
    assert record.as_dict()["verified"]["instant"] == verified.instant


def test_a_strategy_that_is_wrong_is_noticed_too() -> None:
    asked = ask(COUNT, streams())
    old, new = plan_query(asked.plan, "((A B) C)"), plan_query(asked.plan, "(A (B C))")
    begin = partial(LiveQuery.migrate, plan=new, strategy=GenMig(splitter=CutsNothing), verify=5, part="whole")
    found, live = drive(asked, old, 5, [(4, begin)])
    assert [record.outcome for record in live.history] == ["differs"]
    assert live.plan.logical == old.logical
    assert ms.snapshot_equal(found, evaluate(asked.plan, asked.tables, asked.catalog))


def test_a_new_plan_that_fails_does_not_stop_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ask(TEXT, streams())

    def fail(*_: object) -> None:
        raise ms.InputError("a value cannot be cast")

    def begin(live: LiveQuery) -> None:
        live.migrate(plan_query(asked.plan, "(A (B C))"), "genmig", verify=5)
        assert live.rehearsal is not None
        monkeypatch.setattr(live.rehearsal.copy, "feed", fail)

    found, live = drive(asked, "((A B) C)", 5, [(4, begin)])
    (record,) = live.history
    assert record.outcome == "failed" and record.verified is not None
    assert record.verified.difference == "the new plan failed: a value cannot be cast"
    assert ms.snapshot_equal(found, evaluate(asked.plan, asked.tables, asked.catalog))


def test_run_verifies_and_says_so_in_its_history() -> None:
    wanted = ms.Migration(at=20, plan="(A (B C))", strategy="genmig", verify=10)
    result = ms.run(COUNT, streams(), plan="((A B) C)", migrations=[wanted], batch_rows=10, full=True)
    (record,) = result.history
    assert record.outcome == "done" and record.new_plan == "(A (B C))"
    assert record.verified.difference is None and record.verified.compared_to >= 20
    assert ms.snapshot_equal(result.table, ms.reference(COUNT, streams()))


def test_a_verification_can_be_cancelled() -> None:
    asked = ask(COUNT, streams())
    begin = partial(LiveQuery.migrate, plan=plan_query(asked.plan, "(A (B C))"), strategy="genmig", verify=1000)
    found, live = drive(asked, "((A B) C)", 5, [(4, begin), (8, LiveQuery.cancel_migration)])
    assert [r.outcome for r in live.history] == ["cancelled"] and live.plan.text == "((A B) C)"
    assert ms.snapshot_equal(found, evaluate(asked.plan, asked.tables, asked.catalog))


def test_a_stretch_is_positive() -> None:
    asked = ask(COUNT, streams())
    live = LiveQuery(plan_query(asked.plan, "((A B) C)"))
    with pytest.raises(ms.MigrationError, match="cannot be verified for 0 ticks"):
        live.migrate(plan_query(asked.plan, "(A (B C))"), verify=0)
    assert live.migrating_to is None


def test_an_adaptive_query_does_not_try_a_refuted_plan_again() -> None:
    from midstream.adaptation.adaptive import Adaptive
    from midstream.adaptation.policy import Policy

    asked = ask(TEXT, streams())
    plan = plan_query(asked.plan, "((A B) C)")
    adaptive = Adaptive(plan, Policy(verify=7))
    assert adaptive.verify == 7
    adaptive.called_off(plan, "because")
    assert adaptive.refuted == {plan.text: "because"}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(0, 2)), max_size=20), st.data())
@examples(60)
def test_a_comparison_in_pieces_finds_what_one_at_the_end_finds(elements: list[Any], data: st.DataObject) -> None:
    whole = [(k, start, start + length) for start, length, k in elements]
    pieces: list[tuple[int, int, int]] = []
    for k, start, end in whole:
        cut = data.draw(st.integers(start, end))
        pieces += [(k, a, b) for a, b in ((start, cut), (cut, end)) if a < b]
    loses_one = data.draw(st.booleans())
    if pieces and loses_one:
        pieces.pop(data.draw(st.integers(0, len(pieces) - 1)))
    x, y = (_table(rows) for rows in (whole, pieces))
    expected = ms.snapshot_equal(x, y)
    comparison = Comparison(0)
    found = ms.snapshot_equal(x, x)
    since = 0
    for until in [*sorted(data.draw(st.lists(st.integers(1, 45), max_size=5))), 2**62]:
        for side, table in ((comparison.x, x), (comparison.y, y)):
            starts = table["valid_from"].to_numpy()
            side.append(table.filter(pa.array((starts >= since) & (starts < until))))
        since, found = max(since, until), comparison.compare(until)
        if not found:
            break
    assert (bool(found), found.instant) == (bool(expected), expected.instant)


def test_sides_that_tell_times_in_other_zones_are_compared_in_pieces() -> None:
    def told(zone: str, *starts: int) -> pa.Table:
        times = {"valid_from": starts, "valid_to": [start + 10 for start in starts]}
        kept = {name: pa.array(ticks, pa.timestamp("us", zone)) for name, ticks in times.items()}
        return pa.table({"k": pa.array([1] * len(starts), pa.int64()), **kept})

    comparison = Comparison(100)
    comparison.y.append(told("UTC", 2))  # it has ended before
    assert comparison.compare(1_000)
    comparison.x.append(told("Europe/Berlin", 3_000))
    comparison.y.append(told("UTC", 3_000))
    assert comparison.compare(4_000)


def _table(rows: list[Any]) -> pa.Table:
    names = ("k", "valid_from", "valid_to")
    return pa.table({name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate(names)})
