"""The join graph of a query: what is joined, and by which conditions, apart from any order.

Inner joins commute and associate at every snapshot, so a tree of them is a set of inputs and a set of conditions. Any
tree over the inputs in which every condition is applied as soon as its columns are there is an equivalent plan. The
conditions are closed under equality, and of those that a join could check it checks one per class of equal terms, by
terms that depend on the joined inputs alone: so equal sets of inputs hold equal columns in every plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Union as Either

from midstream.algebra.expressions import Expression, columns_of, conjunction, conjuncts
from midstream.algebra.placements import Placement
from midstream.algebra.plan import Aggregate, Distinct, Join, MultiJoin, Relation, RoutedJoins, Select, aliases
from midstream.errors import QueryError
from midstream.optimizer.equalities import classes, closure, equality, sides
from midstream.optimizer.origins import origin_text


@dataclass(frozen=True, slots=True)
class Probing:
    """A multi-way join of sub-shapes; `orders[i]` are the positions that part i probes, in order."""

    parts: tuple[Shape, ...]
    orders: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Routed(Probing):
    """A routed join of single inputs; `placements[i]` says where each probe of input i takes place."""

    placements: tuple[tuple[Placement, ...], ...] = ()


Shape = Either[int, tuple["Shape", "Shape"], Probing]  # noqa: UP007
"""A tree over input numbers: of binary joins and of multi-way joins."""

Inputs = int
"""A set of inputs as bits."""

REMEMBERED = 512
"""How many joins of a graph are kept in mind: a query that is planned again and again gets the same trees."""


@dataclass(frozen=True)
class JoinGraph:
    """Inputs that are not themselves inner joins, and the conjuncts over them."""

    inputs: tuple[Relation, ...]
    conditions: tuple[Expression, ...]

    @cached_property
    def everyone(self) -> Inputs:
        """All inputs."""
        return (1 << len(self.inputs)) - 1

    @cached_property
    def _names(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(r.schema.names) for r in self.inputs)

    @cached_property
    def masks(self) -> tuple[Inputs, ...]:
        """For each condition the inputs whose columns it reads."""
        return tuple(self.mask(c) for c in self.conditions)

    def mask(self, expression: Expression) -> Inputs:
        """The inputs whose columns an expression reads."""
        names = columns_of(expression)
        return sum(1 << i for i, own in enumerate(self._names) if names & own)

    @cached_property
    def equal_terms(self) -> tuple[tuple[tuple[Expression, Inputs], ...], ...]:
        """The classes of equal terms, each term with its input."""
        found = []
        for terms in classes(self.conditions):
            owned = tuple((t, self.mask(t)) for t in terms)
            found.append(tuple((t, m) for t, m in owned if m.bit_count() == 1))
        return tuple(terms for terms in found if len(terms) > 1)

    @cached_property
    def term_texts(self) -> tuple[tuple[tuple[str | None, Inputs], ...], ...]:
        """The classes of equal terms, each term as statistics name it, if they can, with its input."""
        return tuple(
            tuple((origin_text(self.inputs[mask.bit_length() - 1], term), mask) for term, mask in terms)
            for terms in self.equal_terms
        )

    @cached_property
    def other_conditions(self) -> tuple[tuple[Expression, Inputs], ...]:
        """Conditions that are no equality between the terms of two inputs."""
        group = {term: number for number, terms in enumerate(self.equal_terms) for term, _ in terms}

        def covered(condition: Expression) -> bool:
            both = sides(condition)
            return both is not None and both[0] in group and group[both[0]] == group.get(both[1])

        return tuple((c, m) for c, m in zip(self.conditions, self.masks, strict=True) if not covered(c))

    @cached_property
    def neighbours(self) -> tuple[Inputs, ...]:
        """For each input the inputs that some condition links it to, without the help of a third."""
        found = [0] * len(self.inputs)
        for mask in self.masks:
            if mask.bit_count() == 2:
                for i in bits(mask):
                    found[i] |= mask & ~(1 << i)
        return tuple(found)

    @cached_property
    def components(self) -> tuple[Inputs, ...]:
        """The parts of the graph that no pairwise condition links."""
        left, parts = self.everyone, []
        while left:
            part = self._reach(left & -left, left)
            parts.append(part)
            left &= ~part
        return tuple(parts)

    @cached_property
    def _wide(self) -> tuple[Inputs, ...]:
        return tuple(mask for mask in self.masks if mask.bit_count() > 2)

    @cached_property
    def _near(self) -> dict[Inputs, Inputs]:
        return {1 << i: near for i, near in enumerate(self.neighbours)}

    def near(self, inputs: Inputs) -> Inputs:
        """All that pairwise conditions link to a set, within it or not."""
        known = self._near.get(inputs)
        if known is None:
            lowest = inputs & -inputs
            known = self._near[inputs] = self._near[lowest] | self.near(inputs ^ lowest)
        return known

    def _reach(self, start: Inputs, within: Inputs) -> Inputs:
        reached, fresh = start, start
        while fresh:
            fresh = self.near(fresh) & within & ~reached
            reached |= fresh
        return reached

    def joinable(self, inputs: Inputs) -> bool:
        """Whether a set can be joined without an accidental cross product.

        It is linked, or made of whole components, between which a cross product cannot be helped.
        """
        if self._reach(inputs & -inputs, inputs) == inputs:
            return True
        return self.whole(inputs)

    def whole(self, inputs: Inputs) -> bool:
        """Whether a set is made of whole components."""
        return all(part & inputs in (0, part) for part in self.components)

    def linked(self, left: Inputs, right: Inputs) -> bool:
        """Whether some condition links two sets and can be checked on them alone."""
        if self.near(left) & right:
            return True
        both = left | right
        return any(m & left and m & right and not m & ~both for m in self._wide)

    def may_join(self, left: Inputs, right: Inputs) -> bool:
        """Whether joining two joinable sets is no accidental cross product."""
        return self.linked(left, right) or (self.whole(left) and self.whole(right))

    def between(self, left: Inputs, right: Inputs) -> list[Expression]:
        """What a join of two sets has to check: conditions that none of them can check alone."""
        both = left | right
        found = []
        for terms in self.equal_terms:
            here = [t for t, m in terms if m & left]
            there = [t for t, m in terms if m & right]
            if here and there:
                found.append(equality(here[0], there[0]))
        found += [c for c, m in self.other_conditions if not m & ~both and m & ~left and m & ~right]
        return found

    def local(self, number: int) -> list[Expression]:
        """What one input can check alone; conditions without columns belong to the first."""
        own = 1 << number
        found = [c for c, m in self.other_conditions if m == own or (m == 0 and number == 0)]
        for terms in self.equal_terms:
            mine = [t for t, m in terms if m == own]
            found += [equality(mine[0], t) for t in mine[1:]]
        return list(dict.fromkeys(found))

    def leaf(self, number: int) -> Relation:
        """An input after what it can check alone."""
        return self._leaves[number]

    @cached_property
    def _leaves(self) -> tuple[Relation, ...]:
        return tuple(self._leaf(i) for i in range(len(self.inputs)))

    def _leaf(self, number: int) -> Relation:
        mine = self.local(number)
        relation = self.inputs[number]
        return Select(relation, conjunction(mine)) if mine else relation

    @cached_property
    def _parts(self) -> dict[Relation, Inputs | None]:
        return {self.leaf(i): 1 << i for i in range(len(self.inputs))}

    def part(self, relation: Relation) -> Inputs | None:
        """The inputs of which a relation is the join under all conditions among them; None if it is something else."""
        if relation not in self._parts:
            found = self._part(join_graph(relation))
            if len(self._parts) >= REMEMBERED:
                return found
            self._parts[relation] = found
        return self._parts[relation]

    def _part(self, graph: JoinGraph) -> Inputs | None:
        places = {relation: i for i, relation in enumerate(self.inputs)}
        if any(relation not in places for relation in graph.inputs):
            return None
        inputs = sum(1 << places[relation] for relation in graph.inputs)
        first = bool(inputs & 1)
        inside = {c for c, m in zip(self.conditions, self.masks, strict=True) if not m & ~inputs and (m or first)}
        return inputs if inside == set(graph.conditions) else None

    def tree(self, shape: Shape) -> Relation:
        """The join tree of a shape; conditions sit as low as their columns allow."""
        return self._build(shape)[0]

    @cached_property
    def _built(self) -> dict[Shape, tuple[Relation, Inputs]]:
        return {}

    def _build(self, shape: Shape) -> tuple[Relation, Inputs]:
        if isinstance(shape, int):
            return self.leaf(shape), 1 << shape
        known = self._built.get(shape)
        if known is None:
            known = self._multiway(shape) if isinstance(shape, Probing) else self._join(shape)
            if len(self._built) < REMEMBERED:
                self._built[shape] = known
        return known

    def _join(self, shape: tuple[Shape, Shape]) -> tuple[Relation, Inputs]:
        left, left_inputs = self._build(shape[0])
        right, right_inputs = self._build(shape[1])
        on = conjunction(self.between(left_inputs, right_inputs))
        return Join(left, right, on), left_inputs | right_inputs

    def _multiway(self, shape: Probing) -> tuple[Relation, Inputs]:
        built = [self._build(part) for part in shape.parts]
        owned = [inputs for _, inputs in built]
        together = 0
        for inputs in owned:
            together |= inputs
        on = list(self._pairwise(owned))
        on += [
            c for c, m in self.other_conditions if not m & ~together and not any(not m & ~inputs for inputs in owned)
        ]
        joined, condition = tuple(r for r, _ in built), conjunction(on)
        if isinstance(shape, Routed):
            return RoutedJoins(joined, condition, shape.orders, shape.placements), together
        return MultiJoin(joined, condition, shape.orders), together

    def _pairwise(self, owned: Sequence[Inputs]) -> Iterator[Expression]:
        """One equality per class and pair of parts: a probe order may visit them in any order."""
        for terms in self.equal_terms:
            firsts = [next((t for t, m in terms if m & inputs), None) for inputs in owned]
            present = [t for t in firsts if t is not None]
            for i, a in enumerate(present):
                for b in present[i + 1 :]:
                    yield equality(a, b)

    def multiway(self, orders: Sequence[Sequence[int]]) -> Relation:
        """The multi-way join of all inputs with a probe order per input."""
        return self.tree(Probing(tuple(range(len(self.inputs))), tuple(tuple(o) for o in orders)))

    def as_written(self) -> Shape:
        """A left-deep shape in the order of the text, except that no input comes before it is connected."""
        shape: Shape = 0
        for i in self._order_from(0):
            shape = (shape, i)
        return shape

    def default_orders(self) -> tuple[tuple[int, ...], ...]:
        """A probe order per input: connected inputs first, in the order of the text."""
        return tuple(self._order_from(i) for i in range(len(self.inputs)))

    def _order_from(self, start: int) -> tuple[int, ...]:
        inside, order = 1 << start, []
        waiting = [i for i in range(len(self.inputs)) if i != start]
        while waiting:
            nearest = next((i for i in waiting if self.linked(inside, 1 << i)), waiting[0])
            waiting.remove(nearest)
            order.append(nearest)
            inside |= 1 << nearest
        return tuple(order)

    def find(self, alias: str) -> int | None:
        """The input that holds an alias, if any does."""
        for i, relation in enumerate(self.inputs):
            if alias == leaf_name(relation) or alias in aliases(relation):
                return i
        return None

    def named(self, alias: str) -> int:
        """The input that holds an alias."""
        found = self.find(alias)
        if found is not None:
            return found
        known = sorted(a for r in self.inputs for a in aliases(r))
        raise QueryError(
            f"the plan names {alias}, which the query does not join", detail=f"it joins {', '.join(known)}"
        )


def leaf_name(relation: Relation) -> str:
    """What to call an input of a join: its alias, or the name its columns go by."""
    known = sorted(aliases(relation))
    if len(known) == 1:
        return known[0]
    while isinstance(relation, Distinct | Aggregate):  # a mark does not change the name
        relation = relation.input
    prefixes = {name.partition(".")[0] for name in relation.schema.names if "." in name}
    return prefixes.pop() if len(prefixes) == 1 else known[0]


def bits(inputs: Inputs) -> Iterator[int]:
    """The numbers in a set of inputs.

    >>> list(bits(0b1011))
    [0, 1, 3]
    """
    while inputs:
        lowest = inputs & -inputs
        yield lowest.bit_length() - 1
        inputs ^= lowest


@lru_cache(maxsize=1024)
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
            case Select(child, predicate):
                flatten(child)
                conditions.extend(conjuncts(predicate))
            case _:
                inputs.append(node)

    flatten(relation)
    return JoinGraph(tuple(inputs), closure(tuple(dict.fromkeys(conditions))))
