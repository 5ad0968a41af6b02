"""The join graph of a query: what is joined, and by which conditions, apart from any order.

Inner joins commute and associate at every snapshot, so a tree of them is a set of inputs and a set of conditions. Any
tree over the inputs in which every condition is applied as soon as its columns are there is an equivalent plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union as Either

from midstream.algebra.expressions import Expression, columns_of, conjunction, conjuncts
from midstream.algebra.plan import Join, MultiJoin, Relation, Select, aliases
from midstream.errors import QueryError

Shape = Either[int, tuple["Shape", "Shape"]]
"""A binary tree over input numbers."""


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """Inputs that are not themselves inner joins, and the conjuncts over them."""

    inputs: tuple[Relation, ...]
    conditions: tuple[Expression, ...]

    def owners(self, condition: Expression) -> frozenset[int]:
        """The inputs whose columns a condition reads."""
        names = columns_of(condition)
        return frozenset(i for i, r in enumerate(self.inputs) if names & set(r.schema.names))

    def connected(self, left: frozenset[int], right: frozenset[int]) -> bool:
        """Whether some condition links the two sets and can be checked on them alone."""
        both = left | right
        return any(o & left and o & right and o <= both for o in map(self.owners, self.conditions))

    def tree(self, shape: Shape) -> Relation:
        """The join tree of a shape; conditions sit as low as their columns allow."""
        waiting = [(c, self.owners(c)) for c in self.conditions]
        built, _ = self._build(shape, waiting)
        left_over = [c for c, _ in waiting]
        return Select(built, conjunction(left_over)) if left_over else built

    def _build(
        self, shape: Shape, waiting: list[tuple[Expression, frozenset[int]]]
    ) -> tuple[Relation, frozenset[int]]:
        if isinstance(shape, int):
            here = frozenset({shape})
            mine = _ready(waiting, here)
            relation = self.inputs[shape]
            return (Select(relation, conjunction(mine)) if mine else relation), here
        left, left_inputs = self._build(shape[0], waiting)
        right, right_inputs = self._build(shape[1], waiting)
        both = left_inputs | right_inputs
        return Join(left, right, conjunction(_ready(waiting, both))), both

    def multiway(self, orders: Sequence[Sequence[int]]) -> Relation:
        """The multi-way join with a probe order per input."""
        waiting = [(c, self.owners(c)) for c in self.conditions]
        inputs = tuple(self._build(i, waiting)[0] for i in range(len(self.inputs)))
        return MultiJoin(inputs, conjunction([c for c, _ in waiting]), tuple(tuple(o) for o in orders))

    def as_written(self) -> Shape:
        """A left-deep shape in the order of the text, except that no input comes before it is connected."""
        shape: Shape = 0
        inside, waiting = frozenset({0}), list(range(1, len(self.inputs)))
        while waiting:
            nearest = next((i for i in waiting if self.connected(inside, frozenset({i}))), waiting[0])
            waiting.remove(nearest)
            shape, inside = (shape, nearest), inside | {nearest}
        return shape

    def default_orders(self) -> tuple[tuple[int, ...], ...]:
        """A probe order per input: connected inputs first, in the order of the text."""
        return tuple(self._order_from(i) for i in range(len(self.inputs)))

    def _order_from(self, start: int) -> tuple[int, ...]:
        inside, order = frozenset({start}), []
        waiting = [i for i in range(len(self.inputs)) if i != start]
        while waiting:
            nearest = next((i for i in waiting if self.connected(inside, frozenset({i}))), waiting[0])
            waiting.remove(nearest)
            order.append(nearest)
            inside |= {nearest}
        return tuple(order)

    def named(self, alias: str) -> int:
        """The input that holds an alias."""
        for i, relation in enumerate(self.inputs):
            if alias in aliases(relation) or any(n.startswith(f"{alias}.") for n in relation.schema.names):
                return i
        known = sorted(a for r in self.inputs for a in aliases(r))
        raise QueryError(f"the plan names {alias}, which the query does not join", detail=f"it joins {', '.join(known)}")


def join_graph(relation: Relation) -> JoinGraph:
    """Flattens the inner joins and selections at the top of a relation."""
    inputs: list[Relation] = []
    conditions: list[Expression] = []

    def flatten(node: Relation) -> None:
        match node:
            case Join(left, right, on, "inner"):
                flatten(left)
                flatten(right)
                conditions.extend(conjuncts(on))
            case MultiJoin(joined, on):
                for child in joined:
                    flatten(child)
                conditions.extend(conjuncts(on))
            case Select(child, predicate) if isinstance(child, Join | MultiJoin | Select):
                flatten(child)
                conditions.extend(conjuncts(predicate))
            case Select(child, predicate):
                inputs.append(child)
                conditions.extend(conjuncts(predicate))
            case _:
                inputs.append(node)

    flatten(relation)
    return JoinGraph(tuple(inputs), tuple(dict.fromkeys(conditions)))


def _ready(
    waiting: list[tuple[Expression, frozenset[int]]], inputs: frozenset[int]
) -> list[Expression]:
    """Takes out the conditions that the given inputs suffice for; constants stay with the first input."""
    ready = [entry for entry in waiting if entry[1] <= inputs and (entry[1] or 0 in inputs)]
    for entry in ready:
        waiting.remove(entry)
    return [condition for condition, _ in ready]
