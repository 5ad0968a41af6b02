"""Grouped and global aggregation over what is valid, piece of time by piece of time.

A group's value is constant between two neighbouring starts or ends of its elements. Rows that are valid throughout a
slice enter it as one entry per group; only rows that start or end within it are swept one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.algebra.database import fitted
from midstream.algebra.declarations import AggregateFunction
from midstream.algebra.physical.relational import GroupAggregate
from midstream.errors import InputError, InternalError
from midstream.operators.accumulators import (
    decimal_sum,
    decimals,
    extreme,
    further,
    integer_sum,
    integers,
    largest_sum,
    ranked,
)
from midstream.operators.borrowed_aggregates import in_order, value_on_pieces
from midstream.operators.elements import Elements, Indices, Mask
from midstream.operators.float_sums import float_totals
from midstream.operators.large_groups import LargeGroups, LargeSlice, Values, entries
from midstream.operators.ordering import group_rows, groups_by
from midstream.operators.parts import ALL_ROWS, Argument, SweptPart, SweptParts, SweptRows, count_measure
from midstream.operators.slices import KeyedSliceOperator
from midstream.operators.state.alive import Alive, Stored
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import sweep
from midstream.operators.variance import SpreadOf
from midstream.operators.vectors import Numbers, gather

MEAN_OF_PARTS = "mean of parts"
"""The function that makes averages of the sums and counts of parts; no user's function can have this name."""


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """An aggregate over columns of the operator's input; `where` names a boolean column that must be true."""

    function: str
    columns: tuple[str, ...]
    type: pa.DataType
    distinct: bool = False
    where: str | None = None
    user: AggregateFunction | None = None
    form: str = ""

    def argument(self, schema: pa.Schema) -> Argument:
        """What it looks at of rows of a schema."""
        if not self.columns:
            return Argument(where=self.where)
        name = self.columns[0]
        return Argument(name, self.where, self.distinct, schema.field(name).type)


class GroupAggregateOperator(KeyedSliceOperator):
    """Aggregates by key columns, or over everything if there are none."""

    name = "aggregate"
    together = "the rows of one group for a function that needs all of them"

    def __init__(self, node: GroupAggregate, kept: SortedState, specs: Sequence[AggregateSpec]) -> None:
        super().__init__(node.schema, (kept,), node.grid)
        self.keys, self.specs = node.keys, tuple(specs)
        self.row_by_row = any(spec.user or spec.form for spec in self.specs)

    def answers(self, alive: Sequence[Alive], start: int, end: int) -> Iterator[Elements]:
        rows = alive[0].elements
        groups, examples = groups_by(rows.columns, self.keys)
        yield self.answer(InMemory(rows, self._layout(rows, groups, start, end), rows.take(examples).columns))

    def answers_in_parts(self, stored: Sequence[Stored], start: int, end: int) -> Iterator[Elements]:
        assert self.most is not None
        if self.row_by_row:
            yield from super().answers_in_parts(stored, start, end)
            return
        for rows in LargeGroups(stored, self.keys, self.most).slices():
            yield self.answer(rows)

    def answer(self, rows: InMemory | LargeSlice) -> Elements:
        """The aggregates of every group on every piece."""
        known: dict[object, Any] = {}
        values = [value_of(spec, rows, self.kept[0].schema, known) for spec in self.specs]
        pieces = rows.pieces
        keys = [gather(rows.examples.column(name), pieces.groups) for name in self.keys]
        batch = pa.RecordBatch.from_arrays([*keys, *values], schema=self.schema)
        return Elements(batch, pieces.starts, pieces.ends).where(rows.parts(ALL_ROWS, known).count > 0)

    def _layout(self, rows: Elements, groups: Indices, start: int, end: int) -> SweptRows:
        parts, *swept = entries(groups, rows.valid_from, rows.valid_to, start, end, self.row_by_row)
        return SweptRows(sweep(*swept), groups, *parts)


class InMemory:
    """The rows of a slice, all at once."""

    def __init__(self, rows: Elements, layout: SweptRows, examples: pa.RecordBatch) -> None:
        self.rows = rows
        self.layout = layout
        self.pieces = layout.pieces
        self.examples = examples

    def parts(self, argument: Argument, known: dict[object, Any]) -> SweptParts:
        """What an aggregate looks at."""
        part = argument.part(self.rows.columns, self.layout)
        if argument.distinct:
            part = self._without_repeats(part)
        return SweptParts(argument, len(self.rows), lambda: (part,), known)

    def _without_repeats(self, part: SweptPart) -> SweptPart:
        """The rows' different values per group, each over the union of its intervals, on the same pieces."""
        values = Values(self.layout.groups, part.values, self.rows.valid_from, self.rows.valid_to)
        return values.at(np.flatnonzero(part.present)).different().part(self.pieces)


