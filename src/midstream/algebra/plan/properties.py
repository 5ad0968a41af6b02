"""What follows from a plan about its results: whether they only grow, and at which instants they are looked at."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.algebra.plan.base import Relation, Stream, Window, walk_plan
from midstream.algebra.plan.patterns import Match
from midstream.algebra.plan.relations import (
    Aggregate,
    Difference,
    Intersect,
    Join,
    MultiJoin,
    RowFunctions,
    Sequence,
    ToStream,
)
from midstream.algebra.windows import NOW, Hop, Range, Rows, SessionGap, WindowSpec


def is_monotone(plan: Relation) -> bool:
    """Whether more input only ever adds to the result, so that it can be emitted before time has passed it."""
    for node in walk_plan(plan):
        match node:
            case Aggregate() | RowFunctions() | Match() | Difference() | Intersect() | ToStream() | Sequence():
                return False
            case Join(kind="left" | "right" | "full" | "anti"):
                return False
            case Window(spec=Rows() | SessionGap()):
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
    windows = set(_outermost(plan))
    hops = [w.grid for w in windows if isinstance(w, Hop)]
    if hops and len(hops) == len(windows):
        finest = min(hops, key=lambda hop: hop.longest_slide)
        if all(_lies_on(hop, finest) for hop in hops):
            return finest
    return NOW if plan.domain.is_integer or is_momentary(plan) else None


def _outermost(plan: Relation) -> Iterator[WindowSpec]:
    """The windows that say for how long the rows of a relation count, which below other windows they do not."""
    match plan:
        case Window(spec=spec):
            yield spec
        case Stream() | Sequence():
            yield NOW
        case _:
            for child in plan.inputs:
                yield from _outermost(child)


def _lies_on(hop: Hop, finest: Hop) -> bool:
    """Whether all boundaries of a hop are boundaries of another."""
    steps = (hop.slide % finest.slide, (hop.offset - finest.offset) % finest.slide)
    alike = hop.months == finest.months and (hop.months or hop.zone is None) and hop.zone == finest.zone
    return hop == finest or (alike and steps == (0, 0))


def gives_at_ends(plan: Relation) -> bool:
    """Whether all that a relation gives comes of windows that have ended, so that it is about the time before."""
    return all(isinstance(spec, Hop | SessionGap) for spec in _outermost(plan))


def is_momentary(plan: Relation) -> bool:
    """Whether every row comes of tuples that count for one tick, so that it counts for no longer (in one piece)."""
    match plan:
        case Stream() | Sequence():
            return True
        case Window(spec=spec):
            return spec == NOW or isinstance(spec, SessionGap)
        case Join(kind="inner" | "semi") | MultiJoin() | Intersect():
            return any(map(is_momentary, plan.inputs))
        case Join(kind="left" | "anti") | Difference():
            return is_momentary(plan.inputs[0])
        case Join(kind="right"):
            return is_momentary(plan.inputs[1])
    return all(map(is_momentary, plan.inputs))
