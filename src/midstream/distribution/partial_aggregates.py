"""Aggregating parts of groups first, then merging them: a group's rows need not lie together for that.

The value of a group at an instant is that of the values of its parts at that instant, for counts, sums of whole and
decimal numbers, least and greatest values. Sums of floating-point numbers depend on the order of their terms, and other
functions do not follow from values of parts.

Counts are merged by summing them. A part without values has a null sum, least and greatest value, which merging leaves
out, as it would the part's rows.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.expressions import AggregateCall, Column

MERGED_BY = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
"""By which function the values of parts are merged."""


def is_mergeable(node: p.GroupAggregate) -> bool:
    """Whether an aggregate follows from those of parts of its groups."""
    return bool(node.keys) and all(_is_mergeable(column.call) for column in node.aggregates)


def _is_mergeable(call: AggregateCall) -> bool:
    exact = pa.types.is_integer(call.type) or pa.types.is_decimal(call.type)
    return call.function in MERGED_BY and not call.distinct and (call.function != "sum" or exact)


def partial_of(node: p.GroupAggregate) -> p.PartialAggregate:
    """The aggregate of parts of groups."""
    return p.PartialAggregate(node.schema, node.input, node.keys, node.aggregates, node.grid)


def merged_over(node: p.GroupAggregate, parts: p.PhysicalNode) -> p.MergedAggregate:
    """The aggregate merged from those of parts, which have its columns."""
    aggregates = tuple(_merging(column) for column in node.aggregates)
    return p.MergedAggregate(node.schema, parts, node.keys, aggregates, node.grid, node.content)


def _merging(column: p.AggregateColumn) -> p.AggregateColumn:
    call = column.call
    value = Column(column.name, call.type)
    merging = AggregateCall(MERGED_BY[call.function], (value,), call.type)
    return replace(column, call=merging, columns=(column.name,), where=None)
