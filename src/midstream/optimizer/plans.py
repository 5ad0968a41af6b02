"""The one entrance to the optimizer: run, explain and migrate all get their plans here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from midstream.algebra.emission import Emission, emission_of
from midstream.algebra.physical import PhysicalNode
from midstream.algebra.plan import Relation
from midstream.errors import QueryError
from midstream.optimizer.join_graph import Inputs, JoinGraph, Shape
from midstream.optimizer.lower import lower
from midstream.optimizer.prepare import as_written, prepare
from midstream.optimizer.shapes import Wanted, parse_shape, shape_text


@dataclass(frozen=True)
class Plan:
    """An executable plan of a query: its logical tree in join order, and what will run."""

    query: Relation = field(repr=False)
    logical: Relation = field(repr=False)
    emission: Emission = field(repr=False)

    @property
    def text(self) -> str:
        """The join shape, as `plan=` takes it."""
        return shape_text(self.logical)

    @property
    def physical(self) -> PhysicalNode:
        """The physical plan."""
        return lower(self.logical, self.emission)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Plan({self.text!r})"


def plan_query(query: Relation, wanted: Plan | str | None = None, emit_every: int | None = None) -> Plan:
    """The plan of a query: the wanted one, or the optimizer's choice."""
    emission = emission_of(query, emit_every)
    if isinstance(wanted, Plan):
        if wanted.query != query:
            raise QueryError("this plan belongs to another query")
        return Plan(query, wanted.logical, emission)
    if wanted is None:
        return Plan(query, prepare(query), emission)
    if not isinstance(wanted, str):
        raise QueryError(f"a plan is a Plan or a text, not {type(wanted).__name__}")
    return Plan(query, _shaped(query, parse_shape(wanted)), emission)


def _shaped(query: Relation, wanted: Wanted) -> Relation:
    used: list[JoinGraph] = []

    def choose(graph: JoinGraph) -> Relation:
        inputs = {i for name in wanted.names if (i := _find(graph, name)) is not None}
        if inputs == set(range(len(graph.inputs))) and len(wanted.names) == len(graph.inputs):
            used.append(graph)
            return wanted.apply(graph)
        return as_written(graph)

    logical = prepare(query, choose)
    if not used and len(wanted.names) > 1:
        raise QueryError(
            f"the plan names {', '.join(sorted(wanted.names))}, which are not the inputs of any join of the query",
            hint="name every alias that the query joins, once",
        )
    return logical


def _find(graph: JoinGraph, alias: str) -> int | None:
    try:
        return graph.named(alias)
    except QueryError:
        return None


def enumerate_plans(query: Relation, emit_every: int | None = None, limit: int = 200) -> list[Plan]:
    """Equivalent plans of a query: join trees without cross products where possible, and the multi-way join."""
    emission = emission_of(query, emit_every)
    found: list[Plan] = []
    options: list[tuple[JoinGraph, list[Shape | None]]] = []

    def collect(graph: JoinGraph) -> Relation:
        shapes: list[Shape | None] = list(_some(_shapes(graph, graph.everyone), limit))
        if len(graph.inputs) > 2:
            shapes.append(None)
        options.append((graph, shapes))
        return as_written(graph)

    prepare(query, collect)
    widest = max(options, key=lambda o: len(o[0].inputs), default=None)
    if widest is None:
        return [Plan(query, prepare(query), emission)]
    for shape in widest[1]:
        def choose(graph: JoinGraph, shape: Shape | None = shape) -> Relation:
            if graph.conditions != widest[0].conditions or len(graph.inputs) != len(widest[0].inputs):
                return as_written(graph)
            return graph.multiway(graph.default_orders()) if shape is None else graph.tree(shape)

        found.append(Plan(query, prepare(query, choose), emission))
    return found


def _some(shapes: Iterator[Shape], limit: int) -> Iterator[Shape]:
    for shape, _ in zip(shapes, range(limit), strict=False):
        yield shape


def _shapes(graph: JoinGraph, inputs: Inputs) -> Iterator[Shape]:
    """All unordered binary trees over the inputs that have no accidental cross product."""
    if inputs.bit_count() == 1:
        yield inputs.bit_length() - 1
        return
    for left, right in splits(graph, inputs):
        for a in _shapes(graph, left):
            for b in _shapes(graph, right):
                yield (a, b)


def splits(graph: JoinGraph, inputs: Inputs) -> Iterator[tuple[Inputs, Inputs]]:
    """The ways to cut a set in two joinable parts, each way once."""
    first = inputs & -inputs
    rest = inputs ^ first
    part = rest
    while part:
        left = inputs ^ part
        if graph.joinable(left) and graph.joinable(part) and graph.may_join(left, part):
            yield left, part
        part = (part - 1) & rest
