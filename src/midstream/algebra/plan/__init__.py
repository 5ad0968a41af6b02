"""Logical plans: immutable trees of relations that refuse to be invalid.

A relation maps every instant to a multiset of tuples. Column names are unique within a relation: a stream under alias
`A` has columns `A.k`, `A.v`, …; a projection gives the names it likes. Every node but windows, sequences and the
relation-to-stream operators means, at each instant, exactly its relational twin applied to its inputs' snapshots.
"""

from midstream.algebra.plan.base import (
    BinaryRelation,
    JoinKind,
    Relation,
    SequenceMode,
    Stream,
    StreamKind,
    TimeOrder,
    UnaryRelation,
    Window,
    aliases,
    render,
    rewrite_plan,
    streams_of,
    walk_plan,
)
from midstream.algebra.plan.known_json import holds_json
from midstream.algebra.plan.patterns import Match
from midstream.algebra.plan.properties import (
    ends,
    gives_at_ends,
    instants,
    is_momentary,
    is_monotone,
    is_raw,
    is_time,
)
from midstream.algebra.plan.relations import (
    Aggregate,
    Difference,
    Distinct,
    Intersect,
    Join,
    MultiJoin,
    Over,
    Project,
    RoutedJoins,
    RowFunctions,
    RowsOverStream,
    Select,
    Sequence,
    ToStream,
    Union,
    Unnested,
)

__all__ = [
    "Aggregate",
    "BinaryRelation",
    "Difference",
    "Distinct",
    "Intersect",
    "Join",
    "JoinKind",
    "Match",
    "MultiJoin",
    "Over",
    "RowsOverStream",
    "Project",
    "Relation",
    "RoutedJoins",
    "RowFunctions",
    "Select",
    "Sequence",
    "SequenceMode",
    "Stream",
    "StreamKind",
    "TimeOrder",
    "ToStream",
    "UnaryRelation",
    "Union",
    "Unnested",
    "Window",
    "aliases",
    "gives_at_ends",
    "holds_json",
    "instants",
    "ends",
    "is_momentary",
    "is_raw",
    "is_time",
    "is_monotone",
    "render",
    "rewrite_plan",
    "streams_of",
    "walk_plan",
]
