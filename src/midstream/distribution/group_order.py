"""Plans whose states are sorted by partition group: every leaf of every fragment says by what its rows are dealt."""

from __future__ import annotations

from dataclasses import replace

from midstream.algebra.partition import Partition
from midstream.algebra.physical import PhysicalNode, Source, with_inputs
from midstream.algebra.physical.routed import OneWayJoin
from midstream.distribution.fragments import Fragment, Received, Route, Staged


def sorted_by_group(staged: Staged, bits: int) -> Staged:
    """The same plan in the same fragments, with states in which each of the `2 ** bits` groups is a range."""
    return replace(staged, fragments=tuple(_with_partitions(f, staged, bits) for f in staged.fragments))


def _with_partitions(fragment: Fragment, staged: Staged, bits: int) -> Fragment:
    def marked(node: PhysicalNode) -> PhysicalNode:
        if isinstance(node, Source):
            return replace(node, partition=_partition(node, staged, bits))
        if isinstance(node, OneWayJoin) and node.window.key and not node.window.everywhere:
            node = replace(node, bits=bits)
        return with_inputs(node, marked)

    return replace(fragment, plan=marked(fragment.plan))


def _partition(leaf: Source, staged: Staged, bits: int) -> Partition | None:
    if isinstance(leaf, Received):
        key = leaf.route.key
    else:
        own = staged.routes.get(leaf.stream.name, Route(None)).key
        key = None if own is None else tuple(f"{leaf.stream.alias}.{name}" for name in own)
    if not key or not set(key) <= set(leaf.schema.names):
        return None
    return Partition(frozenset([key]), bits, not isinstance(leaf, Received) or leaf.route.arrival)
