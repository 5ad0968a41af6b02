"""Physical plans: what will run, as values. Every choice is made, nothing is alive yet.

Keys are plain columns here (expressions are computed below), columns that nobody reads are gone, and every node can
say what it holds: `content` is the canonical text of the sub-query it computes, equal for plans that compute the same
thing in another order. States are named by the content of the input they keep.
"""

from midstream.algebra.physical.base import (
    Binary,
    Conjunction,
    OrderedRows,
    PhysicalNode,
    Unary,
    grids_of,
    render_physical,
    replaced,
    walk_physical,
    with_inputs,
)
from midstream.algebra.physical.joins import (
    HashJoin,
    MultiwayJoin,
    OuterJoin,
    ProbeStep,
)
from midstream.algebra.physical.relational import (
    AggregateColumn,
    Changes,
    Compute,
    Concatenate,
    Deduplicate,
    Filter,
    GroupAggregate,
    MatchRows,
    MergedAggregate,
    MergedDistinct,
    OverColumn,
    OverPartition,
    OverStream,
    PartialAggregate,
    PartialDistinct,
    SetOperation,
    Unnest,
)
from midstream.algebra.physical.sequences import (
    FollowedBy,
    RowColumns,
)
from midstream.algebra.physical.sources import (
    AssignWindow,
    Instants,
    OverlappingBounds,
    RowWindow,
    SessionWindow,
    SourceNode,
    WindowBounds,
    longest_validity,
)

__all__ = [
    "AggregateColumn",
    "AssignWindow",
    "Binary",
    "Changes",
    "Compute",
    "Concatenate",
    "Conjunction",
    "Deduplicate",
    "Filter",
    "FollowedBy",
    "GroupAggregate",
    "HashJoin",
    "Instants",
    "MatchRows",
    "MergedAggregate",
    "MergedDistinct",
    "MultiwayJoin",
    "OrderedRows",
    "OuterJoin",
    "OverColumn",
    "OverPartition",
    "OverStream",
    "OverlappingBounds",
    "PartialAggregate",
    "PartialDistinct",
    "PhysicalNode",
    "ProbeStep",
    "RowColumns",
    "RowWindow",
    "SessionWindow",
    "SetOperation",
    "SourceNode",
    "Unary",
    "Unnest",
    "WindowBounds",
    "grids_of",
    "longest_validity",
    "render_physical",
    "replaced",
    "walk_physical",
    "with_inputs",
]
