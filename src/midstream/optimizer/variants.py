"""What to do before joining: remove duplicates, or aggregate, per input.

`DISTINCT` above joins allows to remove the duplicates of any input first; aggregation above joins allows to aggregate
some inputs first. Which of it pays depends on the streams. A variant is a set of marks, input by input; the query as
it was written is the variant without marks.
"""

from __future__ import annotations

from collections.abc import Iterator

from midstream.algebra.expressions import NamedAggregate, columns_of
from midstream.algebra.plan import Aggregate, Distinct, Join, MultiJoin, Project, Relation, Select
from midstream.optimizer.join_graph import JoinGraph, join_graph, leaf_name
from midstream.optimizer.rules.eliminate_distinct import eliminate_distinct, key_of
from midstream.optimizer.rules.push_aggregation_below_join import pre_aggregated
from midstream.optimizer.rules.push_distinct_below_join import once
from midstream.optimizer.rules.push_projection_down import narrowed

Mark = tuple[str, str]
"""An input's name, and `distinct` or `grouped`."""


def possible_marks(plan: Relation) -> tuple[Mark, ...]:
    """The marks that some input of the topmost joins below a distinct or an aggregate may carry."""
    return tuple(_marks(plan))


def _marks(plan: Relation) -> Iterator[Mark]:
    match plan:
        case Distinct(Project(Join() | MultiJoin() | Select() as joins)) | Distinct(Join() | MultiJoin() as joins):
            graph = join_graph(joins)
            if len(graph.inputs) > 1:
                for relation in graph.inputs:
                    if key_of(relation) is None:
                        yield leaf_name(relation), "distinct"
        case Aggregate(Join() | MultiJoin() | Select() as joins):
            graph = join_graph(joins)
            if len(graph.inputs) > 1:
                for i, relation in enumerate(graph.inputs):
                    if key_of(relation) is None and _grouped(plan, graph, i) is not None:
                        yield leaf_name(relation), "grouped"
    for child in plan.inputs:
        yield from _marks(child)


def marked(plan: Relation, marks: frozenset[Mark]) -> Relation:
    """The plan with the marked inputs without duplicates, or aggregated, before they are joined."""
    if not marks:
        return plan
    match plan:
        case Distinct(Project(Join() | MultiJoin() | Select() as joins, columns)):
            read = frozenset(n for c in columns for n in columns_of(c.expression))
            below = _with_distinct(joins, read, marks)
            return plan if below is None else eliminate_distinct(Distinct(Project(below, columns)))
        case Distinct(Join() | MultiJoin() as joins):
            below = _with_distinct(joins, frozenset(joins.schema.names), marks)
            return plan if below is None else eliminate_distinct(Distinct(below))
        case Aggregate(Join() | MultiJoin() | Select()):
            return _with_groups(plan, marks)
    children = tuple(marked(child, marks) for child in plan.inputs)
    return plan if children == plan.inputs else plan.with_inputs(children)


def _with_distinct(joins: Relation, read: frozenset[str], marks: frozenset[Mark]) -> Relation | None:
    graph = join_graph(joins)
    if len(graph.inputs) < 2:
        return None
    inputs, used = [], _linking(graph)
    for i, relation in enumerate(graph.inputs):
        if (leaf_name(relation), "distinct") in marks and key_of(relation) is None:
            inputs.append(once(narrowed(graph.leaf(i), read | used)))
        else:
            inputs.append(graph.leaf(i))
    return _joined(graph, inputs)


def _linking(graph: JoinGraph) -> frozenset[str]:
    """The columns that conditions between inputs read."""
    found: set[str] = set()
    for condition, mask in zip(graph.conditions, graph.masks, strict=True):
        if mask.bit_count() > 1:
            found |= columns_of(condition)
    return frozenset(found)


def _joined(graph: JoinGraph, inputs: list[Relation]) -> Relation:
    """The same graph over inputs that have checked what they can check alone."""
    between = [c for c, m in zip(graph.conditions, graph.masks, strict=True) if m.bit_count() > 1]
    return JoinGraph(tuple(inputs), tuple(between)).tree(graph.as_written())


def _with_groups(plan: Aggregate, marks: frozenset[Mark]) -> Relation:
    graph = join_graph(plan.input)
    names = [leaf_name(r) for r in graph.inputs]
    inputs = [graph.leaf(i) for i in range(len(graph.inputs))]
    changed: Aggregate = plan
    for i, name in enumerate(names):
        if (name, "grouped") in marks and len(graph.inputs) > 1:
            split = _grouped(changed, graph, i)
            if split is None:
                continue
            inputs[i] = split[0]
            changed = Aggregate(_joined(graph, inputs), changed.keys, split[1])
    return changed


def _grouped(plan: Aggregate, graph: JoinGraph, number: int) -> tuple[Aggregate, tuple[NamedAggregate, ...]] | None:
    read = _linking(graph) | frozenset(n for k in plan.keys for n in columns_of(k.expression))
    return pre_aggregated(plan.aggregates, graph.leaf(number), read)
