"""The part in which two plans differ, and nothing but the part: what has to migrate.

Two sub-plans can be exchanged for each other if they mean the same by themselves, whatever stands above them. That is
more than that the plans as a whole do: below a DISTINCT a join may lose duplicates, and the plan still means the same,
but the join does not. So the root of the part is the lowest place above all differences at which both sub-plans have
one meaning, and every operator above it is the same in both plans. Below it the part ends where equal sub-plans begin.

What two sub-plans mean is compared by `meaning` (`algebra/physical/identities.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from midstream.algebra import physical as p
from midstream.algebra.partitioning import partition_of
from midstream.algebra.physical.identities import meaning
from midstream.algebra.plan import Relation


@dataclass(frozen=True, slots=True)
class PlanPart:
    """The roots of the part in both plans, and the equal sub-plans below it by name, as each plan has them.

    `whole` says that the part is all there is: the plans have no operator in common.
    """

    old: p.PhysicalNode
    new: p.PhysicalNode
    below: dict[str, tuple[p.PhysicalNode, p.PhysicalNode]]
    whole: bool

    @property
    def old_plan(self) -> p.PhysicalNode:
        """The part as the old plan has it, reading what is below like sources."""
        return _reading(self.old, {name: pair[0] for name, pair in self.below.items()})

    @property
    def new_plan(self) -> p.PhysicalNode:
        """The part as the new plan has it, reading what is below like sources."""
        return _reading(self.new, {name: pair[1] for name, pair in self.below.items()})

    @property
    def text(self) -> str:
        """The part in one line; what is below it stands in brackets."""
        return f"{outline(self.old_plan)} to {outline(self.new_plan)}"


def part_of(old: p.PhysicalNode, new: p.PhysicalNode) -> PlanPart:
    """The smallest connected part in which two plans of one query differ."""
    everything = PlanPart(old, new, {}, True)
    if old == new or p.grids_of(old) != p.grids_of(new):
        # All states are purged at one grid: plans that do not agree on it share no operator for long.
        return everything
    root, its_root = _root(old, new)
    below = dict(_below(root, its_root))
    return PlanPart(root, its_root, below, whole=root is old and not below)


def _root(old: p.PhysicalNode, new: p.PhysicalNode) -> tuple[p.PhysicalNode, p.PhysicalNode]:
    lowest = old, new
    while _alike(old, new):
        differing = [pair for pair in zip(old.inputs, new.inputs, strict=True) if pair[0] != pair[1]]
        if len(differing) != 1:
            break
        old, new = differing[0]
        if exchangeable(old, new):
            lowest = old, new
    return lowest


def _alike(old: p.PhysicalNode, new: p.PhysicalNode) -> bool:
    """Whether two operators are the same but for what is below them."""
    if type(old) is not type(new) or len(old.inputs) != len(new.inputs):
        return False
    own = [f.name for f in fields(old) if not _holds_inputs(getattr(old, f.name))]
    return all(getattr(old, name) == getattr(new, name) for name in own)


def _holds_inputs(value: object) -> bool:
    return isinstance(value, p.PhysicalNode) or (
        isinstance(value, tuple) and bool(value) and isinstance(value[0], p.PhysicalNode)
    )


def exchangeable(old: p.PhysicalNode, new: p.PhysicalNode) -> bool:
    """Whether two sub-plans give the same under whatever stands above them."""
    same_form = old.schema.equals(new.schema) and old.longest == new.longest
    return same_form and meaning(old) == meaning(new)


def _below(old: p.PhysicalNode, new: p.PhysicalNode) -> Iterator[tuple[str, tuple[p.PhysicalNode, p.PhysicalNode]]]:
    """The largest operators' sub-plans that both parts have, each with its twin."""
    theirs = [node for node in p.walk_physical(new) if node.inputs]
    stack = list(old.inputs)
    while stack:
        node = stack.pop(0)
        twin = next((other for other in theirs if other == node), None) if node.inputs else None
        if twin is None:
            stack += node.inputs
        else:
            yield f"[{' '.join(_aliases(node))}]", (node, twin)


def _aliases(node: p.PhysicalNode) -> list[str]:
    return [n.stream.alias for n in p.walk_physical(node) if isinstance(n, p.SourceNode)]


def output_of(part: p.PhysicalNode, name: str) -> p.OutputOf:
    """A source that reads what a part gives, under a name."""
    stream = next(n.stream for n in p.walk_physical(part) if isinstance(n, p.SourceNode))
    named = replace(stream, name=name, alias=name)
    return p.OutputOf(part.schema, named, producer=part, partition=partition_of(part))


def _reading(node: p.PhysicalNode, below: dict[str, p.PhysicalNode]) -> p.PhysicalNode:
    def read(inner: p.PhysicalNode) -> p.PhysicalNode | None:
        return next((output_of(inner, name) for name, wanted in below.items() if wanted is inner), None)

    return p.replaced(node, read)


def outline(node: p.PhysicalNode) -> str:
    """The shape of a physical plan in one line: joins as trees, other operators by their name.

    Selections and projections show only where there is no other operator.
    """
    match node:
        case p.SourceNode():
            return node.stream.alias
        case p.Filter() | p.Compute() | p.Unnest() if not isinstance(node.input, p.SourceNode):
            return outline(node.input)
        case p.HashJoin():
            return f"({outline(node.left)} {outline(node.right)})"
    name = node.label.split(" ")[0].lower()
    return f"{name}({', '.join(outline(child) for child in node.inputs)})"


def logical_parts(old: Relation, new: Relation) -> tuple[Relation, Relation, tuple[Relation, ...]]:
    """The same part of the logical plans, as far as predictions need it: both roots, and what is below the part."""
    while type(old) is type(new) and len(old.inputs) == len(new.inputs):
        differing = [pair for pair in zip(old.inputs, new.inputs, strict=True) if pair[0] != pair[1]]
        if len(differing) != 1 or not differing[0][0].schema.equals(differing[0][1].schema):
            break
        old, new = differing[0]
    theirs = list(_relations(new))
    found: list[Relation] = []
    stack = list(old.inputs)
    while stack:
        node = stack.pop()
        if node in theirs and node.inputs:
            found.append(node)
        else:
            stack += node.inputs
    return old, new, tuple(found)


def _relations(node: Relation) -> Iterator[Relation]:
    yield node
    for child in node.inputs:
        yield from _relations(child)
