"""What each aggregate needs to know of a piece of time, and how it follows from the elements that cover it.

An aggregate is made of measures: a count, a sum, a least value. A measure is taken of every row, can be combined over
rows that share a group (so that rows which cover a whole slice enter it as one), and swept over the pieces. Integers
are summed in steps, exactly, and so are floats as digits; least values are only ever combined, never taken back.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import InputError
from midstream.operators.elements import Indices, Mask
from midstream.operators.sweep import Sweep
from midstream.operators.vectors import Numbers, column_of, is_number_like, numbers_of, validity_of

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_EXACT = decimal.Context(prec=200)
"""Python rounds decimals to 28 digits unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number per row: `steps` for exact integers, otherwise an operation and its neutral value."""

    values: Numbers
    operation: np.ufunc
    neutral: float | int
    steps: bool = False

    def merged(self, groups: Indices, count: int) -> Numbers:
        """The measure of each group's rows taken together."""
        total = np.full(count, self.neutral, dtype=self.values.dtype)
        self.operation.at(total, groups, self.values)
        return total

    def swept(self, pieces: Sweep, extra: Numbers) -> Numbers:
        """The measure of each piece, over the rows and some extra entries behind them."""
        values = np.concatenate([self.values, extra]) if len(extra) else self.values
        if self.steps:
            return pieces.steps(values)
        return pieces.combine(values, self.operation, self.neutral)

    def at(self, rows: Indices) -> Measure:
        """The measure of some of the rows."""
        return Measure(self.values[rows], self.operation, self.neutral, self.steps)


def integer_sum(values: Integers, wide: bool) -> Measure:
    """The exact sum of integers; `wide` if it could leave 64 bits."""
    return Measure(values.astype(object), np.add, 0) if wide else Measure(values, np.add, 0, steps=True)


def largest_sum(values: Integers) -> int:
    """What no sum of some of the integers exceeds, whatever its sign."""
    return max(abs(int(values.max())), abs(int(values.min()))) * len(values) if len(values) else 0


def decimal_sum(column: pa.Array, present: Mask, words: Integers | None) -> Measure:
    """The exact sum of decimals, as integers in units of the last place: words of 64 bits if no sum is wider."""
    if words is not None:
        return Measure(words, np.add, 0, steps=True)
    scale = column.type.scale
    units = [0 if v is None else int(v.scaleb(scale, _EXACT)) for v in column.to_pylist()]
    values = np.array(units, dtype=object)
    return Measure(np.where(present, values, 0), np.add, 0)


def decimal_words(column: pa.Array, present: Mask) -> Integers | None:
    """Decimals in units of the last place, zero where none counts; None if one is wider than 64 bits."""
    if not pa.types.is_decimal128(column.type):
        return None
    if len(column) == 0:
        return np.empty(0, np.int64)
    halves = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = halves.reshape(-1, 2).T
    if not bool(((low >> 63) == high)[present].all()):
        return None
    return np.where(present, low, 0)


def extreme(numbers: Numbers, present: Mask, least: bool) -> Measure:
    """The least or greatest number."""
    if numbers.dtype.kind == "f":
        neutral: float | int = np.inf if least else -np.inf
        # NaN counts as greater than every number, and minimum and maximum would spread it.
        operation = np.fmin if least else np.maximum
        if least:
            neutral = np.nan
        return Measure(np.where(present, numbers, neutral), operation, neutral)
    wide = numbers.astype(np.int64)
    bound = np.iinfo(np.int64)
    neutral = bound.max if least else bound.min
    return Measure(np.where(present, wide, neutral), np.minimum if least else np.maximum, neutral)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A column as numbers in its order, and the way back."""

    numbers: Numbers
    values: pa.Array | None
    kind: pa.DataType

    def column(self, numbers: Numbers, valid: Mask) -> pa.Array:
        """Values for numbers, null where not valid."""
        if self.values is None:
            if pa.types.is_boolean(self.kind):
                return pa.array(numbers.astype(bool), pa.bool_(), mask=~valid)
            if pa.types.is_floating(self.kind):
                return pa.array(numbers, self.kind, mask=~valid)
            return column_of(np.where(valid, numbers, 0), self.kind, valid)
        places = pa.array(np.where(valid, numbers, 0).astype(np.int64), mask=~valid)
        return self.values.take(places)


def ranked(column: pa.Array) -> Ranked:
    """Numbers that compare as the column's values do."""
    if is_number_like(column.type) and not pa.types.is_unsigned_integer(column.type):
        return Ranked(numbers_of(column), None, column.type)
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.empty(len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    places = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False) if len(column) else np.empty(0, np.int64)
    numbers = ranks[places] if len(ranks) else np.zeros(len(column), np.int64)
    return Ranked(numbers, encoded.dictionary.take(order), column.type)


def further(one: pa.Array, other: pa.Array, least: bool) -> pa.Array:
    """The lesser, or the greater, of two columns' values at each place; what is null does not count."""
    both = pa.concat_arrays([one, other])
    order, valid = ranked(both), present_in(both, len(both), None)
    measure, count = extreme(order.numbers, valid, least), len(one)
    numbers = measure.operation(measure.values[:count], measure.values[count:])
    return order.column(numbers, valid[:count] | valid[count:])


def decimals(units: Numbers, kind: pa.DataType, valid: Mask) -> pa.Array:
    """Decimals from integers in units of the last place."""
    if units.dtype == np.int64:
        halves = np.empty((len(units), 2), np.int64)
        halves[:, 0], halves[:, 1] = units, units >> 63
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(kind, len(units), [bits, pa.py_buffer(halves)])
    values = [Decimal(int(u)).scaleb(-kind.scale, _EXACT) if ok else None for u, ok in zip(units, valid, strict=True)]
    try:
        return pa.array(values, kind)
    except pa.ArrowInvalid as error:
        raise InputError("decimal overflow in sum", detail=str(error)) from None


def integers(values: Numbers, valid: Mask) -> pa.Array:
    """A column of 64-bit integers; refuses what does not fit."""
    if values.dtype == object:
        bad = [v for v, ok in zip(values, valid, strict=True) if ok and not -(2**63) <= v < 2**63]
        if bad:
            raise InputError("integer overflow in sum", detail=f"the sum {bad[0]} does not fit into 64 bits")
        values = np.array([int(v) if ok else 0 for v, ok in zip(values, valid, strict=True)], np.int64)
    return column_of(values, pa.int64(), None if valid.all() else valid)


def present_in(column: pa.Array | None, length: int, where: Mask | None) -> Mask:
    """Which rows an aggregate looks at: those with a value that its filter lets through."""
    present = np.ones(length, bool)
    if column is not None:
        valid = validity_of(column)
        if valid is not None:
            present &= valid
    if where is not None:
        present &= where
    return present


def as_floats(column: pa.Array) -> Floats:
    """A numeric column in double precision; arbitrary where null."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return numbers_of(column).astype(np.float64)