def value_of(spec: AggregateSpec, rows: InMemory | LargeSlice, schema: pa.Schema, known: dict[object, Any]) -> pa.Array:
    """An aggregate's value on every piece, of rows of a schema; `known` has what aggregates of these rows share."""
    if spec.user is not None or spec.form:
        assert isinstance(rows, InMemory)
        return _borrowed_value(spec, rows) if spec.form else _user_value(spec, rows)
    # What is not a number comes of infinities by the rules of arithmetic, and is an answer like any other.
    with np.errstate(invalid="ignore", over="ignore"):
        if spec.function == MEAN_OF_PARTS:
            totals, counts = (replace(spec, columns=(name,)).argument(schema) for name in spec.columns)
            return _mean_of_parts(rows.parts(totals, known), rows.parts(counts, known))
        return compute(spec, rows.parts(spec.argument(schema), known))


def compute(spec: AggregateSpec, parts: SweptParts) -> pa.Array:
    """An aggregate's value on every piece."""
    count = parts.count
    if spec.function == "count" or not spec.columns:
        return integers(count, np.ones(len(count), bool))
    some = count > 0
    match spec.function:
        case "sum" if pa.types.is_decimal(spec.type):
            whole = pa.types.is_integer(parts.argument.kind)
            return decimals(_integer_total(parts) if whole else _decimal_total(parts), spec.type, some)
        case "sum" if pa.types.is_integer(spec.type):
            of_parts = pa.types.is_decimal(parts.argument.kind)
            return integers(_decimal_total(parts) if of_parts else _total(parts), some)
        case "sum":
            return pa.array(_total(parts), pa.float64(), mask=~some)
        case "avg":
            total = _total(parts).astype(np.float64)
            return pa.array(total / np.maximum(count, 1), pa.float64(), mask=~some)
        case "min" | "max":
            return _extreme(parts, some, spec.function == "min")
        case "stddev" | "stddev_pop" | "variance" | "var_pop":
            return _spread(spec, parts)
    raise InternalError(f"no aggregate {spec.function}")


def _mean_of_parts(totals: SweptParts, counts: SweptParts) -> pa.Array:
    """The means of groups from the sums and counts of their parts, as they would be of all rows."""
    count = _integer_total(counts).astype(np.int64)
    mean = _decimal_total(totals).astype(np.float64) / np.maximum(count, 1)
    return pa.array(mean, pa.float64(), mask=count == 0)


def _total(parts: SweptParts) -> Numbers:
    of_integers = pa.types.is_integer(parts.argument.kind)
    return parts.once("total", lambda: _integer_total(parts) if of_integers else float_totals(parts))


def _integer_total(parts: SweptParts) -> Numbers:
    wide = sum(largest_sum(part.integers) for part in parts) >= 2**63
    return parts.sweep(lambda part: integer_sum(part.integers, wide))


def _decimal_total(parts: SweptParts) -> Numbers:
    largest = 0
    for part in parts:
        largest += 2**63 if part.words is None else largest_sum(part.words)
    narrow = largest < 2**63
    return parts.sweep(lambda part: decimal_sum(part.values, part.present, part.words if narrow else None))


def _extreme(parts: SweptParts, some: Mask, least: bool) -> pa.Array:
    found: pa.Array | None = None
    for part in parts:
        order = ranked(part.values)
        measure = extreme(order.numbers, part.present, least)
        here = some
        if parts.several:
            here = part.layout.sweep(count_measure(part.present)) > 0
        column = order.column(part.layout.sweep(measure), here)
        found = column if found is None else further(found, column, least)
    assert found is not None
    return found


def _spread(spec: AggregateSpec, parts: SweptParts) -> pa.Array:
    spread = parts.once("spread", lambda: SpreadOf(parts).column(parts.argument.kind))
    freedom = 1 if spec.function in ("stddev", "variance") else 0
    values = spread.values(parts.count, freedom, deviation=spec.function.startswith("stddev"))
    return pa.array(values, pa.float64(), mask=parts.count <= freedom)


def _borrowed_value(spec: AggregateSpec, found: InMemory) -> pa.Array:
    columns = [found.rows.columns.column(name) for name in spec.columns]
    where = Argument(where=spec.where).chosen(found.rows.columns)
    return fitted(value_on_pieces(spec.form, columns, where, found.pieces, spec.function), spec.type, spec.function)


def _user_value(spec: AggregateSpec, found: InMemory) -> pa.Array:
    """A user's aggregate: the rows of each piece, given to a fresh accumulator in the order of its arguments.

    A snapshot has no order of its own, so any other would depend on the plan.
    """
    assert spec.user is not None
    rows, layout, pieces = found.rows, found.layout, found.pieces
    columns = [rows.columns.column(name) for name in spec.columns]
    where = Argument(where=spec.where).chosen(rows.columns)
    first, last = pieces.first, pieces.last
    place = np.full(len(rows), -1, np.intp)
    place[layout.single] = np.arange(len(layout.single))
    by_piece: list[list[int]] = [[] for _ in range(len(pieces))]
    for row in in_order(columns, where, len(rows)).tolist():
        for piece in range(int(first[place[row]]), int(last[place[row]])):
            by_piece[piece].append(row)
    same = group_rows(columns)[0] if spec.distinct and columns else np.arange(len(rows))
    results = []
    for covering in by_piece:
        members = list({int(same[row]): row for row in reversed(covering)}.values())[::-1]
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
