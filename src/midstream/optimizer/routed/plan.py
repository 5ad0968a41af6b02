"""The ways of a routed join: for each head stream an order of the others, and a placement for each one-way join.

A one-way join probes the window of its target with the partial results of a head's new rows. With destination placement
the partial results travel to the target's home; with source placement the target's rows are shipped to where the
partial results are, and a copy of its window is kept there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from midstream.algebra.placements import ARROWS, Placement
from midstream.errors import QueryError
from midstream.optimizer.routed.conditions import RoutedConditions

_PLAIN = re.compile(r"(?:(?!->|<-)[^\s(),:;/\"])+")


def name_text(stream: str) -> str:
    """A stream's name as a plan's text has it."""
    return stream if _PLAIN.fullmatch(stream) else '"{}"'.format(stream.replace('"', '""'))


@dataclass(frozen=True, slots=True)
class OneWay:
    """One probe on a head's way: the stream whose window is probed, and where."""

    target: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """The way of one head stream's rows."""

    head: str
    joins: tuple[OneWay, ...]

    @property
    def order(self) -> tuple[str, ...]:
        """The streams probed, in order."""
        return tuple(join.target for join in self.joins)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of each one-way join."""
        return tuple(join.placement for join in self.joins)

    def __str__(self) -> str:
        steps = [f"{ARROWS[join.placement]} {name_text(join.target)}" for join in self.joins]
        return " ".join([name_text(self.head), *steps])


def check_probe(met: Sequence[str], target: str, conditions: RoutedConditions) -> None:
    """Refuses to probe a stream that no condition links to those met so far while another one could be probed."""
    allowed = conditions.next(met, [s for s in conditions.streams if s not in met])
    if target not in allowed:
        raise QueryError(
            f"the way of {met[0]} probes {target} without a condition on it",
            detail=f"no condition of the query links {target} to {', '.join(met)}",
            hint=f"probe {' or '.join(allowed)} first",
        )
