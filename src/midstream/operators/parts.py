"""What an aggregate looks at, in parts that fit into memory.

A measure is combined over rows by an associative operation that knows no order. So the measures of some of the rows,
taken on the same pieces of time, combine to that of all rows, however these are divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from midstream.operators import exact_numbers as exact
from midstream.operators.accumulators import Measure, as_floats, decimal_words, present_in
from midstream.operators.elements import Indices, Mask
from midstream.operators.exact_numbers import Floats, Integers
from midstream.operators.sweep import Sweep
from midstream.operators.vectors import Numbers, numbers_of, validity_of

K = TypeVar("K")
T = TypeVar("T")


class SweptRows:
    """How rows of a slice are swept: the pieces, the rows swept one by one, and the groups that enter as one."""

    def __init__(self, pieces: Sweep, groups: Indices, single: Indices, whole: Indices, merged: Indices) -> None:
        self.pieces = pieces
        self.groups = groups
        self.single = single
        self.whole = whole
        self.merged = merged

    def sweep(self, measure: Measure) -> Numbers:
        """A measure over every piece."""
        extra = measure.values[:0]
        if len(self.whole):
            count = int(self.groups.max()) + 1
            extra = measure.at(self.whole).merged(self.groups[self.whole], count)[self.merged]
        return measure.at(self.single).swept(self.pieces, extra)


class SweptPart:
    """Some of the rows: a column of theirs, which of them count, and how they are swept."""

    def __init__(self, column: pa.Array | None, present: Mask, layout: SweptRows) -> None:
        self.column = column
        self.present = present
        self.layout = layout

    @property
    def values(self) -> pa.Array:
        """The column, of an aggregate that has one."""
        assert self.column is not None
        return self.column

    @cached_property
    def integers(self) -> Integers:
        """The column's integers; zero where none counts."""
        return np.where(self.present, numbers_of(self.values).astype(np.int64), 0)

    @cached_property
    def words(self) -> Integers | None:
        """The column's decimals in units of the last place; None if one is wider than 64 bits."""
        return decimal_words(self.values, self.present)

    @cached_property
    def floats(self) -> Floats:
        """The column's numbers in double precision."""
        return as_floats(self.values)

    @cached_property
    def finite(self) -> Mask:
        """Which numbers that count are finite."""
        return self.present & np.isfinite(self.floats)

    @cached_property
    def mantissas(self) -> tuple[Integers, Integers]:
        """The finite numbers that count, and zeros for the others, as odd integers times powers of two."""
        return exact.mantissas(np.where(self.finite, self.floats, 0.0))

    @property
    def strange(self) -> Mask:
        """Which numbers that count are not finite."""
        return self.present & ~self.finite


@dataclass(frozen=True, slots=True)
class Argument:
    """What an aggregate looks at: a column, if it has one, of the rows for which the column `where` is true."""

    column: str | None = None
    where: str | None = None
    distinct: bool = False
    kind: pa.DataType | None = None

    def part(self, columns: pa.RecordBatch, layout: SweptRows) -> SweptPart:
        """What it looks at of some rows."""
        column = None if self.column is None else columns.column(self.column)
        return SweptPart(column, self.present(columns), layout)

    def present(self, columns: pa.RecordBatch) -> Mask:
        """The rows that count."""
        column = None if self.column is None else columns.column(self.column)
        return present_in(column, columns.num_rows, self.chosen(columns))

    def chosen(self, columns: pa.RecordBatch) -> Mask | None:
        """The rows that its filter lets through; None: all."""
        if self.where is None:
            return None
        column = columns.column(self.where)
        valid = validity_of(column)
        true = numbers_of(column).astype(bool)
        return true if valid is None else true & valid


ALL_ROWS = Argument()


@dataclass(frozen=True, slots=True)
class SweptParts:
    """All rows that an aggregate looks at, read as often as it asks; `rows` is how many they are at most.

    `known` has what several aggregates ask for, by name; `several` says that there may be more than one part.
    """

    argument: Argument
    rows: int
    read: Callable[[], Iterable[SweptPart]]
    known: dict[object, Any]
    several: bool = False

    def __iter__(self) -> Iterator[SweptPart]:
        return iter(self.read())

    def sweep(self, measure: Callable[[SweptPart], Measure]) -> Numbers:
        """A measure of all rows over every piece."""
        total: Numbers | None = None
        for part in self:
            taken = measure(part)
            found = part.layout.sweep(taken)
            total = found if total is None else taken.operation(total, found)
        assert total is not None
        return total

    def sweep_all(self, measures: Callable[[SweptPart], Mapping[K, Measure]]) -> dict[K, Numbers]:
        """The sums of several measures over every piece, by name; one that a part does not have is zero there."""
        totals: dict[K, Numbers] = {}
        for part in self:
            for name, measure in measures(part).items():
                found = part.layout.sweep(measure)
                totals[name] = totals[name] + found if name in totals else found
        return totals

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What is known of the argument under a name; worked out where it is not."""
        whole = (name, self.argument)
        if whole not in self.known:
            self.known[whole] = make()
        return self.known[whole]  # type: ignore[no-any-return]

    @property
    def count(self) -> Integers:
        """How many values count, on every piece."""
        return self.once("count", self._counted)

    def _counted(self) -> Integers:
        if not self.several and self.argument != ALL_ROWS and not self.argument.distinct:
            (part,) = self
            if part.present.all():
                return SweptParts(ALL_ROWS, self.rows, self.read, self.known).count
        return self.sweep(lambda part: count_measure(part.present))


def count_measure(present: Mask) -> Measure:
    """How many rows have a value."""
    return Measure(present.astype(np.int64), np.add, 0, steps=True)
