"""What queries of one session can share: equal sub-plans, and joins of equal windows under different selections.

A part is a sub-plan whose root remembers something; its key is its content, so that every plan that computes the same
finds it. Queries that join the same windows by the same conditions, but select and keep different things, share the
join without selections and with all columns (the core), and select from its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.emission import Emission
from midstream.algebra.expressions import Column, Named, conjunction
from midstream.algebra.partitioning import partition_of
from midstream.algebra.physical.base import columns_text
from midstream.algebra.physical.identities import part_key
from midstream.algebra.plan import Project, Relation, Select, Stream, Window, rewrite_plan, walk_plan
from midstream.algebra.time import TimeDomain
from midstream.algebra.windows import Rows, SessionGap
from midstream.operators.base import Operator
from midstream.operators.box import Box
from midstream.optimizer.join_graph import JoinGraph
from midstream.optimizer.lower import lower
from midstream.optimizer.prepare import normalize, prepare


@dataclass(frozen=True, slots=True)
class Tap(p.SourceNode):
    """The output of a part, read like a source: its elements come with their validity."""

    part: p.PhysicalNode | None = None

    @property
    def label(self) -> str:
        return f"Shared {self.stream.alias}"

    @property
    def stands_for(self) -> p.PhysicalNode:
        assert self.part is not None
        return self.part.stands_for

    @property
    def content(self) -> str:
        assert self.part is not None
        if self.schema.names == self.part.schema.names:
            return self.part.content
        return f"{self.part.content}{columns_text(self.schema)}"

    @property
    def longest(self) -> int | None:
        assert self.part is not None
        return self.part.longest

    @property
    def domain(self) -> TimeDomain:
        assert self.part is not None
        return self.part.domain


@dataclass(frozen=True, slots=True)
class PartStream(Stream):
    """A part in a logical plan: its columns are those of the part, under their own names."""

    relation: Relation | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def domain(self) -> TimeDomain:
        assert self.relation is not None
        return self.relation.domain


def parts_of(node: p.PhysicalNode) -> Iterator[p.PhysicalNode]:
    """The sub-plans that could be shared, larger ones first."""
    if node.stateful:
        yield node
    for child in node.inputs:
        yield from parts_of(child)


def tap_on(part: p.PhysicalNode, name: str) -> Tap:
    """A source that reads a part under a name."""
    source = next(n for n in p.walk_physical(part) if isinstance(n, p.SourceNode))
    stream = PartStream(name, name, _timed(part.schema, source), source.stream.time)
    return Tap(part.schema, stream, None, part=part, partition=partition_of(part))


def _timed(schema: pa.Schema, source: p.SourceNode) -> pa.Schema:
    time = source.stream.columns.field(source.stream.time)
    return schema if time.name in schema.names else schema.append(time)


def cut_at(node: p.PhysicalNode, names: Mapping[str, str]) -> p.PhysicalNode:
    """The plan with every part whose key is named replaced by a tap of that name."""

    def tapped(part: p.PhysicalNode) -> p.PhysicalNode | None:
        if not part.stateful:
            return None
        name = names.get(part_key(part))
        return None if name is None else tap_on(part, name)

    return p.replaced(node, tapped)


def whole(node: p.PhysicalNode) -> p.PhysicalNode:
    """The plan with its taps replaced by what they read, in the form in which the plan asked for it."""

    def untapped(tap: p.PhysicalNode) -> p.PhysicalNode | None:
        if not isinstance(tap, Tap):
            return None
        assert tap.part is not None
        return _with_columns(whole(tap.part), tap.schema)

    return p.replaced(node, untapped)


def _with_columns(node: p.PhysicalNode, schema: pa.Schema) -> p.PhysicalNode:
    """A node that gives the columns of a schema, in its order."""
    if node.schema.names == schema.names:
        return node
    return p.Compute(schema, node, tuple(Named(f.name, Column(f.name, f.type)) for f in schema))


def taps_in(node: p.PhysicalNode) -> list[Tap]:
    """The taps of a plan."""
    return [n for n in p.walk_physical(node) if isinstance(n, Tap)]


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

    def part(self, columns: frozenset[str]) -> p.PhysicalNode:
        """The physical core with some of its columns."""
        return _lowered(self.core, columns, self.emission)

    def above(self, part: p.PhysicalNode, name: str) -> p.PhysicalNode:
        """The rest of the query over a part that holds the core, under a name."""
        tap = tap_on(part, name)

        def tapped(node: p.PhysicalNode) -> p.PhysicalNode | None:
            if isinstance(node, p.SourceNode) and node.stream.name == name:
                return replace(tap, schema=node.schema)
            return None

        return p.replaced(_rest(self.logical, self.core, name, self.emission), tapped)


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
    rest = _rest(logical, core, "core", emission)
    needed = next(
        n.schema.names for n in p.walk_physical(rest) if isinstance(n, p.SourceNode) and n.stream.name == "core"
    )
    return Core(signature, frozenset(needed), logical, core, emission)


def _lowered(core: Relation, columns: frozenset[str], emission: Emission) -> p.PhysicalNode:
    kept = tuple(Named(f.name, Column(f.name, f.type)) for f in core.schema if f.name in columns)
    part = lower(Project(core, kept), emission)
    while isinstance(part, p.Compute):
        part = part.input
    return part


def _rest(logical: Relation, core: Relation, name: str, emission: Emission) -> p.PhysicalNode:
    """The plan above a core, which stands there as a source."""
    stream = PartStream(name, name, core.schema, core.schema.names[0], relation=core)
    return lower(rewrite_plan(logical, lambda node: stream if node == core else node), emission)


def _windows_only(core: Relation) -> bool:
    """Whether a join reads nothing but time windows over streams."""
    leaves = [node for node in walk_plan(core) if isinstance(node, Window | Stream)]
    inputs = [node for node in leaves if isinstance(node, Window)]
    by_rows = any(isinstance(node.spec, Rows | SessionGap) or node.bounds is not None for node in inputs)
    plain = not by_rows and all(isinstance(node.input, Stream) for node in inputs)
    kinds = {type(node).__name__ for node in walk_plan(core)}
    return plain and 2 * len(inputs) == len(leaves) and kinds <= {"Join", "MultiJoin", "Window", "Stream"}


def split_box(box: Box, part: p.PhysicalNode, name: str) -> tuple[Box, Box]:
    """A live box as two: the part with its operators, and the rest, which reads the part; no state is touched."""
    root = next(i for i, node in enumerate(box.nodes) if node is part)
    count = sum(1 for node in p.walk_physical(part) if not isinstance(node, p.SourceNode))
    inside = range(root - count + 1, root + 1)
    tap = tap_on(part, name)
    above = p.replaced(box.plan, lambda node: tap if node is part else None)
    rest = [operator for i, operator in enumerate(box.operators) if i not in inside]
    return box.running(part, box.operators[inside.start : inside.stop]), box.running(above, rest)


def grown_box(box: Box, parts: Mapping[str, Box]) -> Box:
    """A box of its own from one that reads parts: all their operators in one piece, with copies of all states.

    A part may run by another plan than the one its reader asked for; the new box has the plan that runs, so that every
    operator finds its own states. Segments never change, so a copy of a state is a list.
    """
    donors: list[Operator | None] = []
    grown = Box(_in_one_piece(box, parts, donors), box.functions)
    for i, donor in enumerate(reversed(donors)):
        operator = grown.operators[i]
        operator.restore(grown.incoming(i, box.frontier) if donor is None else donor.frontier)
        for state, known in zip(operator.states, () if donor is None else donor.states, strict=True):
            assert state.key == known.key and state.schema.equals(known.schema)
            state.replace_segments(known.segments)
    grown.frontier = box.frontier
    return grown


def _in_one_piece(box: Box, parts: Mapping[str, Box], donors: list[Operator | None]) -> p.PhysicalNode:
    """The plan of a box with the plans of the parts it reads, as they run.

    `donors` gets the operator of each node, parents first; a node that only arranges a part's columns has none.
    """
    operators = iter(reversed(box.operators))

    def grown(node: p.PhysicalNode) -> p.PhysicalNode:
        if isinstance(node, Tap) and node.stream.name in parts:
            here = len(donors)
            part = _in_one_piece(parts[node.stream.name], parts, donors)
            arranged = _with_columns(part, node.schema)
            if arranged is not part:
                donors.insert(here, None)
            return arranged
        if not isinstance(node, p.SourceNode):
            donors.append(next(operators))
        return p.with_inputs(node, grown)

    return grown(box.plan)
