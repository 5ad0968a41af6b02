"""Operators that work on parts of a key's rows first and merge what these give: the rows need not lie together then.

The value of a group at an instant is that of the values of its parts at that instant, for counts, sums of whole and
decimal numbers, least and greatest values. Sums of floating-point numbers depend on the order of their terms, and other
functions do not follow from values of parts. Counts are merged by summing them, and means of whole numbers from sums
and counts. A part without values has a null sum, least and greatest value, which merging leaves out, as it would the
part's rows. Sums of parts may be larger than the sum of all, where numbers of both signs meet: those of whole numbers
have a wider type, and decimals must leave some digits free.

What is distinct among distinct rows of parts is distinct among all rows.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.expressions import AggregateCall, Cast, Column
from midstream.distribution.fragments import Key
from midstream.operators.aggregate import MEAN_OF_PARTS

MERGED_BY = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
"""By which function the values of parts are merged."""

SUM, COUNT = "#sum", "#count"
"""What the parts of a mean are called, after its name."""

TOTAL = pa.decimal128(38, 0)
"""The type of parts of sums and means of whole numbers: they may be wider than 64 bits."""

MOST_DIGITS = 28
"""Of how many digits decimals may be: sums have 38, and ten digits more are ten thousand million rows."""

Mergeable = p.GroupAggregate | p.Deduplicate


def is_mergeable(node: p.PhysicalNode) -> bool:
    """Whether what a node gives for a key follows from what it gives for parts of the key's rows."""
    match node:
        case p.PartialAggregate() | p.MergedAggregate() | p.PartialDistinct() | p.MergedDistinct():
            return False
        case p.GroupAggregate(keys=keys, aggregates=aggregates):
            return bool(keys) and all(_is_mergeable(column.call) for column in aggregates)
        case p.Deduplicate():
            return bool(node.schema.names)
    return False


def _is_mergeable(call: AggregateCall) -> bool:
    if call.function == "avg":
        return not call.distinct and pa.types.is_integer(call.args[0].type)
    return call.function in MERGED_BY and not call.distinct and (call.function != "sum" or _parts_fit(call))


def _parts_fit(call: AggregateCall) -> bool:
    """Whether sums of parts are exact, and fit wherever the sum of all rows does."""
    summed = call.args[0]
    while isinstance(summed, Cast) and pa.types.is_decimal(summed.input.type):
        summed = summed.input
    kind = summed.type
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.precision <= MOST_DIGITS))


def has_means(node: p.PhysicalNode) -> bool:
    """Whether a node computes means."""
    return isinstance(node, p.GroupAggregate) and any(column.call.function == "avg" for column in node.aggregates)


def keys_of(node: Mergeable) -> Key:
    """The columns by which rows belong together."""
    return node.keys if isinstance(node, p.GroupAggregate) else tuple(node.schema.names)


def keys_met(node: p.PhysicalNode) -> Key | None:
    """The columns whose equal values must meet in a node of one input; None where rows need not meet."""
    match node:
        case p.PartialAggregate() | p.PartialDistinct() | p.Changes(kind="keep"):
            return None
        case p.GroupAggregate(keys=keys) | p.OverPartition(keys=keys) | p.OrderedRows(partition_by=keys):
            return keys
        case p.Deduplicate() | p.Changes():
            return tuple(node.schema.names)
    return None


def partial_of(node: Mergeable) -> p.PhysicalNode:
    """What the node gives for parts of keys."""
    if isinstance(node, p.Deduplicate):
        return p.PartialDistinct(node.schema, node.input)
    aggregates = tuple(part for column in node.aggregates for part in _parts(column))
    keys = [node.schema.field(name) for name in node.keys]
    schema = pa.schema([*keys, *(pa.field(part.name, part.call.type) for part in aggregates)])
    return p.PartialAggregate(schema, node.input, node.keys, aggregates, node.grid)


def _parts(column: p.AggregateColumn) -> list[p.AggregateColumn]:
    """What is computed of parts of groups for an aggregate; parts of sums may be wider than the sums."""
    if column.call.function == "sum" and pa.types.is_integer(column.call.type):
        return [replace(column, call=replace(column.call, data_type=TOTAL))]
    if column.call.function != "avg":
        return [column]
    total = replace(column.call, function="sum", data_type=TOTAL)
    count = replace(column.call, function="count", data_type=pa.int64())
    return [
        replace(column, name=column.name + SUM, call=total),
        replace(column, name=column.name + COUNT, call=count),
    ]


def merged_over(node: Mergeable, parts: p.PhysicalNode) -> p.PhysicalNode:
    """What the node gives, merged from what it gives for parts of keys."""
    if isinstance(node, p.Deduplicate):
        return p.MergedDistinct(node.schema, parts, node.content)
    aggregates = tuple(_merging(column) for column in node.aggregates)
    return p.MergedAggregate(node.schema, parts, node.keys, aggregates, node.grid, node.content)


def _merging(column: p.AggregateColumn) -> p.AggregateColumn:
    call = column.call
    if call.function == "avg":
        names = (column.name + SUM, column.name + COUNT)
        parts = (Column(names[0], TOTAL), Column(names[1], pa.int64()))
        return replace(column, call=AggregateCall(MEAN_OF_PARTS, parts, call.type), columns=names, where=None)
    value = Column(column.name, TOTAL if call.function == "sum" and pa.types.is_integer(call.type) else call.type)
    merging = AggregateCall(MERGED_BY[call.function], (value,), call.type)
    return replace(column, call=merging, columns=(column.name,), where=None)
