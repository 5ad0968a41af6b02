"""Plans as users write them.

A join tree by alias, `((A B) C)`; probe orders of a multi-way join, `A: B C, B: A C, C: B A`; both nested,
`((A B): C, C: (A B))` or `((A: B C, B: A C, C: B A) D)`; a routed join, `A -> B <- C, B -> A <- C, C <- B <- A`.
An input whose duplicates are removed, or which is aggregated, before it is joined carries a mark: `(A/distinct B)`,
`(A/grouped B)`. Where a query joins at several places, each has its shape, `((A B) C); (D E)`, and a place that is not
named is joined as the query is written. Names that would be misread stand in double quotes: `("order lines" B)`. So the
text of a plan says all that can be chosen about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union as Either

from midstream.algebra.plan import Aggregate, Distinct, Join, MultiJoin, Relation, RoutedJoins, Select, aliases
from midstream.errors import QueryError
from midstream.optimizer.join_graph import JoinGraph, Probing, Shape, leaf_name
from midstream.optimizer.routed.plan import name_text
from midstream.optimizer.routed.shapes import routed_shape, routed_text
from midstream.optimizer.routed.text import WaysText, is_routed

_TOKENS = re.compile(r'\s*([(),:;]|"(?:[^"]|"")*"(?:/[^\s(),:;"]*)?|[^\s(),:;"]+)')
_COLON = object()
MARKS = ("distinct", "grouped")
_HINT = (
    'write a join tree, "((A B) C)", probe orders, "A: B C, B: A C, C: B A", '
    'or ways, "A -> B -> C, B -> A -> C, C -> B -> A"'
)


@dataclass(frozen=True, slots=True)
class Orders:
    """Probe orders: each part with the parts it probes."""

    routes: tuple[tuple[Tree, tuple[Tree, ...]], ...]


Tree = Either[str, tuple["Tree", "Tree"], Orders, WaysText]  # noqa: UP007


@dataclass(frozen=True, slots=True)
class WantedShapes:
    """Shapes over aliases, one for each place at which the query joins, and the marks some aliases carry."""

    trees: tuple[Tree, ...]
    marks: frozenset[tuple[str, str]] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """All aliases in it."""
        return frozenset(name for tree in self.trees for name in leaves_of(tree))

    def tree_of(self, graph: JoinGraph) -> Tree | None:
        """The shape that is meant for a graph: it names every input once."""
        everyone = set(range(len(graph.inputs)))
        for tree in self.trees:
            leaves = leaves_of(tree)
            if len(leaves) == len(everyone) and {graph.find(name) for name in leaves} == everyone:
                return tree
        return None


def shaped(tree: Tree, graph: JoinGraph) -> Relation:
    """A shape over a graph's inputs."""
    return graph.tree(_numbered(tree, graph))


def parse_shape(text: str) -> WantedShapes:
    """Reads a plan's text.

    >>> sorted(parse_shape('((A B) C); (D "E 2")').names)
    ['A', 'B', 'C', 'D', 'E 2']
    """
    marks: set[tuple[str, str]] = set()
    trees: list[Tree] = []
    for start, end in _parts(text):
        if is_routed(text[start:end]):
            trees.append(WaysText(text, start, end))
            continue
        tree: Tree = _ShapeReader(text, marks).read(_tokens(text, start, end))
        leaves = leaves_of(tree)
        if len(set(leaves)) != len(leaves):
            raise QueryError(f"the plan {text!r} names an alias twice")
        trees.append(tree)
    return WantedShapes(tuple(trees), frozenset(marks))


def _parts(text: str) -> list[tuple[int, int]]:
    """Where the shape of each place begins and ends: between semicolons that are not quoted."""
    cuts = [token.start(1) for token in _TOKENS.finditer(text) if token[1] == ";"]
    return list(zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(text)], strict=True))


def _tokens(text: str, start: int, end: int) -> list[str]:
    """The tokens of one shape."""
    tokens: list[str] = []
    position, end = start, start + len(text[start:end].rstrip())
    while position < end:
        token = _TOKENS.match(text, position)
        if token is None:
            break
        position = token.end()
        tokens.append(token[1])
    if position < end or not tokens:
        raise QueryError(f"cannot read the plan {text!r}", hint=_HINT)
    return tokens


