"""OVER a stream without a window: a row looks at rows up to itself, in the order of time.

What a frame with a start needs is kept as long as it may still be looked at. Of a frame without one only the functions
are allowed whose value follows from that of the row before: all of them are made of sums, least and greatest values
and first values. A dense rank is the number of rows so far that are the first of those equal to them in the order:
those whose number is their rank. A distinct value counts at the first row that has it: where rows are numbered for each
value, that with the number one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from midstream.algebra.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Literal,
    Named,
    conjunction,
)
from midstream.algebra.over import NEIGHBOURS, RANKINGS, Frame, NamedOver, OrderKey
from midstream.algebra.plan import Project, Relation, RowsOverStream, is_time
from midstream.algebra.types import BOOLEAN, INTEGER
from midstream.errors import QueryError
from midstream.language.binding import Binding
from midstream.language.nodes import Node

CARRIED = frozenset({"sum", "min", "max", "first_value", "last_value"})
"""Functions of all rows so far whose value is that of the value so far and the next rows."""

AHEAD = frozenset({"percent_rank", "cume_dist", "ntile", "lead"})
"""Functions of rows that come later in the order."""

Placed = Callable[[NamedOver, str, tuple[Expression, ...]], Column]
"""Gives rows a place among those that are equal in some values: a column of it."""

ONE, NOTHING = Literal(1, INTEGER), Literal(0, INTEGER)


def over_stream(
    binding: Binding,
    relation: Relation,
    keys: tuple[Expression, ...],
    order: tuple[OrderKey, ...],
    calls: Sequence[NamedOver],
    nodes: Mapping[str, Node],
) -> Relation:
    """A stream with the values of calls over the rows up to each of its own; `nodes` say where they are written."""
    node = nodes[calls[0].name]
    if not order or order[0].descending or not is_time(order[0].key, relation):
        raise binding.error(
            "OVER without a window needs an ORDER BY that begins with the stream's time, ascending",
            node,
            detail="a row looks at the rows up to its own time; for any other order all of them would have to be kept",
            hint="give the stream a window, for instance [RANGE …], or [UNBOUNDED] if its state may grow",
        )
    for call in calls:
        with binding.at(nodes[call.name]):
            _require_past(call)
    given = [*relation.schema.names, *(call.name for call in calls)]

    def placed(over: NamedOver, function: str, among: tuple[Expression, ...]) -> Column:
        nonlocal relation
        place = NamedOver(f"{over.name} {function}", AggregateCall(function, (), INTEGER))
        relation = over_stream(binding, relation, among, order, [place], {place.name: nodes[over.name]})
        return Column(place.name, INTEGER)

    calls = [_at_first_rows(call, keys, placed) for call in calls]
    bounded = [call for call in calls if call.call.function in NEIGHBOURS or call.frame.start is not None]
    running = [call for call in calls if call not in bounded]
    if bounded:
        relation = RowsOverStream(relation, keys, order, tuple(bounded))
    if not running:
        return relation
    made: list[NamedOver] = []
    values = [Named(f.name, Column(f.name, f.type)) for f in relation.schema if f.name in given]
    for call in running:
        with binding.at(nodes[call.name]):
            values.append(Named(call.name, _value(call, made)))
    # Nothing is left of what the values are made of.
    return Project(RowsOverStream(relation, keys, order, tuple(made)), tuple(values))


def _at_first_rows(over: NamedOver, keys: tuple[Expression, ...], placed: Placed) -> NamedOver:
    """A dense rank, or an aggregate of distinct values of all rows so far, as that of some rows."""
    call, first = over.call, None
    known = () if call.where is None else (call.where,)
    if call.function == "dense_rank":
        call, over = AggregateCall("count", (), INTEGER), NamedOver(over.name, call)
        first = Call("=", (placed(over, "row_number", keys), placed(over, "rank", keys)), BOOLEAN)
    elif call.distinct and call.function in ("count", "sum", "avg") and over.frame.start is None:
        first = Call("=", (placed(over, "row_number", (*keys, *call.args, *known)), ONE), BOOLEAN)
    elif not call.distinct or call.function not in ("min", "max"):
        return over
    where = call.where if first is None else conjunction([first, *known])
    return replace(over, call=replace(call, distinct=False, where=where))


def _require_past(call: NamedOver) -> None:
    function, end = call.call.function, call.frame.end
    if call.number is None:
        raise QueryError(
            f"{function} of a stream without a window looks back as many rows as are written out",
            detail="how far each row wants to look back is known when it comes: all rows would have to be kept",
            hint="write a number, or give the stream a window, for instance [RANGE …]",
        )
    framed = function not in RANKINGS | NEIGHBOURS
    if function in AHEAD or (framed and (end is None or end > 0)):
        raise QueryError(
            f"{function} looks at rows that are still to come",
            detail="a row of a stream without a window has its values at its own time",
            hint="give the stream a window, for instance [RANGE …]",
        )


def _unbounded(what: str) -> QueryError:
    return QueryError(
        f"{what.removeprefix('nested_')} over all rows so far would need all of them",
        detail="without a window its state would grow without bound",
        hint="give the frame a start, for instance ROWS 100 PRECEDING, or the stream a window",
    )


def _value(over: NamedOver, made: list[NamedOver]) -> Expression:
    """The value of a call, of columns that are added to those made."""
    call, frame = over.call, over.frame

    def column(function: str, value: Expression, kind: pa.DataType, frame: Frame = frame) -> Column:
        named = NamedOver(f"{over.name} {len(made)}", AggregateCall(function, (value,), kind), frame, over.known)
        made.append(named)
        return Column(named.name, kind)

    def count(value: Expression, frame: Frame = frame) -> Expression:
        return Call("coalesce", (column("sum", value, INTEGER, frame), NOTHING), INTEGER)

    match call.function:
        case "row_number":
            return count(ONE, Frame("rows"))
        case "rank":
            return Call("+", (count(ONE, Frame("groups", end=-1)), ONE), INTEGER)
    allowed = frame.end == 0 or (frame.end == -1 and frame.unit != "range")
    if call.function not in CARRIED | {"count", "avg"} or call.distinct or frame.excluded or not allowed:
        excluded = f" with EXCLUDE {frame.excluded}" if frame.excluded else ""
        raise _unbounded(call.function + (" DISTINCT" if call.distinct else excluded))
    if call.function == "count":
        return count(_where(call, ONE, *call.args))
    value = _where(call, call.args[0])
    if call.function == "avg":
        whole = pa.types.is_integer(value.type)
        total = column("sum", value, INTEGER if whole else pa.float64())
        shown = Cast(total, pa.float64()) if whole else total
        return Call("/", (shown, count(_where(call, ONE, *call.args))), pa.float64())
    kind = call.type
    return column(call.function, value if value.type == kind else Cast(value, kind), kind)


def _where(call: AggregateCall, value: Expression, *known: Expression) -> Expression:
    """A value where a call takes notice of a row, null elsewhere."""
    nothing = Literal(None, value.type)
    for argument in known:
        value = Case(((Call("is_null", (argument,), BOOLEAN), nothing),), value)
    return value if call.where is None else Case(((call.where, value),), nothing)
