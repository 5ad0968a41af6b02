"""Windows: what stands in brackets becomes a window specification, and what needs a window is refused without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from zoneinfo import ZoneInfo

import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.expressions import Column, Expression, Named
from midstream.algebra.plan import (
    Join,
    JoinKind,
    Match,
    Project,
    Relation,
    Sequence,
    Stream,
    Window,
    ends,
    instants,
    walk_plan,
)
from midstream.algebra.time import LONGEST, TimeDomain, ticks
from midstream.algebra.types import is_instant, show_type
from midstream.algebra.windows import NOW, ColumnOrder, Hop, Range, Rows, SessionGap, Unbounded, Until, WindowSpec
from midstream.errors import QueryError
from midstream.language.binding import Binding
from midstream.language.constants import is_timeless
from midstream.language.literals import coerce, duration_text, months
from midstream.language.nodes import Duration, Node, WindowClause

MOST_ROWS = 2**31


def bind_window(
    binding: Binding, clause: WindowClause, domain: TimeDomain, column: Callable[[exp.Column], str]
) -> WindowSpec:
    """The specification of a window; `column` gives the unique name of a column to partition by."""
    with binding.at(clause):
        partition = tuple(dict.fromkeys(column(c) for c in clause.args.get("partition") or ()))
        match clause.this:
            case "NOW":
                return NOW
            case "UNBOUNDED":
                return Unbounded()
            case "RANGE":
                return Range(bind_duration(binding, clause.args["size"], domain) - bool(clause.args.get("strict")))
            case "ROWS":
                slide = _rows(clause.args.get("slide") or "1")
                return Rows(
                    _rows(clause.args["rows"]),
                    partition,
                    slide,
                    tuple(order_of(binding, clause.args.get("order") or (), column)),
                )
            case "SESSION":
                return SessionGap(bind_duration(binding, clause.args["size"], domain), partition)
        return _hop(binding, clause, domain)


def valid_until(binding: Binding, relation: Relation, end: Expression, name: str, node: Node) -> Window:
    """Tuples that say themselves until when they are valid; `name` is for what is computed to tell."""
    domain, fits = relation.domain, kind.is_integer(end.type)
    if not domain.is_integer:
        fits = is_instant(end.type) and (getattr(end.type, "tz", None) is None) == (domain.type.tz is None)
    if not fits:
        shown = f"{show_type(domain.output_type)}, not {show_type(end.type)}"
        raise binding.error(f"VALID UNTIL needs a time as the stream's is: {shown}", node)
    end = coerce(end, domain.output_type)
    if not isinstance(end, Column):
        own = (Named(f.name, Column(f.name, f.type)) for f in relation.schema)
        relation, end = Project(relation, (*own, Named(name, end))), Column(name, end.type)
    return Window(relation, Until(end.name))


def order_of(binding: Binding, keys: Iterable[Node], column: Callable[[exp.Column], str]) -> Iterator[ColumnOrder]:
    """The columns that say which of several rows of one time is the newer one."""
    for key in keys:
        if not isinstance(key.this, exp.Column):
            raise binding.error("rows are ordered by columns", key.this, hint="compute the column in a sub-query")
        yield ColumnOrder(column(key.this), bool(key.args.get("desc")), key.args.get("nulls") == "FIRST")


def _rows(text: str) -> int:
    if not text.isdecimal() or len(text) > 10 or int(text) > MOST_ROWS:
        raise QueryError(f"{text[:40]} is not a number of rows")
    return int(text)


def _hop(binding: Binding, clause: WindowClause, domain: TimeDomain) -> Hop:
    amounts = {part: clause.args[part] for part in ("size", "slide", "offset") if clause.args.get(part) is not None}
    by_month = {part: months(exp.Interval(this=node)) for part, node in amounts.items()}
    zone, calendar = _zone(binding, clause.args.get("zone"), domain), any(by_month.values())
    if calendar and (domain.is_integer or None in by_month.values()):
        hint = "count integer time in ticks" if domain.is_integer else "give size, slide and offset in months or years"
        raise binding.error("months do not go with other units", clause, hint=hint)
    counted = by_month if calendar else {p: bind_duration(binding, node, domain) for p, node in amounts.items()}
    size, offset = counted["size"] or 0, counted.get("offset") or 0
    slide = counted.get("slide", size) or 0
    if slide > size > 0:
        raise binding.error(
            f"a hop cannot slide further than its size, {duration_text(amounts['size'])}",
            amounts["slide"],
            detail="the tuples between two windows would count in none of them",
            hint=f"write [TUMBLE {duration_text(amounts['slide'])}], or a shorter slide",
        )
    if clause.args.get("begins") and slide > 0:  # at multiples of the slide, where others end
        offset += size % slide
    return Hop(size, slide, offset, zone, clause.this == "CUMULATE", months=calendar)


def _zone(binding: Binding, node: exp.Literal | None, domain: TimeDomain) -> str | None:
    if node is None:
        return None
    if domain.is_integer:
        raise binding.error("integer time has no time zone", node, hint="leave ZONE out")
    try:
        ZoneInfo(node.this)
    except (KeyError, ValueError, OSError):
        hint = "write for instance 'Europe/Berlin'"
        raise binding.error(f"unknown time zone '{node.this[:40]}'", node, hint=hint) from None
    return str(node.this)


def bind_duration(binding: Binding, node: Duration, domain: TimeDomain) -> int:
    """A duration in ticks."""
    with binding.at(node):
        text = duration_text(node)
        if abs(found := ticks(text, domain)) > LONGEST:
            raise QueryError(f"{text} is too long a time")
        return found


def join_of(
    binding: Binding, purpose: str, left: Relation, right: Relation, on: Expression, kind: JoinKind = "inner"
) -> Join:
    """A join; raw streams need a window unless each of their tuples only meets rows that have always been there."""
    if kind in ("right", "full") or not is_timeless(right, binding.catalog):
        require_window(binding, purpose, left)
    if kind not in ("inner", "right") or not is_timeless(left, binding.catalog):
        require_window(binding, purpose, right)
    return Join(left, right, on, kind)


def require_window(binding: Binding, purpose: str, *plans: Relation) -> None:
    """Refuses raw streams where a result would have to remember them for ever."""
    streams = ((plan, n) for plan in plans for n in walk_plan(plan) if isinstance(n, Stream | Sequence | Match))
    raw = next((node for plan, node in streams if not _below_window(plan, node)), None)
    if raw is None:
        return
    if isinstance(raw, Match | Sequence):
        what, hint = "matches", "write MATCH_RECOGNIZE (…) [RANGE …], or [UNBOUNDED]"
        if isinstance(raw, Sequence):
            what = "sequence"
            hint = "make it a sub-query with a window: (SELECT … FROM a FOLLOWED BY b …) [RANGE 100] AS s"
        error = QueryError(f"{purpose} needs a window over the {what}", hint=hint)
        raise error.at(binding.text, binding.places.get([n.alias for n in walk_plan(raw) if isinstance(n, Stream)][-1]))
    example = "RANGE 100" if raw.domain.is_integer else "RANGE 10 SECONDS"
    error = QueryError(
        f"{purpose} needs a window on stream {raw.name}",
        detail="without a window its state would grow without bound",
        hint=f"write {raw.name} [{example}], or {raw.name} [UNBOUNDED] if it may grow",
    )
    raise error.at(binding.text, binding.places.get(raw.alias))


def _below_window(plan: Relation, node: Relation) -> bool:
    return any(isinstance(w, Window) and any(n is node for n in walk_plan(w)) for w in walk_plan(plan))


def require_instants(binding: Binding, plan: Relation, what: str, node: Node) -> None:
    """Refuses to look at a relation instant by instant where there are too many of them, or no last one."""
    if not ends(plan):
        raise binding.error(
            f"{what} would repeat rows for ever",
            node,
            detail="rows of [UNBOUNDED], [ROWS n] and [VALID UNTIL x] may have no end in time",
            hint="use [RANGE …], [HOP …] or [NOW] inside",
        )
    if instants(plan) is None:
        hint = "use [NOW] (one side of a join is enough), or the same [HOP …] or [TUMBLE …] for all streams inside"
        raise binding.error(f"{what} would hold one copy of each row per microsecond", node, hint=hint)
