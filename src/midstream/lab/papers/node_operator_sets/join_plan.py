"""A join execution plan: the ways of all streams, as the papers write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from midstream.algebra.placements import Placement
from midstream.errors import QueryError
from midstream.optimizer.routed.conditions import RoutedConditions
from midstream.optimizer.routed.plan import HeadPlan, OneWay, check_probe
from midstream.optimizer.routed.text import parse_ways


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


def parse_plan(text: str, conditions: RoutedConditions) -> JoinPlan:
    """Reads a plan's text and holds it against the query's streams and conditions."""
    return JoinPlan(parse_ways(text, conditions))
