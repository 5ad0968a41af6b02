"""Where the rows of a fragment's nodes lie: in one slot, by the hash of any of some keys, or anywhere.

A fragment's leaves are placed by the routes by which they come. Joins place their result by the keys of both sides,
projections rename keys, and a key that is dropped places nothing any more. Where no key is left nothing above in the
fragment must meet, or an exchange would have come first: such rows may lie anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from midstream.algebra import physical as p
from midstream.algebra.partitioning import keys_above
from midstream.distribution.fragments import Fragment, Key, Received, Route, class_received


@dataclass(frozen=True, slots=True)
class Placed:
    """In one slot, or by the hash of each of some keys (none: anywhere); of the keys that are equal in every row.

    What lies `everywhere` is there once in every slot, or in each of `slots`; what lies by key at a site is in its
    `slots`, and elsewhere it is dealt as its `key_class` is.
    """

    one: bool = False
    keys: frozenset[Key] = frozenset()
    everywhere: bool = False
    slots: tuple[int, ...] = ()
    key_class: str = ""

    @property
    def anywhere(self) -> bool:
        """Whether any slot will do."""
        return not self.one and not self.keys and not self.everywhere

    def copied_to(self, count: int) -> Sequence[int]:
        """The slots that have a copy each of what lies everywhere, in a job with so many."""
        return self.slots or range(count)

    @property
    def key(self) -> Key | None:
        """The key to place rows by: none for one slot, None for any."""
        return () if self.one else min(self.keys, default=None)

    def shared_key(self, other: Placed) -> Key | None:
        """A key by which both are in the same partition groups; empty for one slot, None if there is none."""
        if self.one or other.one:
            return () if self.one and other.one else None
        return min(self.keys & other.keys, default=None) if self.slots == other.slots else None


class Placements:
    """Where the rows of each node of a fragment lie; `arriving` are the routes of streams."""

    def __init__(self, fragment: Fragment, arriving: Mapping[str, Route]) -> None:
        self.arriving = arriving
        self.key_class = class_received(fragment)

    def __call__(self, node: p.PhysicalNode) -> Placed:
        """Where a node's output lies."""
        if isinstance(node, p.SourceNode):
            return self._leaf(node)
        below = [self(child) for child in node.inputs]
        slots, key_class = (below[0].slots, below[0].key_class) if below else ((), "")
        ones = [placed.one for placed in below if not placed.everywhere]
        if any(ones):  # of what a union brings together, some may lie in one slot and some by a key
            return Placed(one=all(ones))
        alike = all(placed.key_class == key_class for placed in below)  # what a union brings together need not be
        keys = keys_above(node, [placed.keys for placed in below]) if alike else frozenset[Key]()
        return Placed(keys=keys, slots=slots, key_class=key_class)

    def _leaf(self, node: p.SourceNode) -> Placed:
        route = node.route if isinstance(node, Received) else self._arrival_route(node)
        if route.everywhere:
            return Placed(everywhere=True, slots=route.slots)
        if route.key is None or not set(route.key) <= set(node.schema.names):
            return Placed()
        if not route.key:
            return Placed(one=True)
        return Placed(keys=frozenset([route.key]), slots=route.slots, key_class=route.key_class)

    def _arrival_route(self, node: p.SourceNode) -> Route:
        key = self.arriving.get(node.stream.name, Route(None)).key
        return Route(None if key is None else tuple(f"{node.stream.alias}.{name}" for name in key))
