"""Which groups are spread over slots: heat that lasts, a forecast that pays, and a look afterwards."""

from __future__ import annotations

from midstream.adaptation.hot_groups import HotController, HotDecision, HotGroup

ROUTING = [group % 4 for group in range(16)]


def look(
    controller: HotController, share: float, slots: tuple[int, ...] = (), refusal: str = "", a: int = 90
) -> HotDecision:
    """A look at 16 groups in four slots, of which the first has a share of all work."""
    loads = [share, *[(1 - share) / 15] * 15]
    busy = [sum(load for group, load in enumerate(loads) if group % 4 == slot) for slot in range(4)]
    if slots:
        busy[0] -= share
        for slot in slots:
            busy[slot] += share / len(slots)
    known = {0: HotGroup(share, {"A": a, "B": 100 - a}, slots, "k = 7")}
    return controller.consider(known, ROUTING, loads, busy, lambda stream: refusal)


def test_a_group_is_spread_once_it_has_been_hot_for_a_while():
    controller = HotController()
    decisions = [look(controller, 0.4) for _ in range(3)]
    assert [decision.action for decision in decisions] == ["stay", "stay", "spread"]
    made = decisions[-1]
    assert (made.group, made.stream, made.ways) == (0, "A", 4)
    assert made.expected_skew < 0.8 * made.skew
    assert "Group 0, with k = 7, has 1.60 times a slot's fair share." in made.reason


def test_heat_that_does_not_last_changes_nothing():
    controller = HotController()
    shares = [0.4, 0.4, 0.05, 0.02, 0.4, 0.4, 0.02]
    assert {look(controller, share).action for share in shares} == {"stay"}


def test_what_cannot_be_spread_says_why():
    controller = HotController()
    for _ in range(4):
        made = look(controller, 0.4, refusal="query q joins A with itself")
    assert made.action == "stay"
    assert "It stays in one slot: query q joins A with itself" in made.reason


def test_spreading_the_smaller_side_does_not_pay():
    controller = HotController()
    for _ in range(4):
        made = look(controller, 0.4, a=50)
    assert made.action == "stay"
    assert "not much less" in made.reason


def test_a_group_that_has_cooled_comes_home_and_is_not_spread_again_at_once():
    controller = HotController()
    for _ in range(3):
        look(controller, 0.4)
    assert {look(controller, share, (0, 1, 2, 3)).action for share in [0.4, 0.3, 0.2, 0.2]} == {"stay"}
    found = [look(controller, 0.1, (0, 1, 2, 3)) for _ in range(6)]
    assert "bring_home" in [decision.action for decision in found]
    controller = restored(controller)
    assert {look(controller, 0.4).action for _ in range(5)} == {"stay"}
    assert look(controller, 0.4).action == "spread"


def test_spreading_that_did_not_help_is_undone_and_not_tried_again_for_long():
    controller = HotController()
    for _ in range(3):
        look(controller, 0.4)
    found = [look(controller, 0.6, (0,)) for _ in range(7)]  # it is as full as it was, and fuller
    assert found[-1].action == "stay" or found[-1].action == "bring_home"
    assert [d.action for d in found].count("bring_home") == 1
    assert {look(controller, 0.6).action for _ in range(20)} == {"stay"}


def restored(controller: HotController) -> HotController:
    """A controller that goes on from what a manifest says of another."""
    other = HotController()
    other.recall(controller.to_json())
    assert other.to_json() == controller.to_json()
    return other
