"""A routing: which slot owns each partition group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Routing:
    """The slot of each partition group, how many slots there are, and what made it so."""

    groups: tuple[int, ...]
    slots: int
    trigger: str = ""
    protocol: str = "mslb"
    reason: str = ""
    """By which balancing protocol groups come to be so, and why by that one, if it was chosen."""
