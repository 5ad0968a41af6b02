"""Joins of other systems whose condition bounds how far apart two times are.

`a.ts BETWEEN b.ts - x AND b.ts + y` gives a the window `[RANGE x]` and b the window `[RANGE y]`; bounds of a and b and
of b and c add up to those of a and c. An outer join there gives each row that nothing meets once, when nothing can meet
it any more: it is the inner join UNION ALL these rows. A row of a waits for x by `NOT FOLLOWED BY b … WITHIN x`; all
that can have met it are then in `b [RANGE x + y]`, and those that none of these has met are left by an ANTI JOIN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from midstream.algebra.borrowed import BORROWED
from midstream.algebra.borrowed_aggregates import AGGREGATES
from midstream.algebra.functions import SCALAR, SYNONYMS
from midstream.algebra.time import TIMESTAMP_TIME, show_ticks, ticks
from midstream.errors import QueryError
from midstream.language.foreign_tokens import Edit, beside, edited
from midstream.language.literals import duration_text
from midstream.language.nodes import Node, flatten, place
from midstream.language.subqueries import calls_of
from midstream.language.text import read, tokens_of

UNITED = {"left": ("", "LEFT"), "right": ("", "RIGHT"), "full": ("", "LEFT", "RIGHT")}
"""The joins that an outer join is united of: the inner one, and those that give what nothing meets."""

AFTER = (TokenType.ORDER_BY, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.SEMICOLON)
"""What may stand behind the WHERE of a query without groups."""

CLAUSES = ("group", "having", "distinct", "limit", "offset", "qualify")

Spans = dict[tuple[str, str], int]
"""By two sources, how much later than the first the second may be at most, in microseconds."""


def tree_of(text: str) -> Node:
    """The syntax tree of a query; an empty one if it cannot be read yet, or never."""
    try:
        return read(text)
    except QueryError:
        return exp.Select()


def behind(source: Node, window: str) -> Edit:
    """A window behind a stream, or behind the alias of a sub-query."""
    named = source.this if isinstance(source, exp.Table) else source.args["alias"]
    end = int(named.meta["start"]) + len(_written(named))
    return Edit(end, end, window)


def length_of(amount: Node) -> int | None:
    """How many microseconds an interval or a text has; None if that depends on the calendar."""
    try:
        return ticks(duration_text(amount.this) if isinstance(amount, exp.Interval) else amount.name, TIMESTAMP_TIME)
    except QueryError:
        return None


def interval_joins(text: str, times: Mapping[str, str]) -> Iterator[Edit]:
    """Windows for streams whose times are joined within bounds."""
    for select in tree_of(text).find_all(exp.Select):
        sources = _sources(select)
        conditions = [j.args["on"] for j in _joins(select) if j.args.get("kind") == "inner" and j.args.get("on")]
        conditions += [select.args["where"].this] if select.args.get("where") is not None else []
        spans = _spans(conditions, sources, times)
        for alias, table in sources.items():
            span = max((far for (a, b), far in spans.items() if a == alias and (b, a) in spans), default=None)
            if span is not None and table.args.get("window") is None:
                _require_no_groups(text, select, table)
                yield behind(table, f" [RANGE '{_shown(span)}']" if span > 0 else " [NOW]")


def _require_no_groups(text: str, select: Node, table: Node) -> None:
    """Refuses an aggregate of pairs without end that are joined within bounds: of these few count at a time here."""
    around = [one for one in select.root().find_all(exp.Select) if any(part is select for part in one.walk())]
    calls = [call for one in around for item in one.expressions for call in calls_of(item) if not call.args.get("over")]
    if any(call.name.lower() in AGGREGATES for call in calls) or any(one.args.get("group") for one in around):
        raise QueryError(
            "an aggregate of a join within bounds of time would only see pairs until their rows are out of bounds",
            hint="write [UNBOUNDED] behind the streams that are joined: all pairs count, and all rows are kept",
        ).at(text, place(table))


def outer_joins_apart(text: str, times: Mapping[str, str]) -> str:
    """A query whose outer joins within bounds are inner ones, united with the rows that nothing meets."""
    for select in tree_of(text).find_all(exp.Select):
        tables = {name: table for name, table in _sources(select).items() if isinstance(table, exp.Table)}
        sources = {name: table for name, table in tables.items() if table.args.get("window") is None}
        for join in (join for join in _joins(select) if join.args.get("kind") in UNITED and join.args.get("on")):
            spans, met = _spans([join.args["on"]], sources, times), _alias(join.this)
            if any({(met, other), (other, met)} <= set(spans) for other in sources):
                _require_alone(text, select, join)
                return outer_joins_apart(edited(text, [_united(text, select, join, spans)]), times)
    return text


def _require_alone(text: str, select: Node, join: Node) -> None:
    """Refuses what two queries that are united would not mean."""
    calls = [call for item in select.expressions for call in calls_of(item)]
    names = [SYNONYMS.get(call.name.lower(), call.name.lower()) for call in calls if not call.args.get("over")]
    plain = len(names) == len(calls) and all(name in SCALAR or name in BORROWED for name in names)
    if not plain or len(select.args["joins"]) > 1 or any(map(select.args.get, CLAUSES)):
        raise QueryError(
            "an outer join within bounds of time stands alone in its SELECT",
            detail="rows that nothing meets come when nothing can meet them any more: they are a query of their own",
            hint="select columns of this one join in a sub-query, and do all else outside",
        ).at(text, place(join.this))


def _united(text: str, select: Node, join: Node, spans: Spans) -> Edit:
    """The pairs of an outer join, and the rows of its sides that nothing meets."""
    joined = int(join.this.this.meta["start"])
    level = beside(tokens_of(text), joined)
    types, at = [token.token_type for token in level], [token.start for token in level].index(joined)
    first = max(i for i in range(at) if types[i] == TokenType.SELECT)
    last = next((i for i in range(at, len(level)) if types[i] in AFTER), len(level)) - 1
    on = types.index(TokenType.ON, at)
    where = next((i for i in range(at, last) if types[i] == TokenType.WHERE), last + 1)
    condition = text[level[on + 1].start : level[where - 1].end + 1]
    word = level[at - 2 - (level[at - 2].text.upper() == "OUTER")].start
    sides, (start, end), united = (select.args["from_"].this, join.this), (level[first].start, level[last].end + 1), []
    for kind in UNITED[join.args["kind"]]:
        edits = [Edit(word, level[at - 1].start, f"{kind} " if kind else "")]
        edits += _unmet(*(sides if kind == "LEFT" else sides[::-1]), spans, condition) if kind else []
        united.append(edited(text[:end], edits)[start:])
    query = " UNION ALL ".join(united)
    return Edit(start, end, f"({query})" if isinstance(select.parent, exp.SetOperation) else query)


def _unmet(kept: Node, met: Node, spans: Spans, condition: str) -> Iterator[Edit]:
    """Rows in the place of a source, when nothing can meet them any more and nothing has: the other gives nulls."""
    later, earlier = spans[_alias(kept), _alias(met)], spans[_alias(met), _alias(kept)]
    name, visible, start = _written(kept.this), _visible(kept), int(kept.this.meta["start"])
    other, size = f"{_written(met.this)} AS {_visible(met)}", _shown(max(later, 0) + earlier)
    waiting = f"(SELECT * FROM {name} AS {visible} NOT FOLLOWED BY {other} ON {condition} WITHIN '{_shown(later)}')"
    alone = f"(SELECT * FROM {waiting} [NOW] AS {visible} ANTI JOIN {other} [RANGE '{size}'] ON {condition})"
    yield Edit(start, start + len(name), alone if kept.args.get("alias") is not None else f"{alone} AS {name}")
    yield behind(met, " [NOW]")


def _shown(span: int) -> str:
    return show_ticks(max(span, 0), TIMESTAMP_TIME)


def _joins(select: Node) -> list[Node]:
    return [join for join in select.args.get("joins") or [] if isinstance(join, exp.Join)]


def _sources(select: Node) -> dict[str, Node]:
    """The streams and sub-queries of FROM, by their aliases."""
    first = select.args.get("from_")
    sources = [*([first.this] if first is not None else []), *(join.this for join in _joins(select))]
    named = [s for s in sources if isinstance(s, exp.Table) or (isinstance(s, exp.Subquery) and s.args.get("alias"))]
    return {_alias(source): source for source in named}


def _spans(conditions: Sequence[Node], sources: Mapping[str, Node], times: Mapping[str, str]) -> Spans:
    """What conditions say of the times of sources, one by one and together."""
    known = frozenset(map(str.casefold, times.values()))
    columns = {alias: times.get(str(table.this.name).casefold()) for alias, table in sources.items()}
    for alias, source in sources.items():
        ctes = list(source.root().find_all(exp.CTE))
        inside = [source, *(ctes if source.name in [cte.alias for cte in ctes] else [])]
        if any(item.alias.casefold() in known for part in inside for item in part.find_all(exp.Alias)):
            columns[alias] = ""  # what is called as the time may be another one
    spans: Spans = {}
    owners = [(alias, column.casefold()) for alias, column in columns.items() if column is not None]
    for bare in (c for each in conditions for c in each.find_all(exp.Column) if c.args.get("table") is None):
        if len(own := [alias for alias, column in owners if column == bare.name.casefold()]) == 1:
            bare.set("table", exp.to_identifier(own[0]))
    for part in (part for condition in conditions for part in flatten(condition, exp.And)):
        for earlier, later, distance in _distances(part):
            pair = (_source(earlier), _source(later))
            names = zip((earlier.name.casefold(), later.name.casefold()), map(columns.get, pair), strict=True)
            if set(pair) <= set(sources) and all(n in known if t is None else n == t.casefold() for n, t in names):
                spans[pair] = min(distance, spans.get(pair, distance))
    for between, one, other in permutations(sources, 3):
        if (one, between) in spans and (between, other) in spans:
            together = spans[one, between] + spans[between, other]
            spans[one, other] = min(together, spans.get((one, other), together))
    return spans


def _written(name: Node) -> str:
    return f'"{name.name}"' if name.args.get("quoted") else str(name.name)


def _visible(table: Node) -> str:
    alias = table.args.get("alias")
    return _written(alias if alias is not None else table.this)


def _alias(table: Node) -> str:
    return _visible(table).strip('"').casefold()


def _source(column: Node) -> str:
    return str(column.args["table"].name).casefold()


def _distances(part: Node) -> Iterator[tuple[Node, Node, int]]:
    """What a condition says of how far a time may be behind another: the earlier, the later, and the distance."""
    if isinstance(part, exp.Between):
        yield from _distances(exp.GTE(this=part.this, expression=part.args["low"]))
        yield from _distances(exp.LTE(this=part.this, expression=part.args["high"]))
    if isinstance(part, exp.GT | exp.GTE | exp.EQ):
        yield from _distances(exp.LTE(this=part.expression, expression=part.this))
    if isinstance(part, exp.LT | exp.LTE | exp.EQ):
        low, high = _moved(part.this), _moved(part.expression)
        if low is not None and high is not None and _source(low[0]) != _source(high[0]):
            # low + x <= high + y says that low comes at most y - x after high.
            yield high[0], low[0], high[1] - low[1]


def _moved(node: Node) -> tuple[Node, int] | None:
    """A column of a source, and by how much it is moved."""
    amount: int | None = 0
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        amount, forth, node = length_of(node.expression), isinstance(node, exp.Add), node.this
        amount = amount if amount is None or forth else -amount
    known = amount is not None and isinstance(node, exp.Column) and node.args.get("table") is not None
    return (node, amount or 0) if known else None
