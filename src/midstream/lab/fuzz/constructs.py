"""The constructs of the language by name, and sets of them that tests draw from."""

from __future__ import annotations

TIMES = frozenset({"integer_time", "timestamp_time", "zoned_time"})
TIME_WINDOWS = frozenset({"range", "now", "unbounded", "hop", "tumble", "cumulate", "offset", "zone"})
ROW_WINDOWS = frozenset({"rows", "partitioned_rows", "slide", "session"})
EXPRESSIONS = frozenset({"where", "expressions"})
INNER = frozenset({"inner_join", "theta_join", "cross_join"})
OUTER = frozenset({"left_join", "right_join", "full_join"})
SET_OPERATIONS = frozenset({"union_all", "union", "except_all", "except", "intersect_all", "intersect"})
AGGREGATION = frozenset({"group_by", "global_aggregate", "having", "filter", "distinct_aggregate"}) | {
    *("grouping_sets", "lists")
}
PLACES = frozenset({"over", "limit", "qualify", "distinct_on"})
SEQUENCES = frozenset({"followed_by", "asof_join", "match_recognize"})
TO_STREAM = frozenset({"istream", "dstream", "rstream"})

RELATIONAL = (
    TIMES
    | TIME_WINDOWS
    | ROW_WINDOWS
    | EXPRESSIONS
    | INNER
    | OUTER
    | SET_OPERATIONS
    | AGGREGATION
    | PLACES
    | {"raw", "unnest", "semi_join", "anti_join", "distinct", "subquery", "scalar_subquery", "with", "bounds"}
    | {"valid_until"}
)
"""What means the same as SQL over the windows' contents at each instant."""

EVERYTHING = RELATIONAL | SEQUENCES | TO_STREAM | {"window_over_subquery"}

INTERVAL_KEEPING = (
    TIMES | TIME_WINDOWS | ROW_WINDOWS | EXPRESSIONS | INNER | {"raw", "unnest", "union_all", "subquery", "with"}
)
"""Selections, projections, unions and inner joins: results are equal as multisets of elements."""

MONOTONE = (
    TIMES
    | TIME_WINDOWS
    | EXPRESSIONS
    | INNER
    | {"raw", "unnest", "semi_join", "distinct", "union_all", "union", "subquery"}
)
"""More input only ever adds to the result."""

INNER_JOINS = TIMES | TIME_WINDOWS | EXPRESSIONS | {"inner_join", "theta_join"}
"""Joins that can be reordered: nothing but selections, projections and inner joins of streams."""
