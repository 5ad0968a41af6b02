"""Plans as graphs of operators: as a manifest tells them, or, where it tells nothing, as a plan's text does.

In notebooks they are trees; two of them stand side by side, with what both compute set apart from what only one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from midstream.algebra.physical import PhysicalNode
from midstream.errors import MidstreamError
from midstream.html import Branch, Mark, escaped, side_by_side, trees
from midstream.optimizer.routed.text import WaysText
from midstream.optimizer.shapes import Orders, Tree, leaves_of, parse_shape


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """What an operator did in one batch over all slots, and what it keeps."""

    rows_in: int
    rows_out: int
    seconds: float
    state_rows: int
    state_bytes: int

    @property
    def selectivity(self) -> float | None:
        """Rows out for each row in; None if nothing came."""
        return self.rows_out / self.rows_in if self.rows_in else None


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """An operator of a plan; `inputs` are the operators that feed it. Equal `content`: plans compute the same there."""

    id: str
    kind: str
    label: str
    stage: int = 0
    content: str = ""
    inputs: tuple[str, ...] = ()
    stream: str | None = None
    figures: OperatorFigures | None = None


@dataclass(frozen=True, slots=True)
class OperatorTree:
    """An operator with those that feed it."""

    label: str
    content: str
    inputs: tuple[OperatorTree, ...]


DrawnNode = PhysicalNode | OperatorTree
"""What can be drawn: operators with those that feed them."""


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """A plan's operators, root first. `complete` is false where only the join tree is known."""

    plan: str
    nodes: tuple[OperatorNode, ...] = ()
    complete: bool = True

    @property
    def top(self) -> tuple[OperatorNode, ...]:
        """The operators by the seconds they took, the longest first."""
        known = [node for node in self.nodes if node.figures is not None]
        return tuple(sorted(known, key=lambda node: -node.figures.seconds if node.figures else 0.0))

    def trees(self, counts: bool = False) -> tuple[OperatorTree, ...]:
        """The operators below each that feeds no other, with the `counts` of their rows if wanted."""
        nodes = {node.id: node for node in self.nodes}
        fed = {feeder for node in self.nodes for feeder in node.inputs}

        def tree(id: str) -> OperatorTree:
            node = nodes[id]
            figures = node.figures if counts else None
            more = "" if figures is None else f"  {figures.rows_in:,} in, {figures.rows_out:,} out"
            return OperatorTree(node.label + more, node.content, tuple(tree(i) for i in node.inputs if i in nodes))

        return tuple(tree(node.id) for node in self.nodes if node.id not in fed)

    def _repr_html_(self) -> str:
        return plan_html(self.plan, self.trees(counts=True))


def graph_of_record(plan: str, record: Mapping[str, Any]) -> PlanGraph:
    """The graph that a manifest tells of a plan."""
    figures = record.get("figures", {})
    nodes = (
        OperatorNode(
            **{**node, "inputs": tuple(node["inputs"])},
            figures=OperatorFigures(*figures[node["id"]]) if node["id"] in figures else None,
        )
        for node in record["nodes"]
    )
    return PlanGraph(plan, tuple(nodes))


_KINDS = {
    tuple: ("HashJoin", "Join"),
    Orders: ("MultiwayJoin", "Multi-way join"),
    WaysText: ("RoutedJoin", "Routed join"),
}


def join_tree(plan: str) -> PlanGraph:
    """The join tree of a plan's text.

    >>> [(node.label, node.inputs) for node in join_tree("((A B) C)").nodes]
    [('Join', ('1', '4')), ('Join', ('2', '3')), ('A', ()), ('B', ()), ('C', ())]
    """
    nodes: list[OperatorNode] = []

    def add(tree: Tree) -> str:
        place = len(nodes)
        nodes.append(OperatorNode(str(place), "Source", ""))
        if isinstance(tree, str):
            nodes[place] = OperatorNode(str(place), "Source", tree, content=tree, stream=tree)
            return str(place)
        parts: list[Tree] = list(tree) if isinstance(tree, tuple) else [*sorted(set(leaves_of(tree)))]
        kind, label = _KINDS[type(tree)]
        content = f"join of {', '.join(sorted(set(leaves_of(tree))))}"
        nodes[place] = OperatorNode(str(place), kind, label, 0, content, tuple(add(part) for part in parts))
        return str(place)

    try:
        for tree in parse_shape(plan).trees if plan else ():
            add(tree)
    except MidstreamError:
        return PlanGraph(plan, (), complete=False)
    return PlanGraph(plan, tuple(nodes), complete=False)


def plan_html(plan: str, roots: Iterable[DrawnNode], shared: Set[str] = frozenset(), mark: Mark = "") -> str:
    """The operators of a plan; those whose content is `shared` look different from the others."""

    def branch(node: DrawnNode) -> Branch:
        marked: Mark = ("shared" if node.content in shared else mark) if mark else ""
        return Branch(node.label, tuple(map(branch, node.inputs)), marked)

    found = list(map(branch, roots))
    return trees(found) if found else f"<span>{escaped(plan or 'without joins')}</span>"


def change_html(old: tuple[str, Sequence[DrawnNode]], new: tuple[str, Sequence[DrawnNode]]) -> str:
    """Two plans, each with its text, side by side."""
    shared = (set(_contents(old[1])) & set(_contents(new[1]))) - {""}
    before, after = plan_html(*old, shared, "old"), plan_html(*new, shared, "new")
    return side_by_side((f"before: {old[0]}", before), (f"after: {new[0]}", after))


def _contents(nodes: Iterable[DrawnNode]) -> Iterator[str]:
    for node in nodes:
        yield node.content
        yield from _contents(node.inputs)


def shapes_html(old: str, new: str) -> str:
    """Two plans of which only the texts are known, as their join trees side by side."""
    return change_html((old, join_tree(old).trees()), (new, join_tree(new).trees()))
