"""Plans as notebooks show them: trees of operators, and two plans side by side with what both compute set apart."""

from __future__ import annotations

from collections.abc import Set

from midstream.algebra.physical import PhysicalNode
from midstream.errors import MidstreamError
from midstream.html import Branch, Mark, escaped, side_by_side, trees
from midstream.optimizer.shapes import Tree, leaves_of, parse_shape


def tree_html(plan: PhysicalNode, shared: Set[str] = frozenset(), mark: Mark = "") -> str:
    """The operators of a plan; those whose content is `shared` look different from the others."""

    def branch(node: PhysicalNode) -> Branch:
        marked: Mark = ("shared" if node.content in shared else mark) if mark else ""
        return Branch(node.label, tuple(branch(child) for child in node.inputs), marked)

    return trees([branch(plan)])


def change_html(old: tuple[str, PhysicalNode], new: tuple[str, PhysicalNode]) -> str:
    """Two plans, each with its text, side by side."""
    shared = _contents(old[1]) & _contents(new[1])
    before, after = tree_html(old[1], shared, "old"), tree_html(new[1], shared, "new")
    return side_by_side((f"before: {old[0]}", before), (f"after: {new[0]}", after))


def _contents(node: PhysicalNode) -> frozenset[str]:
    return frozenset({node.content}).union(*(_contents(child) for child in node.inputs))


def shapes_html(old: str, new: str) -> str:
    """Two plans of which only the texts are known, as their join trees side by side."""
    shared = _joined(old) & _joined(new)
    sides = [(f"before: {old}", _shape(old, shared, "old")), (f"after: {new}", _shape(new, shared, "new"))]
    return side_by_side(*sides)


def _trees(text: str) -> list[Tree]:
    try:
        return list(parse_shape(text).trees) if text else []
    except MidstreamError:
        return []


def _joined(text: str) -> frozenset[str]:
    def below(tree: Tree) -> frozenset[str]:
        parts = tree if isinstance(tree, tuple) else ()
        return frozenset({_named(tree)}).union(*(below(part) for part in parts))

    return frozenset().union(*(below(tree) for tree in _trees(text)))


def _named(tree: Tree) -> str:
    return ", ".join(sorted(set(leaves_of(tree))))


def _shape(text: str, shared: Set[str], mark: Mark) -> str:
    def branch(tree: Tree) -> Branch:
        marked: Mark = "shared" if _named(tree) in shared else mark
        if isinstance(tree, str):
            return Branch(tree, (), marked)
        if isinstance(tree, tuple):
            return Branch("join", tuple(branch(part) for part in tree), marked)
        return Branch("multi-way join", tuple(Branch(leaf) for leaf in sorted(set(leaves_of(tree)))), marked)

    found = _trees(text)
    return trees(branch(tree) for tree in found) if found else f"<span>{escaped(text or 'without joins')}</span>"
