"""A join execution plan: for each head stream an order of the others, and a placement for each one-way join.

A one-way join probes the window of its target with the partial results of a head's new rows. With destination placement
the partial results travel to the target's home; with source placement the target's rows are shipped to where the
partial results are, and a copy of its window is kept there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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


@dataclass(frozen=True)
class JoinPlan:
    """A way for every stream; a plan in which a stream is missing or met twice does not exist."""

    heads: tuple[HeadPlan, ...]

    def __post_init__(self) -> None:
        everyone = {way.head for way in self.heads}
        if len(everyone) != len(self.heads):
            raise QueryError("a plan has two ways for one head stream")
        for way in self.heads:
            if sorted((way.head, *way.order)) != sorted(everyone):
                raise QueryError(f"the way of {way.head} must visit every other stream once")

    @property
    def streams(self) -> tuple[str, ...]:
        """All streams, in the order of their ways."""
        return tuple(way.head for way in self.heads)

    @cached_property
    def _by_head(self) -> Mapping[str, HeadPlan]:
        return {way.head: way for way in self.heads}

    def way(self, head: str) -> HeadPlan:
        """The way of one head stream."""
        return self._by_head[head]

    def __iter__(self) -> Iterator[HeadPlan]:
        return iter(self.heads)

    def __str__(self) -> str:
        return ", ".join(map(str, self.heads))


def head_plan(head: str, order: Sequence[str], placements: Sequence[Placement | int]) -> HeadPlan:
    """A way from the paper's two sequences.

    >>> head_plan("S1", ["S2", "S3"], [1, 0]).placements
    (<Placement.DESTINATION: 1>, <Placement.SOURCE: 0>)
    """
    pairs = zip(order, placements, strict=True)
    return HeadPlan(head, tuple(OneWay(target, Placement(placement)) for target, placement in pairs))


def checked(plan: JoinPlan, conditions: RoutedConditions) -> JoinPlan:
    """The plan, if it joins the query's streams and probes none without a condition on it."""
    if set(plan.streams) != set(conditions.streams):
        different = sorted(set(conditions.streams) ^ set(plan.streams))
        raise QueryError("the plan and the query join different streams", detail=f"they differ in {different[0]}")
    for way in plan:
        for position, target in enumerate(way.order):
            check_probe((way.head, *way.order[:position]), target, conditions)
    return plan


def check_probe(met: Sequence[str], target: str, conditions: RoutedConditions) -> None:
    """Refuses to probe a stream that no condition links to those met so far while another one could be probed."""
    allowed = conditions.next(met, [s for s in conditions.streams if s not in met])
    if target not in allowed:
        raise QueryError(
            f"the way of {met[0]} probes {target} without a condition on it",
            detail=f"no condition of the query links {target} to {', '.join(met)}",
            hint=f"probe {' or '.join(allowed)} first",
        )
