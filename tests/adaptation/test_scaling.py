"""How many slots a job should have: only after a while, within bounds, with a forecast that is looked at again."""

from __future__ import annotations

import pytest

import midstream as ms
from midstream.adaptation.scaling import ScaleController, ScalePolicy, SlotRange


def controller(text: str = "2..8") -> ScaleController:
    return ScaleController(SlotRange.of(text), ScalePolicy())


def decided(scaling: ScaleController, busy: float, slots: int, batches: int) -> list[str]:
    return [scaling.consider(busy, slots).action for _ in range(batches)]


@pytest.mark.parametrize("text", ["", "2", "2..", "..8", "2...8", "a..b", "2..8..9", "8..2", "0..4", "-1..4", "2.5..3"])
def test_a_malformed_range_is_refused(text):
    with pytest.raises(ms.MidstreamError, match="slots cannot be") as refused:
        SlotRange.of(text)
    assert refused.value.hint is not None and "2..8" in refused.value.hint


def test_slots_come_when_the_busiest_has_worked_for_a_while():
    scaling = controller()
    assert decided(scaling, 0.95, 2, 2) == ["stay", "stay"]
    decision = scaling.consider(0.95, 2)
    assert (decision.action, decision.slots) == ("more", 4)
    assert decision.expected == pytest.approx(0.475)
    assert decision.reason == (
        "The busiest of 2 slots works 95% of the time. With 4 slots it would be 48%; slots = 2..8."
    )


def test_slots_go_when_they_idle_and_never_beyond_the_bounds():
    scaling = controller()
    assert decided(scaling, 0.05, 6, 3) == ["stay", "stay", "fewer"]
    assert decided(scaling, 0.05, 2, 20) == ["stay"] * 20
    assert decided(scaling, 1.0, 8, 20) == ["stay"] * 20


def test_a_single_busy_batch_changes_nothing():
    scaling = controller()
    for _ in range(10):
        assert decided(scaling, 0.95, 4, 2) == ["stay", "stay"]
        assert decided(scaling, 0.5, 4, 1) == ["stay"]


def test_slots_rest_after_a_change_and_a_wrong_forecast_asks_for_more():
    scaling = controller()
    decided(scaling, 0.95, 2, 3)
    assert decided(scaling, 0.95, 4, 5) == ["stay"] * 5
    assert scaling.mistrust == 1
    assert decided(scaling, 0.5, 4, 1) == ["stay"] and scaling.mistrust == 1
    again = controller()
    decided(again, 0.95, 2, 3)
    assert decided(again, 0.95, 4, 6)[:5] == ["stay"] * 5
    assert again.mistrust == 2


def test_what_is_remembered_goes_through_a_manifest():
    scaling, other = controller(), controller()
    decided(scaling, 0.95, 2, 2)
    other.recall(scaling.to_json())
    assert other.consider(0.95, 2).action == "more"
