"""The texts by which physical plans are compared, and what each is for.

- `node.content`: equal for sub-plans that hold the same tuples, whatever the order of their inner joins. States are
  named by it, and found by it in another plan. It is written into checkpoints, so its text must not change.
- `part_key`: content, and the grids on which it is answered. Operators that queries of one process share go by it.
- `structure`: equal for nodes that are interchangeable with all their states. Operators that queries of a job share go
  by it; `job/queries/fingerprints.py` extends it across exchanges.
- `meaning`: equal for sub-plans that give the same, whatever the order of their inner joins, selections and
  projections. It bounds the part of a plan that has to migrate.
"""

from __future__ import annotations

from collections.abc import Iterable

from midstream.algebra.expressions import Expression
from midstream.algebra.physical.base import PhysicalNode, columns_text, grids_of


def joined_content(node: PhysicalNode) -> str:
    """Inner joins of the same inputs under the same conditions hold the same, in whatever order they join."""
    leaves: list[str] = []
    conditions = Conditions()
    stack: list[PhysicalNode] = [node]
    while stack:
        top = stack.pop().stands_for
        if top.conjunction is None or len(top.inputs) < 2:
            leaves.append(top.content)
        else:
            stack += top.inputs
            conditions.add(top)
    return f"join({'; '.join(sorted(leaves))} | {' and '.join(conditions.texts())}){columns_text(node.schema)}"


def part_key(node: PhysicalNode) -> str:
    """What a sub-plan holds, and when it answers."""
    return " ".join([node.content, *sorted(grids_of(node))])


def structure(node: PhysicalNode, inputs: Iterable[str]) -> str:
    """What a node does and over what, exactly; `inputs` are the texts of what it reads."""
    grid = getattr(node, "grid", None)
    columns = ", ".join(f"{f.name} {f.type}" for f in node.schema)
    nulls = " with nulls" if getattr(node, "nulls_equal", False) else ""
    steps = getattr(node, "routes", "")
    return f"{type(node).__name__} {node.label}{nulls} {steps} {grid} [{columns}] ({'; '.join(inputs)})"


def meaning(node: PhysicalNode) -> str:
    """What a sub-plan gives.

    Selections, projections of columns and inner joins mean one join of what is below them under all their conditions;
    any other operator means what it says over the meanings of its inputs.
    """
    return f"{_relation(node)} {columns_text(node.schema)}"


def _relation(node: PhysicalNode) -> str:
    leaves: list[str] = []
    conditions = Conditions()
    stack = [node]
    while stack:
        top = stack.pop()
        if top.conjunction is None:
            leaves.append(_leaf(top))
        else:
            stack += top.inputs
            conditions.add(top)
    return f"({'; '.join(sorted(leaves))} where {' and '.join(conditions.texts())})"


def _leaf(node: PhysicalNode) -> str:
    if not node.inputs:
        return node.label if node.stands_for is node else node.content
    # A union and a difference go by the place of columns, not by their names.
    inputs = (f"{_relation(child)} {child.schema.names}" for child in node.inputs)
    return f"{node.label}({'; '.join(inputs)})"


class Conditions:
    """The conditions of several nodes as texts that do not depend on which of equal columns are compared."""

    def __init__(self) -> None:
        self._equal: list[tuple[str, str]] = []
        self._others: set[str] = set()

    def add(self, node: PhysicalNode) -> None:
        """The conditions under which a node joins or selects."""
        assert node.conjunction is not None
        self._equal += node.conjunction.equal
        self._others |= {_alike(a, b) for a, b in node.conjunction.alike}
        for condition in node.conjunction.conditions:
            self._sort_out(condition)

    def _sort_out(self, condition: Expression) -> None:
        arguments = [str(a) for a in condition.arguments]
        match getattr(condition, "function", None):
            case "=":
                self._equal.append((arguments[0], arguments[1]))
            case "is_not_distinct_from":
                self._others.add(_alike(arguments[0], arguments[1]))
            case _:
                self._others.add(str(condition))

    def texts(self) -> list[str]:
        """All of them, sorted."""
        return sorted([*equal_classes(self._equal), *self._others])


def _alike(a: str, b: str) -> str:
    return " IS ".join(sorted((a.removeprefix("#"), b.removeprefix("#"))))


def equal_classes(pairs: list[tuple[str, str]]) -> list[str]:
    """Which terms are all equal: plans may compare different pairs of them and yet hold the same."""
    classes: list[set[str]] = []
    for pair in pairs:
        both = {term.removeprefix("#") for term in pair}
        touching = [c for c in classes if c & both]
        classes = [c for c in classes if not c & both]
        classes.append(both.union(*touching))
    return [" = ".join(sorted(c)) for c in classes]
