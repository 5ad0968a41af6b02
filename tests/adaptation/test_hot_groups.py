"""Which groups are spread over slots: heat that lasts, a forecast that pays, and a look afterwards."""

from __future__ import annotations

from midstream.adaptation.decider import DeciderMemory, DecisionOutcome, DecisionVerdict, Now, decide, made
from midstream.adaptation.hot_groups import HotDealing, HotGroup, HotPolicy, Sharing, hot_groups
from midstream.codec import read, written

ROUTING = [group % 4 for group in range(16)]


class Looks:
    """Looks at 16 groups in four slots, one after the other, of which the first has a share of all work."""

    def __init__(self) -> None:
        self.memory, self.looks = DeciderMemory(), 0

    def look(
        self, share: float, slots: tuple[int, ...] = (), refusal: str = "", a: int = 90
    ) -> DecisionVerdict[Sharing]:
        loads = [share, *[(1 - share) / 15] * 15]
        busy = [sum(load for group, load in enumerate(loads) if group % 4 == slot) for slot in range(4)]
        if slots:
            busy[0] -= share
            for slot in slots:
                busy[slot] += share / len(slots)
        known, skew = {0: HotGroup(0, share, {"A": a, "B": 100 - a}, slots, "k = 7")}, max(busy) * 4 / sum(busy)
        found = hot_groups(known, HotDealing(ROUTING, loads, 4, skew), HotPolicy(), lambda hot, stream: refusal)
        self.looks += 1
        now, caution = Now(self.looks), HotPolicy().caution
        self.memory, verdict = decide(
            self.memory,
            now,
            found,
            caution,
            lambda name, watch: {name: DecisionOutcome(skew, watch.expected, watch.before)},
            "Nothing is hot.",
        )
        if verdict.candidate is not None and verdict.action != "stay":
            self.memory = made(self.memory, now, caution, verdict.candidate)
        return verdict


def test_a_group_is_spread_once_it_has_been_hot_for_a_while():
    looks = Looks()
    verdicts = [looks.look(0.4) for _ in range(3)]
    assert [verdict.action for verdict in verdicts] == ["stay", "stay", "spread"]
    made = verdicts[-1].candidate
    assert made is not None and made.expected is not None and made.expected < 0.8 * made.before
    assert (made.change.hot.group, made.change.stream, made.change.ways) == (0, "A", 4)
    assert "Group 0, with k = 7, has 1.60 times a slot's fair share." in verdicts[-1].reason


def test_heat_that_does_not_last_changes_nothing():
    looks = Looks()
    assert {looks.look(share).action for share in [0.4, 0.4, 0.05, 0.02, 0.4, 0.4, 0.02]} == {"stay"}
    assert looks.look(0.02).reason == "Nothing is hot."


def test_what_cannot_be_spread_says_why():
    looks = Looks()
    made = [looks.look(0.4, refusal="query q joins A with itself") for _ in range(4)][-1]
    assert made.action == "stay" and "It stays in one slot: query q joins A with itself" in made.reason


def test_spreading_the_smaller_side_does_not_pay():
    looks = Looks()
    made = [looks.look(0.4, a=50) for _ in range(4)][-1]
    assert made.action == "stay" and "not much less" in made.reason


def test_a_group_that_has_cooled_comes_home_and_is_not_spread_again_at_once():
    looks = Looks()
    for _ in range(3):
        looks.look(0.4)
    assert {looks.look(share, (0, 1, 2, 3)).action for share in [0.4, 0.3, 0.2, 0.2]} == {"stay"}
    found = [looks.look(0.1, (0, 1, 2, 3)).action for _ in range(3)]
    assert found == ["stay", "stay", "bring_home"]
    assert looks.memory.watches == {} and looks.memory.mistrust == {}
    looks.memory = read(DeciderMemory, written(looks.memory))
    assert {looks.look(0.4).action for _ in range(5)} == {"stay"}
    assert looks.look(0.4).action == "spread"


def test_spreading_that_did_not_help_is_undone_and_not_tried_again_for_long():
    looks = Looks()
    for _ in range(3):
        looks.look(0.4)
    found = [looks.look(0.6, (0,)) for _ in range(7)]  # it is as full as it was, and fuller
    assert [verdict.action for verdict in found].count("back") == 1
    assert {looks.look(0.6).action for _ in range(20)} == {"stay"}
