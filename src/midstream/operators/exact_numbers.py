"""Numbers as sums of digits in a power of two, and quotients of such sums rounded once.

A column of numbers is written as signed integers times one unit, a power of two. The integers are cut into digits of a
few bits, small enough that products of digits can be summed over all rows in 64 bits. Sums of digits are exact, so they
do not depend on an order, and may be taken back. What is made of them in the end is calculated in pairs of doubles with
a bound on its error; where that bound leaves open how to round, in Python's integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Pair = tuple[Floats, Floats]

MOST_DIGITS = 6
"""Wider numbers are summed as Python's integers."""

MANTISSA = 53
ERROR = 2.0**-90
"""More than the relative error of the few operations on pairs of doubles that lead to a result."""


@dataclass(frozen=True, slots=True)
class Digits:
    """Integers as digits of `bits` bits, lowest first, in units of `2 ** exponent`."""

    digits: tuple[Integers, ...]
    bits: int
    exponent: int = 0


def digit_bits(rows: int) -> int:
    """How many bits a digit may have if products of digits are to be summed over some rows."""
    return min(24, (61 - (rows * MOST_DIGITS).bit_length()) // 2)


def sum_bits(rows: int) -> int:
    """How many bits a digit may have if digits themselves are to be summed over some rows."""
    return min(48, 62 - rows.bit_length())


@dataclass(frozen=True, slots=True)
class Extent:
    """What numbers have in common: their unit, a power of two, and how many bits the widest of them has in it."""

    exponent: int
    widest: int

    def joined(self, other: Extent) -> Extent:
        """That of both together; numbers of no bits say nothing of the unit."""
        if not self.widest or not other.widest:
            return self if self.widest else other
        exponent = min(self.exponent, other.exponent)
        ends = (extent.exponent + extent.widest for extent in (self, other))
        return Extent(exponent, max(ends) - exponent)


NO_EXTENT = Extent(0, 0)


def extent_of_integers(values: Integers) -> Extent:
    """The extent of integers of 64 bits."""
    size = np.abs(values).view(np.uint64)  # the least integer is its own absolute value, which is right if unsigned
    return Extent(0, int(size.max()).bit_length() if len(size) else 0)


def digits_of_integers(values: Integers, bits: int, extent: Extent) -> Digits:
    """Integers of 64 bits, cut into digits."""
    size = np.abs(values).view(np.uint64)
    sign = np.where(values < 0, -1, 1)
    mask = np.uint64((1 << bits) - 1)
    parts = [((size >> np.uint64(at)) & mask).astype(np.int64) * sign for at in range(0, extent.widest, bits)]
    return Digits(tuple(parts), bits)


def mantissas(values: Floats) -> tuple[Integers, Integers]:
    """Finite floats as odd integers (or zero) times powers of two."""
    fraction, exponents = np.frexp(values)
    digits = np.ldexp(fraction, MANTISSA).astype(np.int64)
    lowest = np.maximum(digits & -digits, 1)
    zeros = np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1
    return digits >> zeros, np.where(digits == 0, 0, exponents.astype(np.int64) - MANTISSA + zeros)


def extent_of_floats(parts: tuple[Integers, Integers]) -> Extent:
    """The extent of floats, given as odd integers times powers of two."""
    odd, exponents = parts
    some = odd != 0
    if not some.any():
        return NO_EXTENT
    unit = int(exponents[some].min())
    widths = np.frexp(np.abs(odd).astype(np.float64))[1]
    return Extent(unit, int((np.where(some, exponents - unit, 0) + widths).max()))


def fits(extent: Extent, bits: int) -> bool:
    """Whether numbers are near enough to each other to be summed as digits."""
    return extent.widest <= MOST_DIGITS * bits


def digits_of_floats(parts: tuple[Integers, Integers], bits: int, extent: Extent) -> Digits:
    """Finite floats, given as odd integers times powers of two, cut into digits in the unit of an extent that fits."""
    odd, exponents = parts
    shifts = np.where(odd != 0, exponents - extent.exponent, 0)
    size, sign = np.abs(odd), np.where(odd < 0, -1, 1)
    found = tuple(_digit(size, shifts - at, bits) * sign for at in range(0, extent.widest, bits))
    return Digits(found, bits, extent.exponent)


def whole(digits: Sequence[Integers], bits: int, place: int) -> int:
    """One number of carried digits."""
    return sum(int(digit[place]) << (bits * i) for i, digit in enumerate(digits))


def integers_of_floats(parts: tuple[Integers, Integers], extent: Extent) -> npt.NDArray[np.object_]:
    """Finite floats, given as odd integers times powers of two, as Python's integers in the unit of an extent."""
    odd, exponents = parts
    shifts = np.where(odd != 0, exponents - extent.exponent, 0)
    pairs = zip(odd.tolist(), shifts.tolist(), strict=True)
    return np.array([integer << shift for integer, shift in pairs], dtype=object)


def _digit(size: Integers, shifts: Integers, bits: int) -> Integers:
    """The lowest digit of `size * 2 ** shift`."""
    mask = (1 << bits) - 1
    up, down = np.clip(shifts, 0, bits), np.clip(-shifts, 0, 63)
    found: Integers = np.where(shifts >= 0, (size & (mask >> up)) << up, (size >> down) & mask)
    return found


def products(digits: Sequence[Integers]) -> list[Integers]:
    """The digits of squares, not carried: each the sum of all products of digits that belong there."""
    found = [np.zeros_like(digits[0]) for _ in range(2 * len(digits) - 1)] if digits else []
    for i, a in enumerate(digits):
        for j, b in enumerate(digits):
            found[i + j] += a * b
    return found


def carried(digits: Sequence[Integers], bits: int) -> list[Integers]:
    """The absolute values of numbers, with digits from zero up to but not `2 ** bits`."""
    return signed(digits, bits)[1]


def signed(digits: Sequence[Integers], bits: int) -> tuple[Mask, list[Integers]]:
    """Which numbers are negative, and their absolute values with digits from zero up to but not `2 ** bits`."""
    mask = (1 << bits) - 1
    found, carry = _carry(digits, bits)
    while bool(((carry != 0) & (carry != -1)).any()):
        found.append(carry & mask)
        carry = carry >> bits
    negative = carry < 0
    if negative.any():
        # The digits of a negative number count up from a power of two below it.
        found = [np.where(negative, mask - digit, digit) for digit in found]
        if found:
            found[0] = found[0] + negative
        else:
            found = [negative.astype(np.int64)]
        found, carry = _carry(found, bits)
        if carry.any():
            found.append(carry)
    return negative, found


def _carry(digits: Sequence[Integers], bits: int) -> tuple[list[Integers], Integers]:
    mask = (1 << bits) - 1
    found: list[Integers] = []
    carry: Integers = np.zeros(len(digits[0]) if digits else 0, np.int64)
    for digit in digits:
        total = digit + carry
        found.append(total & mask)
        carry = total >> bits
    return found, carry


def as_pair(digits: Sequence[Integers], bits: int, length: int) -> Pair:
    """Numbers of carried digits as pairs of doubles."""
    high, low = np.zeros(length), np.zeros(length)
    for digit in reversed(digits):
        high, low = _sum(high * 2.0**bits, digit.astype(np.float64), low * 2.0**bits)
    return high, low


def product(a: Pair, b: Pair) -> Pair:
    """The product of two pairs."""
    high, error = _two_product(a[0], b[0])
    return _renormed(high, error + (a[0] * b[1] + a[1] * b[0]))


def quotient(a: Pair, b: Pair) -> Pair:
    """The quotient of two pairs, the second not zero."""
    high = a[0] / b[0]
    back, error = product((high, np.zeros_like(high)), b)
    low = ((a[0] - back) + (a[1] - error)) / b[0]
    return _renormed(high, low)


def root(a: Pair) -> Pair:
    """The square root of a pair that is not negative."""
    high = np.sqrt(a[0])
    square, error = _two_product(high, high)
    low = ((a[0] - square) - error + a[1]) / np.where(high > 0, 2 * high, 1.0)
    return _renormed(high, low)


def rounded(a: Pair) -> tuple[Floats, Mask]:
    """Pairs as doubles, and for which of them the error cannot have decided the rounding."""
    slack = np.abs(a[0]) * ERROR
    low, high = a[0] + (a[1] - slack), a[0] + (a[1] + slack)
    return low, low == high


def _sum(a: Floats, b: Floats, rest: Floats) -> Pair:
    high = a + b
    back = high - a
    error = (a - (high - back)) + (b - back)
    return _renormed(high, error + rest)


def _renormed(high: Floats, low: Floats) -> Pair:
    total = high + low
    return total, low - (total - high)


def _two_product(a: Floats, b: Floats) -> Pair:
    """The rounded product and exactly what was rounded off (Dekker)."""
    high = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return high, a_low * b_low - (((high - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _halves(a: Floats) -> Pair:
    scaled = a * 134217729.0  # 2 ** 27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def exact_quotient(numerator: int, denominator: int, exponent: int = 0) -> float:
    """`numerator / denominator * 2 ** exponent`, rounded once; infinity if it is too large."""
    if exponent >= 0:
        numerator <<= exponent
    else:
        denominator <<= -exponent
    try:
        return numerator / denominator
    except OverflowError:
        return np.inf if numerator > 0 else -np.inf


def exact_root(numerator: int, denominator: int, exponent: int = 0) -> float:
    """The square root of `numerator / denominator * 4 ** exponent`, rounded once."""
    shift = max(0, 70 + (denominator.bit_length() - numerator.bit_length()) // 2)
    square, rest = divmod(numerator << (2 * shift), denominator)
    found = isqrt(square)
    # One more bit says that something follows, so that what lies just above the middle is not taken for it.
    inexact = rest != 0 or found * found != square
    return exact_quotient(2 * found + inexact, 1, exponent - shift - 1)
