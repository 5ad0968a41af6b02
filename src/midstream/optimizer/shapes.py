"""Plans as users write them.

A join tree by alias, `((A B) C)`; probe orders of a multi-way join, `A: B C, B: A C, C: B A`; both nested,
`((A B): C, C: (A B))` or `((A: B C, B: A C, C: B A) D)`. An input whose duplicates are removed, or which is aggregated,
before it is joined carries a mark: `(A/distinct B)`, `(A/grouped B)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Union as Either

from midstream.algebra.plan import Aggregate, Distinct, Join, MultiJoin, Relation, Select, aliases, walk_plan
from midstream.errors import QueryError
from midstream.optimizer.join_graph import JoinGraph, Probing, Shape, leaf_name

_TOKENS = re.compile(r"\s*([(),:]|[^\s(),:]+)")
MARKS = ("distinct", "grouped")
_HINT = 'write a join tree, "((A B) C)", or probe orders, "A: B C, B: A C, C: B A"'


@dataclass(frozen=True, slots=True)
class Orders:
    """Probe orders: each part with the parts it probes."""

    routes: tuple[tuple[Tree, tuple[Tree, ...]], ...]


Tree = Either[str, tuple["Tree", "Tree"], Orders]  # noqa: UP007


@dataclass(frozen=True, slots=True)
class Wanted:
    """A shape over aliases, and the marks some of them carry."""

    tree: Tree
    marks: frozenset[tuple[str, str]] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """All aliases in it."""
        return frozenset(_leaves(self.tree))

    def apply(self, graph: JoinGraph) -> Relation:
        """The shape over a graph's inputs."""
        return graph.tree(_numbered(self.tree, graph))


def parse_shape(text: str) -> Wanted:
    """Reads a plan's text.

    >>> sorted(parse_shape("((A B) C)").names)
    ['A', 'B', 'C']
    """
    tokens = _TOKENS.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text) or not tokens:
        raise QueryError(f"cannot read the plan {text!r}", hint=_HINT)
    marks: set[tuple[str, str]] = set()
    tree = _Reader(text, marks).read(tokens)
    leaves = _leaves(tree)
    if len(set(leaves)) != len(leaves):
        raise QueryError(f"the plan {text!r} names an alias twice")
    return Wanted(tree, frozenset(marks))


class _Reader:
    """Reads tokens with a stack of open parentheses, without recursion so that depth does not matter."""

    def __init__(self, text: str, marks: set[tuple[str, str]]) -> None:
        self.text = text
        self.marks = marks

    def read(self, tokens: list[str]) -> Tree:
        """The whole text as one tree."""
        stack: list[list[list[object]]] = [[[]]]
        for token in tokens:
            if token == "(":
                stack.append([[]])
            elif token == ")":
                if len(stack) == 1:
                    raise QueryError(f"the plan {self.text!r} closes a parenthesis it never opened")
                done = self._group(stack.pop())
                stack[-1][-1].append(done)
            elif token == ",":
                stack[-1].append([])
            else:
                stack[-1][-1].append(token if token == ":" else self._leaf(token))
        if len(stack) > 1:
            raise QueryError(f"the plan {self.text!r} does not close all its parentheses")
        clauses = stack[0]
        if len(clauses) == 1 and len(clauses[0]) > 1 and ":" not in clauses[0]:
            raise QueryError(f"the plan {self.text!r} goes on after its end at {clauses[0][1]!r}")
        return self._group(clauses)

    def _leaf(self, token: str) -> str:
        name, marked, mark = token.partition("/")
        if not marked:
            return name
        if mark not in MARKS or not name:
            raise QueryError(f"cannot read {token!r} in the plan", hint=f"marks are {' and '.join(MARKS)}")
        self.marks.add((name, mark))
        return name

    def _group(self, clauses: list[list[object]]) -> Tree:
        if not any(":" in clause for clause in clauses):
            if len(clauses) > 1:
                raise QueryError(f"cannot read the plan {self.text!r}", hint=_HINT)
            if not clauses[0]:
                raise QueryError(f"the plan {self.text!r} has empty parentheses")
            done, *rest = clauses[0]
            for part in rest:
                done = (done, part)
            return done  # type: ignore[return-value]
        routes = []
        for clause in clauses:
            if len(clause) < 3 or clause[1] != ":" or ":" in clause[2:] or clause[0] == ":":
                raise QueryError(f"cannot read the probe orders of the plan {self.text!r}", hint=_HINT)
            routes.append((clause[0], tuple(clause[2:])))
        return Orders(tuple(routes))  # type: ignore[arg-type]


def _leaves(tree: Tree) -> list[str]:
    found, stack = [], [tree]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            found.append(top)
        elif isinstance(top, Orders):
            stack.extend(head for head, _ in top.routes)
        else:
            stack.extend(top)
    return found


def _numbered(tree: Tree, graph: JoinGraph) -> Shape:
    if isinstance(tree, str):
        return graph.named(tree)
    if isinstance(tree, Orders):
        return _probing(tree, graph)
    return (_numbered(tree[0], graph), _numbered(tree[1], graph))


def _probing(tree: Orders, graph: JoinGraph) -> Probing:
    heads = [head for head, _ in tree.routes]
    orders = []
    for head, order in tree.routes:
        places = tuple(heads.index(part) for part in order if part in heads)
        if len(places) != len(order) or sorted(places) != [i for i, h in enumerate(heads) if h != head]:
            raise QueryError(f"the probe order of {_tree_text(head)} must visit every other input once")
        orders.append(places)
    return Probing(tuple(_numbered(head, graph) for head in heads), tuple(orders))


def _tree_text(tree: Tree) -> str:
    if isinstance(tree, str):
        return tree
    if isinstance(tree, Orders):
        return ", ".join(f"{_tree_text(h)}: {' '.join(map(_tree_text, o))}" for h, o in tree.routes)
    return f"({_tree_text(tree[0])} {_tree_text(tree[1])})"


def shape_text(plan: Relation) -> str:
    """A plan's join shape as users write it; the widest group of joins if there are several."""
    groups = [node for node in walk_plan(plan) if isinstance(node, MultiJoin) or _is_inner(node)]
    if not groups:
        return " ".join(sorted(aliases(plan)))
    widest = max(groups, key=lambda node: len(aliases(node)))
    text = _text(widest)
    return text[1:-1] if isinstance(widest, MultiJoin) else text


def _is_inner(node: Relation) -> bool:
    return isinstance(node, Join) and node.kind == "inner"


def _text(node: Relation) -> str:
    if isinstance(node, MultiJoin):
        names = [_text(child) for child in node.joined]
        routes = (f"{names[i]}: {' '.join(names[j] for j in o)}" for i, o in enumerate(node.orders))
        return f"({', '.join(routes)})"
    if _is_inner(node):
        return f"({' '.join(_text(child) for child in node.inputs)})"
    if isinstance(node, Select):
        return _text(node.input)
    mark = "/distinct" if isinstance(node, Distinct) else "/grouped" if isinstance(node, Aggregate) else ""
    return leaf_name(node) + mark