class _ShapeReader:
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
                stack[-1][-1].append(_COLON if token == ":" else self._leaf(token))
        if len(stack) > 1:
            raise QueryError(f"the plan {self.text!r} does not close all its parentheses")
        clauses = stack[0]
        if len(clauses) == 1 and len(clauses[0]) > 1 and _COLON not in clauses[0]:
            raise QueryError(f"the plan {self.text!r} goes on after its end at {_shown(clauses[0][1])!r}")
        return self._group(clauses)

    def _leaf(self, token: str) -> str:
        if token.startswith('"'):
            quoted, _, rest = token[1:].rpartition('"')
            name, marked, mark = quoted.replace('""', '"'), rest[:1], rest[1:]
        else:
            name, marked, mark = token.partition("/")
        if not marked:
            return name
        if mark not in MARKS or not name:
            raise QueryError(f"cannot read {token!r} in the plan", hint=f"marks are {' and '.join(MARKS)}")
        self.marks.add((name, mark))
        return name

    def _group(self, clauses: list[list[object]]) -> Tree:
        if not any(_COLON in clause for clause in clauses):
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
            if len(clause) < 3 or clause[1] is not _COLON or _COLON in clause[2:] or clause[0] is _COLON:
                raise QueryError(f"cannot read the probe orders of the plan {self.text!r}", hint=_HINT)
            routes.append((clause[0], tuple(clause[2:])))
        return Orders(tuple(routes))  # type: ignore[arg-type]


def leaves_of(tree: Tree) -> list[str]:
    """All aliases in a shape."""
    found, stack = [], [tree]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            found.append(top)
        elif isinstance(top, Orders):
            stack.extend(head for head, _ in top.routes)
        elif isinstance(top, WaysText):
            stack.extend(top.heads)
        else:
            stack.extend(top)
    return found


def _numbered(tree: Tree, graph: JoinGraph) -> Shape:
    if isinstance(tree, str):
        return graph.named(tree)
    if isinstance(tree, Orders):
        return _probing(tree, graph)
    if isinstance(tree, WaysText):
        return routed_shape(tree, graph)
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


def _shown(part: object) -> str:
    return _tree_text(part) if isinstance(part, str | tuple | Orders | WaysText) else ":"


def _tree_text(tree: Tree) -> str:
    if isinstance(tree, str):
        return alias_text(tree)
    if isinstance(tree, Orders):
        return ", ".join(f"{_tree_text(h)}: {' '.join(map(_tree_text, o))}" for h, o in tree.routes)
    if isinstance(tree, WaysText):
        return tree.text[tree.start : tree.end].strip()
    return f"({_tree_text(tree[0])} {_tree_text(tree[1])})"


def shape_text(plan: Relation) -> str:
    """A plan's join shapes as users write them, the widest first; the streams alone if nothing is joined."""
    places = sorted(_joined_places(plan), key=lambda node: -len(aliases(node)))
    if not places:
        return "; ".join(map(alias_text, sorted(aliases(plan))))
    return "; ".join(_text(node)[1:-1] if isinstance(node, MultiJoin) else _text(node) for node in places)


def _joined_places(plan: Relation) -> Iterator[Relation]:
    """The topmost node of every group of inner joins."""
    if not isinstance(plan, MultiJoin) and not _is_inner(plan):
        for child in plan.inputs:
            yield from _joined_places(child)
        return
    yield plan
    for leaf in _group_leaves(plan):
        yield from _joined_places(leaf)


def _group_leaves(node: Relation) -> Iterator[Relation]:
    """What a group of inner joins joins, as its text has it."""
    if isinstance(node, MultiJoin) or _is_inner(node):
        children = node.joined if isinstance(node, MultiJoin) else node.inputs
    elif isinstance(node, Select):
        children = node.inputs
    else:
        yield node
        return
    for child in children:
        yield from _group_leaves(child)


def _is_inner(node: Relation) -> bool:
    return isinstance(node, Join) and node.kind == "inner"


def _text(node: Relation) -> str:
    if isinstance(node, MultiJoin):
        names = [_text(child) for child in node.joined]
        if isinstance(node, RoutedJoins):
            leaves = [leaf_name(child) for child in node.joined]
            return f"({routed_text(leaves, node.orders, node.placements)})"
        routes = (f"{names[i]}: {' '.join(names[j] for j in o)}" for i, o in enumerate(node.orders))
        return f"({', '.join(routes)})"
    if _is_inner(node):
        return f"({' '.join(_text(child) for child in node.inputs)})"
    if isinstance(node, Select):
        return _text(node.input)
    mark = "/distinct" if isinstance(node, Distinct) else "/grouped" if isinstance(node, Aggregate) else ""
    return alias_text(leaf_name(node)) + mark


alias_text = name_text
"""An alias as a plan's text has it."""
