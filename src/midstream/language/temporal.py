"""Conditions on the time of a stream and that of the query: `ts > now() - INTERVAL '1 hour'` is a window.

A tuple fulfils it from its own time on for as long as the query's time is less than an hour later, which is what
`[RANGE 1 HOUR]` says but for its last instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from midstream.language.nodes import Duration, Node, WindowClause, all_of, flatten

NOW = frozenset({"now", "current_timestamp", "localtimestamp"})
"""What the time of the query is called."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A stream in FROM without a window, the name it has there, and its time column."""

    node: Node
    name: str
    time: str


def take_windows(select: exp.Select, streams: Sequence[Timed]) -> None:
    """Makes conditions of WHERE that compare a stream's time with that of the query windows of the stream."""
    where = select.args.get("where")
    if where is None:
        return
    kept = [part for part in flatten(where.this, exp.And) if not _taken(part, streams)]
    if not kept:
        select.set("where", None)
        return
    where.set("this", all_of(kept))


def _taken(part: Node, streams: Sequence[Timed]) -> bool:
    match part:
        case exp.Between() if not part.args.get("negated"):
            lower, upper = exp.GTE(this=part.this, expression=part.args["low"]), part.args["high"]
            return _is_now(upper) and _taken(lower, streams)
        case exp.GT() | exp.GTE():
            later, earlier = part.this, part.expression
        case exp.LT() | exp.LTE():
            earlier, later = part.this, part.expression
        case _:
            return False
    if isinstance(later, exp.Add) and _is_now(earlier):
        time, distance = later.this, later.expression
    elif isinstance(earlier, exp.Sub) and _is_now(earlier.this):
        time, distance = later, earlier.expression
    elif _is_now(later) and isinstance(part, exp.GTE | exp.LTE):
        # No tuple is later than the query's time.
        return _stream_of(earlier, streams) is not None
    else:
        return False
    stream, size = _stream_of(time, streams), _duration(distance)
    if stream is None or size is None or stream.node.args.get("window") is not None:
        return False
    window = WindowClause(this="RANGE", size=size, strict=isinstance(part, exp.GT | exp.LT))
    window.meta.update(size.meta)
    stream.node.set("window", window)
    return True


def _is_now(node: Node) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in NOW and not node.expressions
    return isinstance(node, exp.Column) and not node.args.get("table") and node.name.lower() in NOW - {"now"}


def _stream_of(node: Node, streams: Sequence[Timed]) -> Timed | None:
    """The stream whose time a column is, if there is only one."""
    if not isinstance(node, exp.Column):
        return None
    table = node.args.get("table")
    found = [
        stream
        for stream in streams
        if stream.time.casefold() == node.name.casefold()
        and (table is None or table.name.casefold() == stream.name.casefold())
    ]
    return found[0] if len(found) == 1 else None


def _duration(node: Node) -> Duration | None:
    if isinstance(node, exp.Interval):
        return node.this  # type: ignore[no-any-return]
    if isinstance(node, exp.Literal) and not node.args.get("is_string"):
        made = Duration(this=node.this)
        made.meta.update(node.meta)
        return made
    return None
