"""Plans as users write them: a join tree by alias, `((A B) C)`, or probe orders, `A: B C, B: A C, C: B A`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from midstream.algebra.plan import Join, MultiJoin, Relation, aliases, walk_plan
from midstream.errors import QueryError
from midstream.optimizer.join_graph import JoinGraph, Shape

_TOKENS = re.compile(r"\s*([()]|[^\s(),:]+)")


@dataclass(frozen=True, slots=True)
class WantedTree:
    """A join tree over aliases."""

    tree: object

    @property
    def names(self) -> frozenset[str]:
        """All aliases in it."""
        return frozenset(_leaves(self.tree))

    def apply(self, graph: JoinGraph) -> Relation:
        """The tree over a graph's inputs."""
        return graph.tree(_numbered(self.tree, graph))


@dataclass(frozen=True, slots=True)
class WantedOrders:
    """Probe orders by alias."""

    orders: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def names(self) -> frozenset[str]:
        """All aliases that have an order."""
        return frozenset(name for name, _ in self.orders)

    def apply(self, graph: JoinGraph) -> Relation:
        """The multi-way join over a graph's inputs."""
        chosen = list(graph.default_orders())
        for name, order in self.orders:
            here = graph.named(name)
            numbers = tuple(graph.named(other) for other in order)
            if set(numbers) != set(range(len(graph.inputs))) - {here} or len(numbers) != len(graph.inputs) - 1:
                raise QueryError(f"the probe order of {name} must visit every other input once")
            chosen[here] = numbers
        return graph.multiway(chosen)


Wanted = WantedTree | WantedOrders


def parse_shape(text: str) -> Wanted:
    """Reads a plan's text.

    >>> sorted(parse_shape("((A B) C)").names)
    ['A', 'B', 'C']
    """
    if ":" in text:
        return _parse_orders(text)
    tokens = _TOKENS.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text) or not tokens:
        raise QueryError(f"cannot read the plan {text!r}", hint='write a join tree like "((A B) C)"')
    tree, rest = _parse_tree(tokens, text)
    if rest:
        raise QueryError(f"the plan {text!r} goes on after its end at {rest[0]!r}")
    if len(set(_leaves(tree))) != len(_leaves(tree)):
        raise QueryError(f"the plan {text!r} names an alias twice")
    return WantedTree(tree)


def _parse_orders(text: str) -> WantedOrders:
    orders = []
    for part in text.split(","):
        name, colon, order = part.partition(":")
        if not colon or not name.strip() or not order.split():
            raise QueryError(f"cannot read the probe order {part.strip()!r}", hint='write "A: B C, B: A C, C: B A"')
        orders.append((name.strip(), tuple(order.split())))
    return WantedOrders(tuple(orders))


def _parse_tree(tokens: list[str], text: str) -> tuple[object, list[str]]:
    """A tree from the front of the tokens, without recursion so that depth does not matter."""
    stack: list[list[object]] = []
    for i, token in enumerate(tokens):
        if token == "(":
            stack.append([])
            continue
        if token == ")":
            if not stack:
                raise QueryError(f"the plan {text!r} closes a parenthesis it never opened")
            parts = stack.pop()
            if not parts:
                raise QueryError(f"the plan {text!r} has empty parentheses")
            done: object = parts[0]
            for part in parts[1:]:
                done = (done, part)
        else:
            done = token
        if not stack:
            return done, tokens[i + 1 :]
        stack[-1].append(done)
    raise QueryError(f"the plan {text!r} does not close all its parentheses")


def _leaves(tree: object) -> list[str]:
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in _leaves(part)]
    return [str(tree)]


def _numbered(tree: object, graph: JoinGraph) -> Shape:
    if isinstance(tree, tuple):
        return (_numbered(tree[0], graph), _numbered(tree[1], graph))
    return graph.named(str(tree))


def shape_text(plan: Relation) -> str:
    """A plan's join shape as users write it; the widest group of joins if there are several."""
    groups = [node for node in walk_plan(plan) if isinstance(node, MultiJoin) or _is_inner(node)]
    if not groups:
        return " ".join(sorted(aliases(plan)))
    return _text(groups[0])


def _is_inner(node: Relation) -> bool:
    return isinstance(node, Join) and node.kind == "inner"


def _text(node: Relation) -> str:
    if isinstance(node, MultiJoin):
        names = [_text(child) for child in node.joined]
        return ", ".join(f"{names[i]}: {' '.join(names[j] for j in o)}" for i, o in enumerate(node.orders))
    if _is_inner(node):
        return f"({' '.join(_text(child) for child in node.inputs)})"
    if len(node.inputs) == 1:
        return _text(node.inputs[0])
    return "+".join(sorted(aliases(node)))
