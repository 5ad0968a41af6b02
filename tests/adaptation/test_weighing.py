"""Orders of plan changes and moves: by what slots are predicted to have to do, and never worse than either alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.adaptation.weighing import Places, PlanChange, SlotChange, Terms, Weighed, weigh

HERE: Places = [[(0, 1.0)], [(0, 1.0)], [(0, 1.0)], [(1, 1.0)]]
"""Three groups in slot 0, one in slot 1."""

THERE: Places = [[(0, 1.0)], [(0, 1.0)], [(1, 1.0)], [(1, 1.0)]]
LOADS = [{"q": 0.2}] * 4


def ordered(*plans: PlanChange, price: float = 0.0, apart: str = "", exclude: bool = False) -> Weighed:
    return weigh(HERE, LOADS, 2, plans, SlotChange(THERE, price), Terms(600.0, 60.0, apart=apart, exclude=exclude))


def test_a_better_plan_for_all_slots_and_a_cheap_move_go_at_once():
    found = ordered(PlanChange("q", None, 0.5, 1.0), price=1.0)
    assert found.order == "both"
    assert found.fullest == pytest.approx({"now": 0.6, "plan": 0.3, "move": 0.4, "both": 0.2})
    assert found.reason.endswith("Both begin at once.") and "query q and the move" in found.reason
    assert found.as_dict()["order"] == "both" and set(found.as_dict()["seconds"]) == {"plan", "move", "both"}


def test_a_plan_that_takes_the_imbalance_away_goes_alone():
    found = ordered(PlanChange("q", 0, 1 / 3, 1.0))
    assert found.order == "plan" and found.fullest["plan"] < found.fullest["both"]
    assert "query q in slot 0" in found.reason and "groups wait" in found.reason


def test_a_move_that_leaves_a_plan_little_to_save_goes_alone():
    found = ordered(PlanChange("q", 0, 0.9, 150.0))
    assert found.order == "move" and "the plan waits" in found.reason


def test_a_dear_move_waits_for_the_plan():
    assert ordered(PlanChange("q", None, 0.5, 1.0), price=80.0).order == "plan"


@pytest.mark.parametrize(("ratio", "first"), [(0.3, "plan"), (0.85, "move")])
def test_what_cannot_go_at_once_goes_in_order_of_what_it_saves(ratio, first):
    found = ordered(PlanChange("q", None, ratio, 0.1), price=0.1, apart="its plans have several stages")
    assert found.order == first and "both" not in found.seconds
    assert "They cannot begin at once: its plans have several stages." in found.reason


def test_of_changes_that_exclude_each_other_the_better_one_stays_alone():
    plan = PlanChange("q", 0, 0.5, 0.1)
    following, alone = ordered(plan, apart="one slot's plan differs"), ordered(plan, apart="x", exclude=True)
    assert alone.seconds["move"] > following.seconds["move"] and alone.order == "plan"


def test_a_change_in_a_slot_that_is_not_the_fullest_goes_with_the_move():
    assert ordered(PlanChange("q", 1, 0.4, 0.1)).order == "both"


loads_of_groups = st.lists(
    st.fixed_dictionaries({"q": st.floats(0.0, 1.0), "r": st.floats(0.0, 1.0)}), min_size=1, max_size=8
)


@given(loads=loads_of_groups, data=st.data())
def test_an_order_is_never_worse_than_another_and_counts_all_costs(loads, data):
    slots = data.draw(st.integers(1, 4))
    slot = st.integers(0, slots - 1)
    here, there = ([[(data.draw(slot), 1.0)] for _ in loads] for _ in range(2))
    plans = [
        PlanChange(
            query, data.draw(st.one_of(st.none(), slot)), data.draw(st.floats(0.0, 2.0)), data.draw(st.floats(0, 9))
        )
        for query in data.draw(st.sampled_from([["q"], ["r"], ["q", "r"]]))
    ]
    price, apart = data.draw(st.floats(0, 9)), data.draw(st.sampled_from(["", "other stages"]))
    exclude = data.draw(st.booleans())
    found = weigh(here, loads, slots, plans, SlotChange(there, price), Terms(600.0, 60.0, apart=apart, exclude=exclude))
    assert found.seconds[found.order] == min(found.seconds.values())
    assert ("both" in found.seconds) == (not apart and not exclude)
    dearer = [PlanChange(p.query, p.slot, p.ratio, p.price + 1.0) for p in plans]
    more = weigh(
        here, loads, slots, dearer, SlotChange(there, price + 1.0), Terms(600.0, 60.0, apart=apart, exclude=exclude)
    )
    assert all(more.seconds[name] >= value for name, value in found.seconds.items())
    still = weigh(here, loads, slots, plans, SlotChange(here, 1.0), Terms(600.0, 60.0))
    assert still.seconds["both"] >= still.seconds["plan"], "a move that changes nothing is no reason to move"
