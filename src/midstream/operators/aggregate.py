"""Grouped and global aggregation over what is valid, piece of time by piece of time.

A group's value is constant between two neighbouring starts or ends of its elements. Rows that are valid throughout a
slice enter it as one entry per group; only rows that start or end within it are swept one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import AggregateFunction
from midstream.algebra.windows import Hop
from midstream.errors import InputError, InternalError
from midstream.operators.accumulators import (
    Measure,
    as_floats,
    count_measure,
    decimal_sum,
    decimals,
    extreme,
    integer_sum,
    integers,
    present_in,
    ranked,
)
from midstream.operators.elements import Elements, Indices, Mask
from midstream.operators.float_sums import float_totals
from midstream.operators.ordering import group_rows, total_order
from midstream.operators.slices import KeyedSliceOperator
from midstream.operators.spread import Spread, SpreadOf
from midstream.operators.state.alive import Alive
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import Sweep, join_neighbours, sweep
from midstream.operators.vectors import Numbers, gather, numbers_of, validity_of


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """An aggregate over columns of the operator's input; `where` names a boolean column that must be true."""

    function: str
    columns: tuple[str, ...]
    type: pa.DataType
    distinct: bool = False
    where: str | None = None
    user: AggregateFunction | None = None


class Layout:
    """How a slice's rows are swept: the pieces, the rows swept one by one, and the groups that enter as one.

    Measures that several aggregates share are swept once.
    """

    def __init__(self, pieces: Sweep, groups: Indices, single: Indices, whole: Indices, merged: Indices) -> None:
        self.pieces = pieces
        self.groups = groups
        self.single = single
        self.whole = whole
        self.merged = merged
        self.known: dict[tuple[object, ...], Numbers] = {}
        self.spreads: dict[tuple[object, ...], Spread] = {}

    def sweep(self, measure: Measure) -> Numbers:
        """A measure over every piece."""
        extra = measure.values[:0]
        if len(self.whole):
            count = int(self.groups.max()) + 1
            extra = measure.at(self.whole).merged(self.groups[self.whole], count)[self.merged]
        return measure.at(self.single).swept(self.pieces, extra)

    def once(self, name: tuple[object, ...], measure: Callable[[], Measure]) -> Numbers:
        """A measure over every piece, remembered by name."""
        if name not in self.known:
            self.known[name] = self.sweep(measure())
        return self.known[name]


@dataclass(frozen=True, slots=True)
class Argument:
    """What an aggregate looks at: a column, which of its rows count, and a name for both."""

    column: pa.Array | None
    present: Mask
    name: tuple[object, ...]


class GroupAggregate(KeyedSliceOperator):
    """Aggregates by key columns, or over everything if there are none."""

    name = "aggregate"

    def __init__(
        self, schema: pa.Schema, kept: SortedState, keys: Sequence[str], specs: Sequence[AggregateSpec], grid: Hop
    ) -> None:
        super().__init__(schema, (kept,), grid)
        self.keys = tuple(keys)
        self.specs = tuple(specs)
        self.row_by_row = any(spec.user for spec in self.specs)

    def answers(self, alive: Sequence[Alive], start: int, end: int) -> Iterator[Elements]:
        rows = alive[0].elements
        if self.keys:
            groups, examples = group_rows([rows.columns.column(name) for name in self.keys])
        else:
            groups, examples = np.zeros(len(rows), np.intp), np.zeros(1, np.intp)
        layout = self._layout(rows, groups, start, end)
        counted = layout.once(("rows",), lambda: count_measure(np.ones(len(rows), bool)))
        # What is not a number comes of infinities by the rules of arithmetic, and is an answer like any other.
        with np.errstate(invalid="ignore", over="ignore"):
            values = [self._value(spec, rows, layout) for spec in self.specs]
        keys = [gather(rows.columns.column(name), examples[layout.pieces.groups]) for name in self.keys]
        result = Elements(
            pa.RecordBatch.from_arrays([*keys, *values], schema=self.schema),
            layout.pieces.starts,
            layout.pieces.ends,
        )
        yield result.where(counted > 0)

    def _layout(self, rows: Elements, groups: Indices, start: int, end: int) -> Layout:
        throughout = (rows.valid_from == start) & (rows.valid_to == end)
        if self.row_by_row:
            throughout[:] = False
        whole, single = np.flatnonzero(throughout), np.flatnonzero(~throughout)
        merged = np.flatnonzero(np.bincount(groups[whole], minlength=1)) if len(whole) else whole
        pieces = sweep(
            np.concatenate([groups[single], merged]),
            np.concatenate([rows.valid_from[single], np.full(len(merged), start)]),
            np.concatenate([rows.valid_to[single], np.full(len(merged), end)]),
        )
        return Layout(pieces, groups, single, whole, merged)

    def _value(self, spec: AggregateSpec, rows: Elements, layout: Layout) -> pa.Array:
        where = _filter(rows, spec.where)
        if spec.user is not None:
            return _user_value(spec, rows, layout, where)
        column = rows.columns.column(spec.columns[0]) if spec.columns else None
        if spec.distinct and column is not None:
            layout, column = _without_repeats(layout, rows, column, where)
            where = None
        present = present_in(column, len(layout.groups), where)
        unfiltered = where is None and (column is None or column.null_count == 0)
        name = ("rows",) if unfiltered else ("some of", spec.columns, spec.where)
        return compute(spec, Argument(column, present, name), layout)


