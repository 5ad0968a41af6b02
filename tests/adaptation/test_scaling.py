"""How many slots a job should have: only after a while, within bounds, with a forecast that is looked at again."""

from __future__ import annotations

import pytest

import midstream as ms
from midstream.adaptation.decider import DeciderMemory, DecisionOutcome, DecisionVerdict, Now, decide, made
from midstream.adaptation.scaling import ScalePolicy, SlotRange, slot_numbers
from midstream.codec import read, written


class Looks:
    """Batches in which the busiest slot was busy for a part of the time."""

    def __init__(self, text: str = "2..8") -> None:
        self.among, self.memory, self.looks = SlotRange.of(text), DeciderMemory(), 0

    def look(self, busy: float, slots: int) -> DecisionVerdict[int]:
        self.looks += 1
        now, policy = Now(self.looks), ScalePolicy()
        found = slot_numbers(busy, slots, self.among, policy)
        self.memory, verdict = decide(
            self.memory, now, found, policy.caution, lambda name, watch: {name: DecisionOutcome(busy, watch.expected)}
        )
        if verdict.candidate is not None and verdict.action != "stay":
            self.memory = made(self.memory, now, policy.caution, verdict.candidate)
        return verdict

    def decided(self, busy: float, slots: int, batches: int) -> list[str]:
        return [self.look(busy, slots).action for _ in range(batches)]


@pytest.mark.parametrize("text", ["", "2", "2..", "..8", "2...8", "a..b", "2..8..9", "8..2", "0..4", "-1..4", "2.5..3"])
def test_a_malformed_range_is_refused(text):
    with pytest.raises(ms.MidstreamError, match="slots cannot be") as refused:
        SlotRange.of(text)
    assert refused.value.hint is not None and "2..8" in refused.value.hint


def test_slots_come_when_the_busiest_has_worked_for_a_while():
    looks = Looks()
    assert looks.decided(0.95, 2, 2) == ["stay", "stay"]
    made = looks.look(0.95, 2)
    assert made.action == "more" and made.candidate is not None
    assert made.candidate.change == 4 and made.candidate.expected == pytest.approx(0.475)
    assert made.reason == "The busiest of 2 slots works 95% of the time. With 4 slots it would be 48%; slots = 2..8."


def test_slots_go_when_they_idle_and_never_beyond_the_bounds():
    looks = Looks()
    assert looks.decided(0.05, 6, 3) == ["stay", "stay", "fewer"]
    assert looks.decided(0.05, 2, 20) == ["stay"] * 20
    assert looks.decided(1.0, 8, 20) == ["stay"] * 20


def test_a_single_busy_batch_changes_nothing():
    looks = Looks()
    for _ in range(10):
        assert looks.decided(0.95, 4, 2) == ["stay", "stay"]
        assert looks.decided(0.5, 4, 1) == ["stay"]


def test_slots_rest_after_a_change_and_a_wrong_forecast_asks_for_more():
    right, wrong = Looks(), Looks()
    for looks in (right, wrong):
        assert looks.decided(0.95, 2, 3)[-1] == "more"
        assert looks.decided(0.95, 4, 5) == ["stay"] * 5
    right.look(0.5, 4)
    wrong.look(0.95, 4)
    assert right.memory.mistrust == {} and wrong.memory.mistrust["more"] == pytest.approx(2.0)


def test_what_is_remembered_goes_through_a_manifest():
    looks, other = Looks(), Looks()
    looks.decided(0.95, 2, 2)
    other.memory, other.looks = read(DeciderMemory, written(looks.memory)), looks.looks
    assert other.memory == looks.memory and other.look(0.95, 2).action == "more"
