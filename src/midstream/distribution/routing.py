"""A routing: which slot owns each partition group, of what arrives and of each key class that is dealt apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Table = tuple[int, ...]
"""The slot of each partition group."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The slot of each partition group, how many slots there are, and what made it so.

    `groups` is the table of what arrives, and of all key classes but those that are dealt `apart`.
    """

    groups: Table
    slots: int
    trigger: str = ""
    protocol: str = "mslb"
    reason: str = ""
    """By which balancing protocol groups come to be so, and why by that one, if it was chosen."""
    apart: Mapping[str, Table] = field(default_factory=dict)

    def table(self, key_class: str) -> Table:
        """The slots of a key class.

        >>> Routing((0, 1), 2, apart={"B.y": (1, 1)}).table("B.y")
        (1, 1)
        """
        return self.apart.get(key_class, self.groups)

    def deals_as(self, other: Routing) -> bool:
        """Whether all groups of all classes are in the same slots.

        >>> Routing((0, 1), 2, apart={"B.y": (0, 1)}).deals_as(Routing((0, 1), 2))
        True
        """
        return all(mine == its for _, mine, its in self.beside(other))

    def beside(self, other: Routing) -> Iterator[tuple[str, Table, Table]]:
        """The tables of what arrives and of all classes that one of two routings deals apart, in both."""
        yield "", self.groups, other.groups
        for key_class in sorted({*self.apart, *other.apart}):
            yield key_class, self.table(key_class), other.table(key_class)
