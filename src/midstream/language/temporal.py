"""Conditions on the time of the query: `ts > now() - INTERVAL '1 hour'` is a window, and so is `until > now()`.

A tuple fulfils the first from its own time on for as long as the query's time is less than an hour later, which is what
`[RANGE 1 HOUR]` says but for its last instant. Every condition that a tuple fulfils until some time and never again is
a `[VALID UNTIL …]`: where several have to hold it is the least of their times, where one of several has to hold the
greatest. A condition that does not ask for the query's time holds for ever, which is null, or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.functions import NOW
from midstream.language.literals import months
from midstream.language.nodes import Duration, Node, WindowClause, all_of, at_same, bounds_of, column_named, flatten

TICK = exp.Interval(this=Duration(this="1", unit="microsecond"))

OPPOSITE: dict[type[Node], type[Node]] = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT}


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """A stream in FROM, the name it has there, its time column, the least amount of that, and all its columns."""

    node: Node
    name: str
    time: str
    tick: Node
    columns: frozenset[str]


def timed(node: Node, name: str, stream: StreamDeclaration) -> Timed:
    """A stream that is called so in FROM."""
    tick = exp.Literal.number(1) if stream.domain.is_integer else TICK
    return Timed(node, name, stream.time, tick, frozenset(map(str.casefold, stream.visible.names)))


def take_windows(select: exp.Select, streams: Sequence[Timed]) -> None:
    """Makes conditions of WHERE that ask for the time of the query windows of the stream that they name."""
    if (where := select.args.get("where")) is not None:
        wholes = [(whole, isinstance(whole, exp.Between)) for whole in flatten(where.this, exp.And)]
        parts = [
            part for whole, two in wholes for part in (bounds_of(whole) if two and _tells_time(whole) else [whole])
        ]
        kept = [part for part in parts if not _taken(part, _stream_of(part, streams))]
        select.set("where", exp.Where(this=all_of(kept)) if kept else None)


def _taken(part: Node, stream: Timed | None) -> bool:
    if stream is None or not _tells_time(part):
        return False
    later, earlier, strict = ordered(part) or (part, part, True)
    if _is_now(later) and _is_time(earlier, stream) and not strict:  # no tuple is later than the query's time
        return True
    ends, until = _ends(stream), _until(part, stream)
    if ends is None or until is None:
        return False
    made = WindowClause(this="VALID UNTIL", until=_call("least", *ends, until) if ends else until)
    size = _duration(later.expression) if isinstance(later, exp.Add) and _is_time(later.this, stream) else None
    if size is not None and not ends:
        made = WindowClause(this="RANGE", size=size, strict=strict)
    stream.node.set("window", at_same(made, part))
    return True


def ordered(part: Node) -> tuple[Node, Node, bool] | None:
    """The sides of an order, the later first and distances from the query's time with it, and whether they differ."""
    if isinstance(part, exp.Not) and type(part.this) in OPPOSITE:
        part = OPPOSITE[type(part.this)](this=part.this.this, expression=part.this.expression)
    if type(part) not in OPPOSITE:
        return None
    down = isinstance(part, exp.LT | exp.LTE)
    later, earlier = (part.expression, part.this) if down else (part.this, part.expression)
    if isinstance(earlier, exp.Add | exp.Sub) and _is_now(earlier.this):
        opposite = exp.Sub if isinstance(earlier, exp.Add) else exp.Add
        later, earlier = opposite(this=later, expression=earlier.expression), earlier.this
    return later, earlier, isinstance(part, exp.GT | exp.LT)


def _ends(stream: Timed) -> list[Node] | None:
    """Until when a stream's window holds its tuples, unless for ever; None for windows that do not say it."""
    window = stream.node.args.get("window")
    if window is None or window.this == "UNBOUNDED":
        return []
    if window.this == "RANGE":
        whole, size = isinstance(stream.tick, exp.Literal), window.args["size"]
        amount = exp.Literal.number(size.this) if whole else exp.Interval(this=size)
        end = exp.Add(this=column_named(stream.time, stream.name), expression=amount)
        return [end if window.args.get("strict") else exp.Add(this=end, expression=stream.tick)]
    return [window.args["until"]] if window.this == "VALID UNTIL" else None


def _until(part: Node, stream: Timed) -> Node | None:
    """Until when a tuple fulfils a condition, as a value; None if it may fulfil it later on only."""
    time = column_named(stream.time, stream.name)
    if not _tells_time(part):
        return exp.Case(ifs=[exp.If(this=part, true=exp.Null())], default=time)
    if isinstance(part, exp.And | exp.Or):
        parts = flatten(part, type(part))
        ends = [end for one in parts if (end := _until(one, stream)) is not None]
        if len(ends) < len(parts):
            return None
        ever = all_of([exp.Is(this=end, expression=exp.Null()) for end in ends], type(part))
        last = _call("least" if isinstance(part, exp.And) else "greatest", *ends)
        return exp.Case(ifs=[exp.If(this=ever, true=exp.Null())], default=last)
    later, earlier, strict = ordered(part) or (part, part, True)
    if _tells_time(later) or not _is_now(earlier):
        return None
    return _call("coalesce", later if strict else exp.Add(this=later, expression=stream.tick), time)


def _call(name: str, *arguments: Node) -> Node:
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def _is_now(node: Node) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in NOW and not node.expressions
    return isinstance(node, exp.Column) and not node.args.get("table") and node.name.lower() in NOW - {"now"}


def _tells_time(node: Node) -> bool:
    return any(_is_now(part) for part in node.find_all(exp.Anonymous, exp.Column))


def _is_time(node: Node, stream: Timed) -> bool:
    return isinstance(node, exp.Column) and node.name.casefold() == stream.time.casefold()


def _stream_of(part: Node, streams: Sequence[Timed]) -> Timed | None:
    """The stream whose columns a condition names, if there is only one."""
    columns = [column for column in part.find_all(exp.Column) if not _is_now(column)]
    found = [[s for s in streams if _has(s, column)] for column in columns]
    first = found[0][0] if found and found[0] else None
    return first if all(named == [first] for named in found) else None


def _has(stream: Timed, column: exp.Column) -> bool:
    table = column.table.casefold()
    return column.name.casefold() in stream.columns if not table else table == stream.name.casefold()


def _duration(node: Node) -> Node | None:
    """A constant distance, of which each is as long as another."""
    if isinstance(node, exp.Interval):
        return node.this if months(node) is None else None
    return at_same(Duration(this=node.this), node) if isinstance(node, exp.Literal) and node.is_number else None
