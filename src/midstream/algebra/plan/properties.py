"""What follows from a plan about its results: whether they only grow, and at which instants they are looked at."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

import pyarrow.types as kind

from midstream.algebra.expressions import Call, Cast, Column, Expression, Literal, Named
from midstream.algebra.plan.base import Relation, Stream, Window, walk_plan
from midstream.algebra.plan.patterns import Match
from midstream.algebra.plan.relations import (
    Aggregate,
    Difference,
    Distinct,
    Intersect,
    Join,
    MultiJoin,
    Project,
    RowFunctions,
    RowsOverStream,
    Select,
    Sequence,
    ToStream,
    Union,
    Unnested,
)
from midstream.algebra.windows import NOW, Hop, Range, Rows, SessionGap, Unbounded, Until, WindowSpec

UNITS = ("s", "ms", "us", "ns")


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
    return _as_short(plan, lambda spec: spec == NOW or isinstance(spec, SessionGap))


def ends(plan: Relation) -> bool:
    """Whether every tuple stops counting at some time that is known when it starts to."""
    return _as_short(plan, lambda spec: not isinstance(spec, Unbounded | Until | Rows))


def _as_short(plan: Relation, short: Callable[[WindowSpec], bool]) -> bool:
    """Whether rows count for no longer than windows that are short in some way: what is joined lasts while all do."""
    match plan:
        case Stream() | Sequence():
            return True
        case Window(spec=spec):
            return short(spec)
        case Join(kind="inner" | "semi") | MultiJoin() | Intersect():
            return any(_as_short(child, short) for child in plan.inputs)
        case Join(kind="left" | "anti") | Difference():
            return _as_short(plan.inputs[0], short)
        case Join(kind="right"):
            return _as_short(plan.inputs[1], short)
    return all(_as_short(child, short) for child in plan.inputs)


def is_raw(plan: Relation) -> bool:
    """Whether all tuples still count for one tick only, because no window has said otherwise."""
    match plan:
        case Stream() | Sequence() | Match():
            return True
        case Select() | Project() | RowsOverStream() | Unnested() | Union():
            return all(is_raw(child) for child in plan.inputs)
    return False


def is_time(expression: Expression, plan: Relation) -> bool:
    """Whether a value is the time at which a tuple of the relation happens."""
    if isinstance(expression, Cast) and _keeps_instants(expression):
        expression = expression.input
    return isinstance(expression, Column) and expression.name in _time_columns(plan)


def _keeps_instants(cast: Cast) -> bool:
    """Whether a cast only makes a type of time wider or finer, as comparing two of them does."""
    source, target = cast.input.type, cast.type
    if kind.is_integer(source) and kind.is_integer(target):
        return int(target.bit_width) >= int(source.bit_width)
    if not (kind.is_timestamp(source) and kind.is_timestamp(target)) or (source.tz is None) != (target.tz is None):
        return False
    return UNITS.index(target.unit) >= UNITS.index(source.unit)


def _time_columns(plan: Relation) -> set[str]:
    """The columns that hold the time at which a tuple of the relation happens."""
    match plan:
        case Stream():
            return {f"{plan.alias}.{plan.time}"}
        case Select() | RowFunctions() | Unnested() | Distinct():
            return _time_columns(plan.input)
        case Window(spec=spec) if spec == NOW:
            return _time_columns(plan.input)
        case Join(left=left, right=right):
            sides = {"inner": (left, right), "right": (right,), "full": ()}.get(plan.kind, (left,))
            return {name for side in sides if is_momentary(side) for name in _time_columns(side)}
        case Project() | Aggregate():
            below, ends = _time_columns(plan.input), _end_columns(plan.input)
            return {c.name for c in _kept_columns(plan) if _name_of(c) in below or _is_last_instant(c.expression, ends)}
        case Union():
            names = [[name in _time_columns(child) for name in child.schema.names] for child in plan.inputs]
            return {name for name, times in zip(plan.schema.names, zip(*names, strict=True), strict=True) if all(times)}
        case Sequence(order="<=" | "<"):
            return _time_columns(plan.second)
        case Sequence(outer=False):
            return _time_columns(plan.first)
    return set()


def _is_last_instant(expression: Expression, ends: set[str]) -> bool:
    """Whether a value is the last millisecond of a window, or its bounds; rows of windows happen when these end."""
    match expression:
        case Call("-", (Column(name), Literal(amount))):
            return name in ends and amount == dt.timedelta(milliseconds=1)
        case Call("named_struct", (_, _, Literal("end"), Column(name))):
            return name in ends
    return False


def _end_columns(plan: Relation) -> set[str]:
    """The columns that hold the end of the window in which a tuple counts."""
    match plan:
        case Window():
            return set() if plan.bounds is None else {plan.bounds[1]}
        case Select() | RowFunctions() | Distinct():
            return _end_columns(plan.input)
        case Project() | Aggregate():
            below = _end_columns(plan.input)
            return {c.name for c in _kept_columns(plan) if _name_of(c) in below}
    return set()


def _kept_columns(plan: Project | Aggregate) -> tuple[Named, ...]:
    """The columns that are values of single tuples below."""
    return plan.columns if isinstance(plan, Project) else plan.keys


def _name_of(column: Named) -> str | None:
    return column.expression.name if isinstance(column.expression, Column) else None
