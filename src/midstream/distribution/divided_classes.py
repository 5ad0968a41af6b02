"""Stages in which slots can share the rows of a key, though these are aggregated or deduplicated there.

A fragment of such a stage is cut in two: the first part works on what lies of a key in its slot, and another stage
merges what the parts give. All else stays as it was cut.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import cast

from midstream.algebra import physical as p
from midstream.algebra.expressions import Column
from midstream.distribution.fragments import Fragment, Key, Route, Staged, class_received, leaves
from midstream.distribution.parts_of_keys import Mergeable, is_mergeable, keys_met, keys_of, merged_over, partial_of
from midstream.distribution.staging import receive, renumbered, stage_of, with_node, with_readers


def divided(staged: Staged, classes: Collection[str]) -> Staged:
    """The plan with fragments that receive by some key classes cut in two, where what they make of parts follows."""
    made: list[Fragment] = []
    numbers: dict[int, int] = {}
    for fragment in staged.fragments:
        plan = renumbered(fragment.plan, numbers)
        node = _lowest(plan) if class_received(fragment) in classes else None
        keys = () if node is None else _common_keys(plan, node)
        if node is not None and keys:
            parts, travels = partial_of(node), _route(keys, class_received(fragment))
            made.append(Fragment(len(made), parts, max(fragment.stage, stage_of(parts, made)), travels, None))
            plan = with_node(plan, node, merged_over(node, receive(parts, len(made) - 1, travels)))
        numbers[fragment.number] = len(made)
        made.append(replace(fragment, number=len(made), plan=plan, stage=max(fragment.stage, stage_of(plan, made))))
    return replace(staged, fragments=with_readers(made)) if len(made) > len(staged.fragments) else staged


def _lowest(plan: p.PhysicalNode) -> Mergeable | None:
    """The node that is cut in two: the lowest above all joins, so that all that is received comes to the first part."""
    every = len(list(leaves(plan)))
    found = [node for node in p.walk_physical(plan) if is_mergeable(node) and len(list(leaves(node))) == every]
    return cast(Mergeable, found[-1]) if found else None


def _common_keys(plan: p.PhysicalNode, node: Mergeable) -> Key:
    """The columns of what a node gives by which its rows belong together, and those of all nodes above it too."""
    keys, names = set(keys_of(node)), {name: name for name in node.schema.names}
    for above in reversed(_above(plan, node)):
        if isinstance(above, p.Compute):
            renamed = {c.expression.name: c.name for c in above.columns if isinstance(c.expression, Column)}
            names = {name: renamed[now] for name, now in names.items() if now in renamed}
        else:
            names = {name: now for name, now in names.items() if now in above.schema.names}
        needed = keys_met(above)
        if needed is not None:
            keys = {name for name in keys if names.get(name) in needed}
    return tuple(name for name in keys_of(node) if name in keys)


def _above(plan: p.PhysicalNode, node: p.PhysicalNode) -> list[p.PhysicalNode]:
    """The nodes above one, from the top; it has all that is received below it, so there are no branches."""
    found = [plan]
    while found[-1] is not node:
        (below,) = (child for child in found[-1].inputs if any(n is node for n in p.walk_physical(child)))
        found.append(below)
    return found[:-1]


def _route(keys: tuple[str, ...], key_class: str) -> Route:
    """By what parts travel: a class of its own, because what merges them cannot be shared by slots itself."""
    name = f"parts of {key_class}"
    return Route(keys, key_class=name, key_text=name)
