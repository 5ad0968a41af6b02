"""What follows from a plan about its results: whether they only grow, and at which instants they are looked at."""

from __future__ import annotations

from dataclasses import replace

from midstream.algebra.plan.base import Relation, Stream, Window, walk_plan
from midstream.algebra.plan.relations import Aggregate, Difference, Intersect, Join, MultiJoin, Over, Sequence, ToStream
from midstream.algebra.windows import Hop, Range, Rows


def is_monotone(plan: Relation) -> bool:
    """Whether more input only ever adds to the result, so that it can be emitted before time has passed it."""
    for node in walk_plan(plan):
        match node:
            case Aggregate() | Over() | Difference() | Intersect() | ToStream() | Sequence():
                return False
            case Join(kind="left" | "right" | "full" | "anti"):
                return False
            case Window(spec=Rows()):
                return False
            case Window(input=inner) if not isinstance(inner, Stream):
                return False
            case _:
                pass
    return True


def instants(plan: Relation) -> Range | Hop | None:
    """The instants at which a relation is looked at one by one (by a window over it, or by RSTREAM).

    `NOW` stands for every tick; a `Hop` for its boundaries; None means that there would be one element per
    microsecond, which nobody wants, unless no row lasts longer than that.
    """
    windows = {node.spec for node in walk_plan(plan) if isinstance(node, Window)}
    hops = {replace(w, size=w.slide) for w in windows if isinstance(w, Hop)}
    if windows and len(hops) == 1 and all(isinstance(w, Hop) for w in windows):
        return hops.pop()
    return Range(0) if plan.domain.is_integer or is_momentary(plan) else None


def is_momentary(plan: Relation) -> bool:
    """Whether every row comes of tuples that count for one tick, so that it counts for no longer (in one piece)."""
    match plan:
        case Stream() | Sequence():
            return True
        case Window(spec=spec):
            return spec == Range(0)
        case Join(kind="inner" | "semi") | MultiJoin() | Intersect():
            return any(map(is_momentary, plan.inputs))
        case Join(kind="left" | "anti") | Difference():
            return is_momentary(plan.inputs[0])
        case Join(kind="right"):
            return is_momentary(plan.inputs[1])
    return all(map(is_momentary, plan.inputs))
