"""Reassigning partition groups to slots when one slot has more to do than others.

Groups move from the fullest slot to the emptiest, each the one that evens the two out best, until no slot has much more
than the mean or no move would help; then groups of two slots change places. So few groups move, and the load of a
single group, which cannot be divided, is the least that the fullest slot can have. Moving state costs work, so slots
must be uneven for a while before groups move by themselves, and by enough that it pays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

ENOUGH = 1.1
"""How far above the mean a slot may be without a group leaving it."""

EVEN = 1.01
"""The same where groups are dealt anew because it was asked for."""

PATIENCE = 3
"""For how many batches in a row a slot must be overfull before groups move by themselves."""

GAIN = 0.8
"""What part of its load the fullest slot may at most keep for a move to pay."""

MEMORY = 0.8
"""What part of a group's load is remembered from batch to batch."""


def slot_loads(routing: Sequence[int], loads: Sequence[float], slots: int) -> list[float]:
    """How much each slot has to do."""
    found = [0.0] * slots
    for slot, load in zip(routing, loads, strict=True):
        found[slot] += load
    return found


def skew(routing: Sequence[int], loads: Sequence[float], slots: int) -> float:
    """How many times the mean the fullest slot has.

    >>> skew([0, 0, 1, 1], [3, 3, 1, 1], 2)
    1.5
    """
    each = slot_loads(routing, loads, slots)
    mean = sum(each) / slots
    return max(each) / mean if mean else 1.0


def balanced(
    routing: Sequence[int], loads: Sequence[float], slots: int, fixed: Collection[int] = (), enough: float = ENOUGH
) -> tuple[int, ...]:
    """The groups dealt so that no slot has `enough` times the mean, as far as groups allow; `fixed` ones stay.

    >>> balanced([0, 0, 0, 1], [4, 3, 3, 2], 2)
    (1, 0, 0, 1)
    >>> balanced([0, 0, 1, 1], [5, 4, 4, 2], 2, enough=1.0)  # the 5 and the 4 of the other slot change places
    (1, 0, 0, 1)
    """
    dealt = list(routing)
    each = slot_loads(dealt, loads, slots)
    most = enough * sum(each) / slots
    for _ in range(2 * len(dealt)):
        full, empty = each.index(max(each)), each.index(min(each))
        gap = each[full] - each[empty]
        if each[full] <= most:
            break
        movable = [g for g, slot in enumerate(dealt) if slot == full and 0 < loads[g] < gap and g not in fixed]
        if movable:
            chosen: tuple[int, ...] = (min(movable, key=lambda g: abs(gap / 2 - loads[g])),)
        else:
            chosen = _exchanged(dealt, loads, each, full, fixed)
        if not chosen:
            break
        to = (empty,) if movable else (dealt[chosen[1]], full)
        for group, slot in zip(chosen, to, strict=True):
            each[dealt[group]] -= loads[group]
            each[slot] += loads[group]
            dealt[group] = slot
    return tuple(dealt)


def _exchanged(
    dealt: Sequence[int], loads: Sequence[float], each: Sequence[float], full: int, fixed: Collection[int]
) -> tuple[int, ...]:
    """The groups of the fullest slot and of another that even the two out best by changing places; none if none do."""
    own = [g for g, slot in enumerate(dealt) if slot == full and g not in fixed]
    for other in sorted(set(range(len(each))) - {full}, key=lambda slot: each[slot]):
        theirs = [g for g, slot in enumerate(dealt) if slot == other and g not in fixed]
        if not own or not theirs:
            continue
        gap = each[full] - each[other]
        less = np.subtract.outer([loads[g] for g in own], [loads[g] for g in theirs])
        # A difference that is only rounding would have groups change places without end.
        fits = (less > gap * 1e-6) & (less < gap * (1 - 1e-6))
        if fits.any():
            best = int(np.where(fits, np.abs(gap / 2 - less), np.inf).argmin())
            return own[best // len(theirs)], theirs[best % len(theirs)]
    return ()
