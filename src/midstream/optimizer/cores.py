"""The join that queries can have in common although each selects something else from it.

Queries that join the same windows by the same conditions, but select and keep different things, share the join without
selections and with all columns that they need (the core), and select from its output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.emission import Emission
from midstream.algebra.expressions import Column, Named, conjunction
from midstream.algebra.plan import Project, Relation, Select, Stream, Window, rewrite_plan, walk_plan
from midstream.algebra.time import TimeDomain
from midstream.algebra.windows import Rows, SessionGap
from midstream.optimizer.fixed_plan import fixed
from midstream.optimizer.join_graph import JoinGraph
from midstream.optimizer.lower import lower
from midstream.optimizer.plans import Plan
from midstream.optimizer.prepare import normalize, prepare

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartStream(Stream):
    """A part of a plan as a stream: its columns are those of the part, under their own names."""

    relation: Relation | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def domain(self) -> TimeDomain:
        assert self.relation is not None
        return self.relation.domain


@dataclass(frozen=True, slots=True)
class Core:
    """The join that a query can share, apart from what the query selects from it.

    `signature` is the same for all queries with the same core; `needed` are the columns that this one reads of it.
    """

    signature: str
    needed: frozenset[str]
    logical: Relation
    core: Relation
    emission: Emission

    def over(self, plan: Plan, columns: Iterable[str]) -> Plan:
        """The query's plan so that it selects from its core, which has some of its columns."""
        part = _lowered(self.core, frozenset(columns), self.emission)

        def placed(node: p.PhysicalNode) -> p.PhysicalNode | None:
            is_core = isinstance(node, p.SourceNode) and isinstance(node.stream, PartStream)
            return with_columns(part, node.schema) if is_core else None

        return fixed(plan, p.replaced(_rest(self.logical, self.core, self.emission), placed))


def over_common_core(plan: Plan, others: Iterable[tuple[Core | None, Columns | None]]) -> tuple[Plan, Columns] | None:
    """A plan over the join that others have too, with the columns of it that one of them runs or all of them need.

    `others` are the cores of other queries, with the columns if they run by them; None if nobody has the same core.
    """
    core = core_of(plan.query, plan.emission)
    alike = [
        (c, columns) for c, columns in others if core is not None and c is not None and c.signature == core.signature
    ]
    if core is None or not alike:
        return None
    for _, columns in alike:
        if columns is not None and core.needed <= set(columns):
            return core.over(plan, columns), columns
    needed = core.needed.union(*(theirs.needed for theirs, _ in alike))
    columns = tuple(name for name in core.core.schema.names if name in needed)
    return core.over(plan, columns), columns


def core_of(query: Relation, emission: Emission) -> Core | None:
    """The core of a query with exactly one join of windowed streams; None if it has no such join or several.

    A core of more than two windows keeps the windows alone: intermediate results would be those of all queries.
    """
    cores: list[Relation] = []

    def split(graph: JoinGraph) -> Relation:
        joining = tuple(c for c, mask in zip(graph.conditions, graph.masks, strict=True) if mask.bit_count() > 1)
        selected = [c for c in graph.conditions if c not in joining]
        inner = JoinGraph(graph.inputs, joining)
        core = inner.tree((0, 1)) if len(inner.inputs) == 2 else inner.multiway(inner.default_orders())
        cores.append(core)
        return Select(core, conjunction(selected)) if selected else core

    logical = prepare(normalize(query), split)
    if len(cores) != 1 or not _windows_only(cores[0]):
        return None
    core = cores[0]
    if any(isinstance(node, Window) and node.input is core for node in walk_plan(logical)):
        return None
    signature = _lowered(core, frozenset(core.schema.names), emission).content
    rest = _rest(logical, core, emission)
    needed = next(
        n.schema.names
        for n in p.walk_physical(rest)
        if isinstance(n, p.SourceNode) and isinstance(n.stream, PartStream)
    )
    return Core(signature, frozenset(needed), logical, core, emission)


def with_columns(node: p.PhysicalNode, schema: pa.Schema) -> p.PhysicalNode:
    """A node that gives the columns of a schema, in its order."""
    if node.schema.names == schema.names:
        return node
    return p.Compute(schema, node, tuple(Named(f.name, Column(f.name, f.type)) for f in schema))


def _lowered(core: Relation, columns: frozenset[str], emission: Emission) -> p.PhysicalNode:
    kept = tuple(Named(f.name, Column(f.name, f.type)) for f in core.schema if f.name in columns)
    part = lower(Project(core, kept), emission)
    while isinstance(part, p.Compute):
        part = part.input
    return part


def _rest(logical: Relation, core: Relation, emission: Emission) -> p.PhysicalNode:
    """The plan above a core, which stands there as a source."""
    stream = PartStream("core", "core", core.schema, core.schema.names[0], relation=core)
    return lower(rewrite_plan(logical, lambda node: stream if node == core else node), emission)


def _windows_only(core: Relation) -> bool:
    """Whether a join reads nothing but time windows over streams."""
    leaves = [node for node in walk_plan(core) if isinstance(node, Window | Stream)]
    inputs = [node for node in leaves if isinstance(node, Window)]
    by_rows = any(isinstance(node.spec, Rows | SessionGap) or node.bounds is not None for node in inputs)
    plain = not by_rows and all(isinstance(node.input, Stream) for node in inputs)
    kinds = {type(node).__name__ for node in walk_plan(core)}
    return plain and 2 * len(inputs) == len(leaves) and kinds <= {"Join", "MultiJoin", "Window", "Stream"}
