"""Sums of floats, exact and then rounded once: the same rows give the same bits in every order.

Numbers that are not finite are summed by the rules of arithmetic, in which their order does not matter either.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from midstream.operators import exact_numbers as exact
from midstream.operators.accumulators import Measure
from midstream.operators.elements import Mask
from midstream.operators.exact_numbers import Digits, Floats
from midstream.operators.vectors import Numbers

Sweeper = Callable[[Measure], Numbers]


def float_totals(values: Floats, present: Mask, sweep: Sweeper) -> Floats:
    """The sum of the present values on every piece."""
    finite = present & np.isfinite(values)
    numbers = np.where(finite, values, 0.0)
    digits = exact.digits_of_floats(numbers, exact.sum_bits(len(numbers)))
    total = _wide(numbers, sweep) if digits is None else _narrow(digits, numbers, sweep)
    strange = present & ~finite
    if strange.any():
        total = total + sweep(Measure(np.where(strange, values, 0.0), np.add, 0.0))
    return total


def _narrow(digits: Digits, numbers: Floats, sweep: Sweeper) -> Floats:
    if not digits.digits:
        return sweep(Measure(numbers, np.add, 0.0))
    bits, exponent = digits.bits, digits.exponent
    negative, sums = exact.signed([sweep(Measure(d, np.add, 0, steps=True)) for d in digits.digits], bits)
    nearest, sure = exact.rounded(exact.as_pair(sums, bits, len(negative)))
    total: Floats = np.ldexp(nearest, exponent)
    # Numbers next to zero have fewer digits, so they would be rounded twice.
    for i in np.flatnonzero(~sure | ((nearest != 0) & (total < 2.0**-1000))).tolist():
        total[i] = exact.exact_quotient(exact.whole(sums, bits, i), 1, exponent)
    return np.where(negative, -total, total)


def _wide(numbers: Floats, sweep: Sweeper) -> Floats:
    """The same in Python's integers, for numbers that are too far apart."""
    unit, integers = exact.integers_of_floats(numbers)
    sums = sweep(Measure(integers, np.add, 0))
    return np.array([exact.exact_quotient(int(total), 1, unit) for total in sums])
