"""MATCH_RECOGNIZE: a stream of matches of a pattern."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra.expressions import Expression, Named
from midstream.algebra.patterns import Pattern, PatternValue, Skip, may_be_empty
from midstream.algebra.plan.base import UnaryRelation, require, require_readable, require_unique
from midstream.algebra.windows import ColumnOrder


@dataclass(frozen=True, slots=True)
class Match(UnaryRelation):
    """The matches of a pattern among the tuples of each partition of a stream, by time, then by the
    columns of `order`, then by all.

    From every tuple that may begin a match the first way that matches counts; whether it does is decided once no later
    tuple can change it, and the match happens then, but not before those that were looked for earlier. What is never
    decided never happens. Tuples of a match are no more than `within` ticks after its first one. `conditions` are over
    the tuple and `values`, of what is matched up to it. A match gives its last tuple, or `all_rows`: the keys and the
    measures, over that tuple and the values of what is matched up to it.
    """

    keys: tuple[str, ...]
    pattern: Pattern
    conditions: tuple[tuple[str, Expression], ...]
    values: tuple[PatternValue, ...]
    measures: tuple[Named, ...]
    skip: Skip = Skip()
    within: int | None = None
    all_rows: bool = False
    order: tuple[ColumnOrder, ...] = ()

    def __post_init__(self) -> None:
        require(not may_be_empty(self.pattern), "a pattern matches at least one row")
        require_unique(self.schema.names)
        for read in (*(c for _, c in self.conditions), *(m.expression for m in self.measures)):
            require_readable(read, self.known)

    @property
    def known(self) -> pa.Schema:
        """What conditions and measures can read."""
        return pa.schema([*self.input.schema, *(pa.field(v.name, v.type) for v in self.values)])

    @property
    def schema(self) -> pa.Schema:
        keys = [self.input.schema.field(name) for name in self.keys]
        return pa.schema([*keys, *(pa.field(m.name, m.expression.type) for m in self.measures)])

    @property
    def label(self) -> str:
        return match_label(self)


def match_label(node: Match) -> str:
    """What a match looks for, in one line."""
    by = f" by {', '.join(node.keys)}" if node.keys else ""
    within = "" if node.within is None else f" within {node.within}"
    where = "; ".join(f"{symbol} where {condition}" for symbol, condition in node.conditions)
    values = f" with {', '.join(map(str, node.values))}" if node.values else ""
    measures = ", ".join(map(str, node.measures))
    rows = " all rows" if node.all_rows else ""
    order = f" in order of {', '.join(map(str, node.order))}" if node.order else ""
    return f"Match {node.pattern}{by}{order}{within}{rows} skipping {node.skip}: {measures}; {where}{values}"
