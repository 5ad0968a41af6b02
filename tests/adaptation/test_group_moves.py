"""Moves of groups: uneven loads are evened out if that lasts and pays, and the cheaper protocol is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.adaptation.decider import (
    Candidate,
    Caution,
    DeciderMemory,
    DecisionOutcome,
    DecisionVerdict,
    Now,
    decide,
    made,
)
from midstream.adaptation.group_moves import NAME, BalancePolicy, GroupLoad, GroupMoves, MoveTerms, group_moves
from midstream.lab.experiments.dcape_policy import paper_request
from midstream.lab.papers.partitioned_load_balancing.protocols.processor import nearest_groups

CAUTION = Caution()
ALL = ("ptlb", "mslb", "split_time_balancing")


def uneven(heavy: int = 12, rate: float = 1000.0, rows: float = 1e4) -> list[GroupLoad]:
    """Slot 0 has most groups."""
    return [GroupLoad(owner, 0.07, rows, 100 * rows, rate) for owner in [0] * heavy + [1, 1, 2, 2]]


def proposed(groups: list[GroupLoad], policy: BalancePolicy | None = None, **terms: object) -> Candidate[GroupMoves]:
    found = MoveTerms(**{"protocols": ALL, "window": 60.0, **terms})  # type: ignore[arg-type]
    return group_moves(groups, 3, found, policy or BalancePolicy())


class Looks:
    """Looks at groups, one after the other."""

    def __init__(self, caution: Caution = CAUTION) -> None:
        self.policy, self.memory, self.looks = BalancePolicy(caution=caution), DeciderMemory(), 0

    def look(self, groups: list[GroupLoad], under_way: str = "") -> DecisionVerdict[GroupMoves]:
        fixed = {int(group) for group, until in self.memory.resting.items() if until > self.looks}
        found = group_moves(groups, 3, MoveTerms(ALL, 60.0), self.policy, fixed, under_way)
        self.looks += 1
        now, caution = Now(self.looks), self.policy.caution
        self.memory, verdict = decide(
            self.memory,
            now,
            [found],
            caution,
            lambda name, watch: {name: DecisionOutcome(found.before, watch.expected)},
        )
        if verdict.action == "move":
            self.memory = made(self.memory, now, caution, found)
        return verdict


def test_many_groups_go_to_several_slots_at_once():
    found = proposed(uneven())
    assert not found.against and set(found.change.pairs) == {(0, 1), (0, 2)}
    moved = [group for groups in found.change.pairs.values() for group in groups]
    assert len(moved) == len(set(moved)) >= 6
    assert found.before > 2 and found.change.expected_skew < 1.2
    assert "2.25 times the mean" in found.fact and "Moving" in found.done
    assert found.change.as_dict(256)["moves"][0]["protocol"] in ALL and found.change.as_dict()["moves"] == []


def test_it_waits_until_unevenness_has_lasted():
    looks = Looks()
    verdicts = [looks.look(uneven()) for _ in range(3)]
    assert [verdict.action for verdict in verdicts] == ["stay", "stay", "move"]
    assert "waiting for 3" in verdicts[1].reason


def test_even_slots_stay_as_they_are():
    assert "not worth" in proposed(uneven(heavy=2)).against


def test_one_group_that_cannot_be_divided_is_not_moved_about():
    assert proposed([GroupLoad(0, 0.9), GroupLoad(1, 0.05), GroupLoad(2, 0.05)]).against


def test_a_move_that_costs_more_than_it_saves_is_left_alone():
    looks = Looks()
    verdict = [looks.look(uneven(rows=1e9, rate=1e7)) for _ in range(5)][-1]
    assert verdict.action == "stay" and "it would save" in verdict.reason


def test_rates_that_have_fallen_favour_ptlb_and_an_overloaded_sender_mslb():
    assert proposed(uneven(rows=1e5, rate=5.0)).change.protocol == "ptlb"
    busy = [GroupLoad(g.owner, 4 * g.seconds, 1e3, 1e5, 5_000.0) for g in uneven()]
    assert proposed(busy).change.protocol == "mslb"


def test_a_long_queue_at_the_sender_speaks_against_mslb():
    groups, two = uneven(rows=1e4, rate=100.0), ("ptlb", "mslb")
    assert proposed(groups, protocols=two).change.protocol == "mslb"
    assert proposed(groups, protocols=two, queued={0: 40.0}).change.protocol == "ptlb"


def test_bytes_count_where_time_is_even():
    sizes = zip([0, 0, 0, 1, 1, 1, 2, 2, 2], [9e6] * 3 + [1e5] * 6, strict=True)
    groups = [GroupLoad(owner, 0.1, 1e4, size, 10.0) for owner, size in sizes]
    assert "not worth" in proposed(groups, BalancePolicy(memory_share=0.0)).against
    found = proposed(groups, BalancePolicy(memory_share=0.9))
    assert found.change.expected_skew < found.before


def test_groups_rest_after_a_move_and_do_not_go_back_and_forth():
    looks, groups, moves = Looks(), uneven(), 0
    for _ in range(20):
        verdict = looks.look(groups)
        if verdict.action == "move" and verdict.candidate is not None:
            moves += 1
            groups = [replace(g, owner=place) for g, place in zip(groups, verdict.candidate.change.places, strict=True)]
    assert moves == 1


def test_nothing_is_begun_while_groups_are_under_way():
    looks = Looks(Caution(1))
    verdict = looks.look(uneven(), "Groups are under way.")
    assert verdict.action == "stay" and verdict.reason.endswith("Groups are under way. Staying.")
    assert looks.look(uneven()).action == "move"


def test_groups_that_rest_count_where_they_are_but_do_not_move():
    found = group_moves(uneven(), 3, MoveTerms(ALL, 60.0), BalancePolicy(), range(6))
    assert not found.against and not any(group < 6 for groups in found.change.pairs.values() for group in groups)


def test_a_forecast_that_was_wrong_makes_it_ask_for_more():
    looks = Looks(Caution(rest=1, settled=1))
    assert [looks.look(uneven()).action for _ in range(3)] == ["stay", "stay", "move"]
    # Whatever was moved, the load stays where it was.
    actions = [looks.look(uneven()).action for _ in range(8)]
    assert looks.memory.mistrust == {} or looks.memory.mistrust[NAME] > 1.5
    assert actions.index("move") >= 5


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


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_all_groups_in_one_slot_are_dealt_to_all(slots):
    groups = [GroupLoad(0, 0.1) for _ in range(20)]
    found = group_moves(groups, slots, MoveTerms(ALL, 60.0), BalancePolicy())
    assert (not found.against) == (slots > 1)
    assert set(found.change.places) == set(range(slots))
