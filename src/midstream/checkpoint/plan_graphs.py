"""Plans as graphs: from what a manifest tells of their operators, or, where it tells nothing, from a plan's text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstream.checkpoint.stored import OperatorFigures, OperatorNode, PlanGraph
from midstream.errors import MidstreamError
from midstream.optimizer.routed.text import WaysText
from midstream.optimizer.shapes import Orders, Tree, leaves_of, parse_shape


def graph_of_record(plan: str, record: Mapping[str, Any]) -> PlanGraph:
    """The graph that a manifest tells of a plan."""
    figures = record.get("figures", {})
    nodes = (
        OperatorNode(
            node["id"],
            node["kind"],
            node["label"],
            node["stage"],
            node["content"],
            tuple(node["inputs"]),
            node.get("stream"),
            OperatorFigures(*figures[node["id"]]) if node["id"] in figures else None,
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
