"""Balancing decisions: uneven loads are evened out if that lasts and pays, and the cheaper protocol is chosen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.adaptation.balance import BalanceController, BalanceDecision, BalancePolicy, GroupLoad, paper_request
from midstream.distribution.balancing import nearest_groups

MACHINES = ["a", "b", "c"]
ALL = ("ptlb", "mslb", "split_time_balancing")


def uneven(heavy: int = 12, rate: float = 1000.0, rows: float = 1e4) -> list[GroupLoad]:
    """Machine a has most groups."""
    owners = ["a"] * heavy + ["b", "b", "c", "c"]
    return [GroupLoad(owner, 0.07, rows, 100 * rows, rate) for owner in owners]


def decided(groups: list[GroupLoad], looks: int = 3, **policy: float) -> BalanceDecision:
    controller = BalanceController(60.0, BalancePolicy(**policy))  # type: ignore[arg-type]
    decisions = [controller.consider(groups, MACHINES, ALL) for _ in range(looks)]
    return decisions[-1]


def test_many_groups_go_to_several_machines_at_once():
    decision = decided(uneven())
    assert decision.action == "move"
    assert {(r.sender, r.receiver) for r in decision.requests} == {("a", "b"), ("a", "c")}
    moved = [g for r in decision.requests for g in r.groups]
    assert len(moved) == len(set(moved)) >= 6
    assert decision.forecast.skew > 2 and decision.forecast.expected_skew < 1.2
    assert "2.25 times the mean" in decision.reason and "Moving" in decision.reason
    assert decision.as_dict()["moves"][0]["protocol"] in ALL


def test_it_waits_until_unevenness_has_lasted():
    decision = decided(uneven(), looks=2)
    assert decision.action == "stay" and "waiting for 3" in decision.reason


def test_even_machines_stay_as_they_are():
    decision = decided(uneven(heavy=2))
    assert decision.action == "stay" and "not worth" in decision.reason


def test_one_group_that_cannot_be_divided_is_not_moved_about():
    decision = decided([GroupLoad("a", 0.9), GroupLoad("b", 0.05), GroupLoad("c", 0.05)])
    assert decision.action == "stay" and decision.requests == ()


def test_a_move_that_costs_more_than_it_saves_is_left_alone():
    decision = decided(uneven(rows=1e9, rate=1e7))
    assert decision.action == "stay" and "save" in decision.reason


def test_rates_that_have_fallen_favour_ptlb_and_an_overloaded_sender_mslb():
    fallen = decided(uneven(rows=1e5, rate=5.0))
    assert {r.protocol for r in fallen.requests} == {"ptlb"}
    busy = [GroupLoad(g.owner, 4 * g.seconds, 1e3, 1e5, 5_000.0) for g in uneven()]
    assert {r.protocol for r in decided(busy).requests} == {"mslb"}


def test_a_long_queue_at_the_sender_speaks_against_mslb():
    groups = uneven(rows=1e4, rate=100.0)
    controller = BalanceController(60.0, BalancePolicy(patience=1))
    assert {r.protocol for r in controller.consider(groups, MACHINES, ("ptlb", "mslb")).requests} == {"mslb"}
    waiting = BalanceController(60.0, BalancePolicy(patience=1))
    decision = waiting.consider(groups, MACHINES, ("ptlb", "mslb"), queued={"a": 40.0})
    assert {r.protocol for r in decision.requests} == {"ptlb"}


def test_bytes_count_where_time_is_even():
    groups = [
        GroupLoad(owner, 0.1, 1e4, size, 10.0) for owner, size in zip("aaabbbccc", [9e6] * 3 + [1e5] * 6, strict=True)
    ]
    assert decided(groups, memory_share=0.0).action == "stay"
    assert decided(groups, memory_share=0.9).forecast.expected_skew < decided(groups, memory_share=0.9).forecast.skew


def test_groups_rest_after_a_move_and_do_not_go_back_and_forth():
    controller = BalanceController(60.0)
    groups, moves = uneven(), 0
    for _ in range(20):
        decision = controller.consider(groups, MACHINES, ALL)
        if decision.action == "move":
            moves += 1
            places = {g: r.receiver for r in decision.requests for g in r.groups}
            groups = [
                GroupLoad(places.get(i, g.owner), g.seconds, g.rows, g.bytes, g.rate) for i, g in enumerate(groups)
            ]
    assert moves == 1


def test_nothing_is_begun_while_groups_are_under_way():
    controller = BalanceController(60.0, BalancePolicy(patience=1))
    decision = controller.consider(uneven(), MACHINES, ALL, moving=frozenset(range(6)))
    assert decision.action == "stay" and "6 groups are under way" in decision.reason
    assert controller.consider(uneven(), MACHINES, ALL).action == "move"


def test_groups_that_rest_count_where_they_are_but_do_not_move():
    controller = BalanceController(60.0, BalancePolicy(patience=1), resting=dict.fromkeys(range(6), 9))
    decision = controller.consider(uneven(), MACHINES, ALL)
    assert decision.action == "move"
    assert not any(g < 6 for r in decision.requests for g in r.groups)


def test_one_look_that_is_out_of_the_way_changes_little():
    controller = BalanceController(60.0, BalancePolicy(patience=1, skewed=1.5))
    even = [GroupLoad(owner, 0.1) for owner in "aabbcc"]
    assert controller.consider(even, MACHINES, ALL).action == "stay"
    odd = [GroupLoad(g.owner, 0.25 if g.owner == "a" else 0.1) for g in even]
    assert controller.consider(odd, MACHINES, ALL).forecast.skew == pytest.approx(1.4, abs=0.01)


def test_a_forecast_that_was_wrong_makes_it_ask_for_more():
    controller = BalanceController(60.0, BalancePolicy(rest=1))
    for _ in range(3):
        first = controller.consider(uneven(), MACHINES, ALL)
    assert first.action == "move"
    # Whatever was moved, the load stays where it was.
    actions = [controller.consider(uneven(), MACHINES, ALL).action for _ in range(6)]
    assert controller.mistrust == 2.0 and actions == ["stay"] * 5 + ["move"]


def test_the_papers_policy_moves_half_the_difference():
    request = paper_request({"a": 10.0, "b": 2.0, "c": 4.0}, "ptlb")
    assert request is not None and (request.sender, request.receiver, request.amount) == ("a", "b", 4.0)
    assert paper_request({"a": 10.0, "b": 10.0}, "ptlb") is None


@given(st.dictionaries(st.integers(0, 40), st.floats(0.1, 50), max_size=20), st.floats(0, 200))
def test_chosen_groups_come_nearer_to_the_amount_than_none(loads, amount):
    chosen = nearest_groups(loads, amount)
    total = sum(loads[g] for g in chosen)
    assert set(chosen) <= set(loads)
    assert abs(amount - total) <= amount or not chosen
    assert not any(g not in chosen and loads[g] <= amount - total for g in loads)