def compute(spec: AggregateSpec, argument: Argument, layout: Layout) -> pa.Array:
    """An aggregate's value on every piece."""
    column, present = argument.column, argument.present
    count = layout.once(argument.name, lambda: count_measure(present))
    if spec.function == "count" or column is None:
        return integers(count, np.ones(len(count), bool))
    some = count > 0
    match spec.function:
        case "sum" if pa.types.is_decimal(spec.type):
            return decimals(layout.sweep(decimal_sum(column, present)), spec.type, some)
        case "sum" if pa.types.is_integer(spec.type):
            return integers(_total(spec, argument, layout), some)
        case "sum":
            return pa.array(_total(spec, argument, layout), pa.float64(), mask=~some)
        case "avg":
            total = _total(spec, argument, layout).astype(np.float64)
            return pa.array(total / np.maximum(count, 1), pa.float64(), mask=~some)
        case "min" | "max":
            order = ranked(column)
            return order.column(layout.sweep(extreme(order.numbers, present, spec.function == "min")), some)
        case "stddev" | "stddev_pop" | "variance" | "var_pop":
            return _spread(spec, argument, count, layout)
    raise InternalError(f"no aggregate {spec.function}")


def _total(spec: AggregateSpec, argument: Argument, layout: Layout) -> Numbers:
    column, present = argument.column, argument.present
    assert column is not None
    name = ("total", spec.columns, *argument.name)
    if pa.types.is_integer(column.type):
        return layout.once(name, lambda: integer_sum(column, present))
    if name not in layout.known:
        layout.known[name] = float_totals(as_floats(column), present, layout.sweep)
    return layout.known[name]


def _spread(spec: AggregateSpec, argument: Argument, count: Numbers, layout: Layout) -> pa.Array:
    assert argument.column is not None
    name = (spec.columns, spec.distinct, *argument.name)
    if name not in layout.spreads:
        spread = SpreadOf(argument.present, layout.groups, count, layout.sweep).column(argument.column)
        layout.spreads[name] = spread
    freedom = 1 if spec.function in ("stddev", "variance") else 0
    values = layout.spreads[name].values(count, freedom, deviation=spec.function.startswith("stddev"))
    return pa.array(values, pa.float64(), mask=count <= freedom)


def _filter(rows: Elements, name: str | None) -> Mask | None:
    if name is None:
        return None
    column = rows.columns.column(name)
    valid = validity_of(column)
    true = numbers_of(column).astype(bool)
    return true if valid is None else true & valid


def _without_repeats(layout: Layout, rows: Elements, column: pa.Array, where: Mask | None) -> tuple[Layout, pa.Array]:
    """The rows' different values per group, each over the union of its intervals, on the same pieces."""
    kept = np.flatnonzero(present_in(column, len(rows), where))
    owners, values = layout.groups[kept], column.take(pa.array(kept))
    pairs, examples = group_rows([pa.array(owners), values])
    union = sweep(pairs, rows.valid_from[kept], rows.valid_to[kept])
    covered = union.steps() > 0
    pair, starts, ends = join_neighbours(union.groups[covered], union.starts[covered], union.ends[covered])
    owner = owners[examples[pair]] if len(pair) else pair
    pieces = layout.pieces
    first, last = _positions(pieces, owner, starts), _positions(pieces, owner, ends)
    none = np.empty(0, np.intp)
    swept = Sweep(pieces.groups, pieces.starts, pieces.ends, first, last)
    return Layout(swept, owner, np.arange(len(owner)), none, none), values.take(pa.array(examples[pair]))


def _positions(pieces: Sweep, groups: Indices, times: Indices) -> Indices:
    """For points of a sweep, the piece each starts; for a group's last point, the next group's first piece."""
    ranks = np.unique(np.concatenate([pieces.starts, times]), return_inverse=True)[1]
    scale = int(ranks.max()) + 1 if len(ranks) else 1
    keys = pieces.groups.astype(np.int64) * scale + ranks[: len(pieces)]
    return np.searchsorted(keys, groups.astype(np.int64) * scale + ranks[len(pieces) :])


def _user_value(spec: AggregateSpec, rows: Elements, layout: Layout, where: Mask | None) -> pa.Array:
    """A user's aggregate: the rows of each piece, given to a fresh accumulator in the order of its arguments.

    A snapshot has no order of its own, so any other would depend on the plan.
    """
    assert spec.user is not None
    columns = [rows.columns.column(name) for name in spec.columns]
    pieces = layout.pieces
    first, last = pieces.first, pieces.last
    order = total_order(columns)
    used = np.arange(len(rows)) if order is None else order
    used = used if where is None else used[where[used]]
    place = np.full(len(rows), -1, np.intp)
    place[layout.single] = np.arange(len(layout.single))
    by_piece: list[list[int]] = [[] for _ in range(len(pieces))]
    for row in used.tolist():
        for piece in range(int(first[place[row]]), int(last[place[row]])):
            by_piece[piece].append(row)
    same = group_rows(columns)[0] if spec.distinct and columns else np.arange(len(rows))
    results = []
    for found in by_piece:
        members = list({int(same[row]): row for row in reversed(found)}.values())[::-1]
        at = pa.array(members, pa.int64())
        try:
            accumulator = spec.user.make()
            state = accumulator.initialize()
            if members:
                state = accumulator.iterate(state, *(column.take(at) for column in columns))
            results.append(accumulator.terminate(state))
        except Exception as error:
            raise InputError(f"aggregate {spec.user.name} failed", detail=f"{type(error).__name__}: {error}") from error
    try:
        return pa.array(results, spec.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"aggregate {spec.user.name} did not give a {spec.type}", detail=str(error)) from None
