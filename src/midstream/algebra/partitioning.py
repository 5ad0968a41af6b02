"""Which partition group the rows of a node are of, from what is known of the leaves below it.

Joins place their result by the keys of both sides, projections rename keys, and a key that is dropped places nothing
any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from midstream.algebra import physical as p
from midstream.algebra.expressions import Column
from midstream.algebra.partition import Key, Partition

Keys = frozenset[Key]


def partition_of(node: p.PhysicalNode) -> Partition | None:
    """By what a node's rows are dealt to slots; None if nothing says so, or no column is left that does."""
    if isinstance(node, p.SourceNode):
        return node.partition
    below = [partition_of(child) for child in node.inputs]
    known = [partition for partition in below if partition is not None]
    if not known or len(known) < len(below):
        return None
    keys = keys_above(node, [partition.keys for partition in known])
    return replace(known[0], keys=keys) if keys else None


def keys_above(node: p.PhysicalNode, below: Sequence[Keys]) -> Keys:
    """The keys by which a node's output lies, from those by which its inputs do."""
    names = set(node.schema.names)
    return frozenset(key for key in _keys(node, below) if set(key) <= names)


def _keys(node: p.PhysicalNode, below: Sequence[Keys]) -> Keys:
    match node:
        case p.Compute(columns=columns):
            return _renamed(
                below[0], [(c.expression.name, c.name) for c in columns if isinstance(c.expression, Column)]
            )
        case p.HashJoin() | p.MultiwayJoin() | p.FollowedBy(outer=False):
            return frozenset[Key]().union(*below)
        case p.OuterJoin(kind="right") | p.FollowedBy():
            return below[1]
        case p.OuterJoin(kind="full") | p.Changes(kind="keep"):  # what is kept stays where it came
            return frozenset()
        case p.SetOperation() | p.Concatenate():
            named = [
                _renamed(keys, list(zip(child.schema.names, node.schema.names, strict=True)))
                for keys, child in zip(below, node.inputs, strict=True)
            ]
            return named[0].intersection(*named[1:])
    return below[0]


def _renamed(keys: Keys, names: Sequence[tuple[str, str]]) -> Keys:
    """The keys by the new names of columns, of which one may have several."""
    new = {name: [to for of, to in names if of == name] for name, _ in names}
    return frozenset(found for key in keys for found in product(*(new.get(name, ()) for name in key)))
