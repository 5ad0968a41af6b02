"""Selections move towards the streams."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.algebra.expressions import Column, Expression, Named, columns_of, conjunction, conjuncts, substitute
from midstream.algebra.plan import (
    Aggregate,
    Distinct,
    Join,
    Over,
    Project,
    Relation,
    Select,
    Stream,
    UnaryRelation,
    Unnested,
    Window,
)
from midstream.algebra.windows import Hop, Range, Unbounded


def push_selection_down(plan: Relation) -> Relation:
    """A selection moves below projections, distinct, groups by what it reads, joins, and time windows of sub-queries.

    It never passes a row window, whose contents depend on all tuples, nor anything that is no relation at an instant.

    >>> from midstream.optimizer.rules.examples import show
    >>> show(push_selection_down, "SELECT * FROM (SELECT DISTINCT k FROM A [RANGE 5]) AS x WHERE x.k > 3", at=1)
    Select x.k > 3
    └─ Project k AS x.k
       └─ Distinct
          └─ Project A.k AS k
             └─ Window [RANGE 5]
                └─ Stream A
    becomes
    Project k AS x.k
    └─ Select k > 3
       └─ Distinct
          └─ Project A.k AS k
             └─ Window [RANGE 5]
                └─ Stream A
    """
    match plan:
        case Select(Select(inner, first), second):
            return Select(inner, conjunction([*conjuncts(first), *conjuncts(second)]))
        case Select(Project(inner, columns), predicate):
            return Project(Select(inner, _through(predicate, columns)), columns)
        case Select(Distinct(inner), predicate):
            return Distinct(Select(inner, predicate))
        case Select(Window(spec=Range() | Hop() | Unbounded()) as window, predicate):
            return _below_window(window, predicate) or plan
        case Select(Aggregate() as aggregate, predicate):
            return _below_aggregate(aggregate, predicate) or plan
        case Select(Over() as over, predicate):
            keys = {
                k.name for k in over.keys if isinstance(k, Column)
            }  # What such conditions leave is whole partitions.
            return _below(over, predicate, keys) or plan
        case Select(Unnested(inner) as unnest, predicate):
            return _below(unnest, predicate, set(inner.schema.names)) or plan
        case Select(Join(kind="inner") as join, predicate):
            return _below_inner_joins(join, predicate) or plan
        case Select(Join() as join, predicate):
            return _below_join(join, predicate) or plan
        case _:
            return plan


def _through(predicate: Expression, columns: tuple[Named, ...]) -> Expression:
    return substitute(predicate, {c.name: c.expression for c in columns})


def _below_window(window: Window, predicate: Expression) -> Relation | None:
    """Below windows of sub-queries; those of streams belong to their sources."""
    below = [p for p in conjuncts(predicate) if not columns_of(p) & set(window.bounds or ())]
    if not below or isinstance(window.input, Stream):
        return None
    above = [p for p in conjuncts(predicate) if p not in below]
    return _selected(window.with_inputs((Select(window.input, conjunction(below)),)), above)


def _below_aggregate(aggregate: Aggregate, predicate: Expression) -> Relation | None:
    keys = {k.name for k in aggregate.keys}
    # Without keys there would be a row where the selection leaves none.
    below = [p for p in conjuncts(predicate) if columns_of(p) and columns_of(p) <= keys]
    if not below:
        return None
    above = [p for p in conjuncts(predicate) if p not in below]
    inner = Select(aggregate.input, _through(conjunction(below), aggregate.keys))
    pushed = Aggregate(inner, aggregate.keys, aggregate.aggregates)
    return Select(pushed, conjunction(above)) if above else pushed


def _below(node: UnaryRelation, predicate: Expression, columns: set[str]) -> Relation | None:
    """The conditions on some columns of the input alone, below the node."""
    below = [p for p in conjuncts(predicate) if columns_of(p) and columns_of(p) <= columns]
    if not below:
        return None
    above = [p for p in conjuncts(predicate) if p not in below]
    pushed = node.with_inputs((Select(node.input, conjunction(below)),))
    return Select(pushed, conjunction(above)) if above else pushed


def _below_inner_joins(join: Join, predicate: Expression) -> Relation | None:
    """Each conjunct at once below the one input, of all the joins there are, that has its columns."""
    inputs = list(_joined(join))
    names = [frozenset(relation.schema.names) for relation in inputs]
    below: list[list[Expression]] = [[] for _ in inputs]
    above: list[Expression] = []
    for part in conjuncts(predicate):
        read = columns_of(part)
        owner = next((i for i, own in enumerate(names) if read and read <= own), None)
        (above if owner is None else below[owner]).append(part)
    if not any(below):
        return None
    pushed = _rebuilt(join, iter([_selected(r, parts) for r, parts in zip(inputs, below, strict=True)]))
    return _selected(pushed, above)


def _joined(relation: Relation) -> Iterator[Relation]:
    if isinstance(relation, Join) and relation.kind == "inner":
        yield from _joined(relation.left)
        yield from _joined(relation.right)
    else:
        yield relation


def _rebuilt(relation: Relation, inputs: Iterator[Relation]) -> Relation:
    if isinstance(relation, Join) and relation.kind == "inner":
        left = _rebuilt(relation.left, inputs)
        return Join(left, _rebuilt(relation.right, inputs), relation.on)
    return next(inputs)


def _below_join(join: Join, predicate: Expression) -> Relation | None:
    """Each conjunct below the side that has its columns, if that side is not padded with nulls."""
    left_names, right_names = set(join.left.schema.names), set(join.right.schema.names)
    to_left, to_right, above = [], [], []
    for part in conjuncts(predicate):
        read = columns_of(part)
        if read and read <= left_names and join.kind in ("left", "semi", "anti"):
            to_left.append(part)
        elif read and read <= right_names and join.kind == "right":
            to_right.append(part)
        else:
            above.append(part)
    if not to_left and not to_right:
        return None
    pushed = Join(_selected(join.left, to_left), _selected(join.right, to_right), join.on, join.kind)
    return _selected(pushed, above)


def _selected(relation: Relation, parts: list[Expression]) -> Relation:
    return Select(relation, conjunction(parts)) if parts else relation
