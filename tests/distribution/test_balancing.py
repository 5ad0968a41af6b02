"""Dealing partition groups: the fullest slot only gets emptier, and stops only where no move or exchange helps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from midstream.distribution.balancing import EVEN, balanced, skew, slot_loads

dealings = st.integers(2, 5).flatmap(
    lambda slots: st.tuples(
        st.just(slots),
        st.lists(st.tuples(st.integers(0, slots - 1), st.integers(0, 40)), min_size=slots, max_size=24),
        st.sets(st.integers(0, 23), max_size=4),
    )
)


@given(dealings)
def test_the_fullest_slot_is_never_fuller_and_fixed_groups_stay(drawn):
    slots, groups, fixed = drawn
    routing, loads = [slot for slot, _ in groups], [float(load) for _, load in groups]
    dealt = balanced(routing, loads, slots, fixed, EVEN)
    assert max(slot_loads(dealt, loads, slots)) <= max(slot_loads(routing, loads, slots))
    assert all(dealt[group] == routing[group] for group in fixed if group < len(routing))


@given(dealings)
def test_no_exchange_with_another_slot_would_make_the_fullest_slot_emptier(drawn):
    slots, groups, fixed = drawn
    loads = [float(load) for _, load in groups]
    dealt = balanced([slot for slot, _ in groups], loads, slots, fixed, EVEN)
    each = slot_loads(dealt, loads, slots)
    fullest = max(each)
    if fullest <= EVEN * sum(each) / slots or each.count(fullest) > 1:
        return
    full = each.index(fullest)
    for group, slot in enumerate(dealt):
        for other, place in enumerate(dealt):
            if slot == full and place != full and not {group, other} & fixed:
                less = loads[group] - loads[other]
                assert not 0 < less < fullest - each[place]


def test_groups_that_are_too_large_to_move_change_places():
    assert skew(balanced([0, 0, 1, 1], [5, 4, 4, 2], 2, enough=EVEN), [5, 4, 4, 2], 2) < 1.1
