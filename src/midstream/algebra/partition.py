"""By what rows are dealt to slots: the hash of a key, whose first bits are the number of a partition group."""

from __future__ import annotations

from dataclasses import dataclass

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """Keys that are all equal in every row, and how many bits of their hash are the row's group."""

    keys: frozenset[Key]
    bits: int
