"""Sums of floats, exact and then rounded once: the same rows give the same bits in every order.

Numbers that are not finite are summed by the rules of arithmetic, in which their order does not matter either.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from midstream.operators import exact_numbers as exact
from midstream.operators.accumulators import Measure
from midstream.operators.exact_numbers import Extent, Floats
from midstream.operators.parts import SweptPart, SweptParts
from midstream.operators.vectors import Numbers


def float_totals(parts: SweptParts) -> Floats:
    """The sum of the present values on every piece."""
    extent = reduce(Extent.joined, (exact.extent_of_floats(part.mantissas) for part in parts), exact.NO_EXTENT)
    bits = exact.sum_bits(parts.rows)
    total = _narrow(parts, extent, bits) if exact.fits(extent, bits) else _wide(parts, extent)
    if any(part.strange.any() for part in parts):
        total = total + parts.sweep(lambda part: Measure(np.where(part.strange, part.floats, 0.0), np.add, 0.0))
    return total


def _narrow(parts: SweptParts, extent: Extent, bits: int) -> Floats:
    if not extent.widest:
        return parts.sweep(lambda part: Measure(np.zeros(len(part.present)), np.add, 0.0))

    def digits(part: SweptPart) -> dict[int, Measure]:
        found = exact.digits_of_floats(part.mantissas, bits, extent).digits
        return {place: Measure(digit, np.add, 0, steps=True) for place, digit in enumerate(found)}

    negative, sums = exact.signed(list(parts.sweep_all(digits).values()), bits)
    nearest, sure = exact.rounded(exact.as_pair(sums, bits, len(negative)))
    total: Floats = np.ldexp(nearest, extent.exponent)
    # Numbers next to zero have fewer digits, so they would be rounded twice.
    for i in np.flatnonzero(~sure | ((nearest != 0) & (total < 2.0**-1000))).tolist():
        total[i] = exact.exact_quotient(exact.whole(sums, bits, i), 1, extent.exponent)
    return np.where(negative, -total, total)


def _wide(parts: SweptParts, extent: Extent) -> Floats:
    """The same in Python's integers, for numbers that are too far apart."""

    def integers(part: SweptPart) -> Measure:
        return Measure(exact.integers_of_floats(part.mantissas, extent), np.add, 0)

    sums: Numbers = parts.sweep(integers)
    return np.array([exact.exact_quotient(int(total), 1, extent.exponent) for total in sums])
