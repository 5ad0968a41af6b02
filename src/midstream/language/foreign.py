"""Queries in the words of other systems: the same text with windows where this language writes them.

What other systems say of time in functions and conditions is said here behind a stream. The changes are made in the
text, so that what is asked can be read: `TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES)` is `bids [TUMBLE
INTERVAL '10' MINUTES]`, a GROUP BY of `window(ts, '10 minutes')` puts that window behind its stream, the newest rows of
a key are `[PARTITION BY k ROWS n]`, and a join whose condition bounds how far apart two times are gives each stream the
window that this needs. What none of these bounds stays as it is, and is refused where it would have to be kept for
ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.algebra.foreign_functions import AS_STRUCT, BOUNDS, NOT_HERE, WINDOWS
from midstream.errors import QueryError
from midstream.language.binding import nearest
from midstream.language.foreign_joins import behind, interval_joins, outer_joins_apart, tree_of
from midstream.language.foreign_statements import one_query
from midstream.language.foreign_tokens import Called, Edit, beside, calls, edited, keys_of, selects_of, text_of
from midstream.language.foreign_values import READ_FIRST, functions, nulls_placed
from midstream.language.nodes import Node, flatten
from midstream.language.text import CLOSING, OPENING, tokens_of

DIALECTS = ("spark", "flink", "risingwave", "ksqldb")

NAMES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.DOT, TokenType.COMMA)


def to_cql(query: str, dialect: str, times: str | Mapping[str, str | None] = MappingProxyType({})) -> str:
    """A query of another system in this language; `times` are the time columns of streams, or that of all of them.

    >>> to_cql("SELECT k, count(*) AS n FROM A GROUP BY k, window(ts, '10 minutes')", "spark")
    "SELECT k, count(*) AS n FROM TUMBLE(A, ts, '10 minutes') GROUP BY k, window_start, window_end"
    """
    if dialect not in DIALECTS:
        hint = nearest(str(dialect), DIALECTS, "dialects")
        raise QueryError(f"there is no dialect {dialect!r}", hint=hint)
    for first in READ_FIRST.get(dialect, ()):
        query = edited(query, list(first(query)))
    _require_sayable(query)
    if isinstance(times, str):
        times = dict.fromkeys((token.text for token in tokens_of(query)), times)
    known = {name.casefold(): column for name, column in times.items() if column is not None}
    query = one_query(query, dialect, known)
    for step in (_arrival, _grouped_windows, _newest_rows):
        query = edited(query, list(step(query, known)))
    query = edited(query, list(functions(query, dialect)))
    query = outer_joins_apart(query, known)
    query = edited(query, list(interval_joins(query, known)))
    return edited(query, list(nulls_placed(query, dialect, frozenset(map(str.casefold, known.values())))))


def _require_sayable(text: str) -> None:
    """Refuses what is said elsewhere here, or means nothing."""
    texts = [(token.start, token.end) for token in tokens_of(text) if token.token_type == TokenType.STRING]
    for pattern, (told, detail, hint) in NOT_HERE.items():
        for said in (m for m in pattern.finditer(text) if not any(at < m.start() < end for at, end in texts)):
            *words, unit = [word or usual for word, usual in zip_longest(said.groups(), ("", "0", "seconds"))]
            raise QueryError(told, detail=detail, hint=hint.format(*words, unit.lower())).at(text, said.start())


def _arrival(text: str, times: Mapping[str, str]) -> Iterator[Edit]:
    """`PROCTIME()`, of which rows of the one stream have their time: the column of it."""
    streams = {token.text.casefold() for token in tokens_of(text)} & times.keys()
    for call in calls(text, ("PROCTIME",)) if len(streams) == 1 else ():
        yield Edit(call.start, call.end, times[next(iter(streams))])


def _window(source: str, call: Called, stream: str, others: Sequence[Token]) -> str:
    """The window that a function of a time says, as one of its stream."""
    time = next(token.text for token in reversed(call.arguments[0]) if token.token_type not in CLOSING)
    written = [text_of(source, argument) for argument in call.arguments[1:]]
    word = WINDOWS[call.name]
    keys = _sessions_of(source, call, others) if word == "SESSION" else ""
    if call.name == "WINDOW" and len(written) > 1:
        word, written = "HOP", [written[1], written[0], *written[2:]]
    of = f"TABLE {stream} {keys}, DESCRIPTOR({time})" if keys else f"{stream}, {time}"
    return f"{word}({of}, {', '.join(written)})"


def _grouped_windows(text: str, times: Mapping[str, str]) -> Iterator[Edit]:
    """Windows that are keys of GROUP BY, put around the stream; Spark's `window` takes its size before its slide."""
    tokens = tokens_of(text)
    selects = dict(zip((token.start for token in tokens), selects_of(tokens), strict=True))
    own, said, bounds = defaultdict[int, list[Token]](list), defaultdict[int, list[Called]](list), list[Called]()
    for token in tokens:
        own[selects[token.start]].append(token)
    for call in calls(text, {*WINDOWS, *BOUNDS}):
        if call.name in BOUNDS:
            bounds.append(call)
        elif call.arguments[1:] and _is_amount(call.arguments[1]):
            said[selects[call.start]].append(call)
    for bound in bounds:
        windows = said.get(selects[bound.start])
        if windows is not None and not any(window.start < bound.start < window.end for window in windows):
            yield Edit(bound.start, bound.end, BOUNDS[bound.name])
    for begin, windows in said.items():
        yield from _around(text, own[begin], windows)


def _around(text: str, own: Sequence[Token], said: Sequence[Called]) -> Iterator[Edit]:
    """The windows of one SELECT, which has some tokens of its own, put around its stream."""
    level, ends = beside(own, own[0].start), {call.end for call in said}
    outside = [t for t in own if not any(call.start <= t.start < call.end for call in said)]
    begun = {token.start for token in outside}
    aliased = [
        c for a, b, c in zip(own, own[1:], own[2:], strict=False) if a.end + 1 in ends and b.text.upper() == "AS"
    ]
    named = {token.text for token in aliased}
    keys = [key for key in keys_of(level) if key.start in begun and key.text not in named]
    if any(WINDOWS[call.name] == "SESSION" for call in said) and all(t.token_type != TokenType.GROUP_BY for t in level):
        hint = "group by it, and by what tells sessions apart"
        raise QueryError("a session window stands in GROUP BY", hint=hint).at(text, said[0].start)
    sources, written = list(_sources(level)), {_window(text, call, "{}", keys) for call in said}
    if len(written) != 1 or len(sources) != 1:
        raise QueryError(
            "a window as a key of GROUP BY needs a query of one stream and one window",
            hint="make a sub-query of the stream with its window: (SELECT … FROM A [TUMBLE '10 minutes'])",
        ).at(text, said[0].start)
    first, last = sources[0]
    before, _, behind = written.pop().partition("{}")
    yield Edit(first.start, first.start, before)
    yield Edit(last.end + 1, last.end + 1, behind)
    for call in said:
        yield Edit(call.start, call.end, "window_start, window_end" if call.start > last.end else AS_STRUCT)
    yield from _fields_of_window(outside)


def _is_amount(tokens: Sequence[Token]) -> bool:
    """Whether an argument is an amount of time; a function of a stream has the column of its time there."""
    return bool(tokens) and (tokens[0].token_type != TokenType.VAR or tokens[0].text.upper() == "INTERVAL")


def _sessions_of(text: str, call: Called, keys: Sequence[Token]) -> str:
    """By what sessions are told apart: the other keys of the GROUP BY of the query in which they stand."""
    if any(key.token_type not in NAMES for key in keys):
        raise QueryError(
            "a session window cannot stand beside an expression in GROUP BY",
            hint="select the expression under a name in a sub-query, and group by that",
        ).at(text, call.start)
    parts = ", ".join(text_of(text, [key]) for key in keys if key.token_type != TokenType.COMMA).replace(", ., ", ".")
    return f"PARTITION BY {', '.join(name.rpartition('.')[2] for name in parts.split(', '))}" if parts else ""


def _fields_of_window(tokens: Sequence[Token]) -> Iterator[Edit]:
    """`window.start`, `window.end`, and `window` alone."""
    for before, name, dot, field in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        if name.text.upper() not in ("WINDOW", "SESSION_WINDOW") or before.token_type == TokenType.ALIAS:
            continue
        if dot.token_type == TokenType.DOT:
            yield Edit(name.start, field.end + 1, f"window_{field.text.lower()}")
        elif dot.token_type in (TokenType.COMMA, TokenType.FROM, TokenType.ALIAS):
            named = "" if dot.token_type == TokenType.ALIAS else f" AS {name.text}"
            yield Edit(name.start, name.end + 1, AS_STRUCT + named)


def _sources(level: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    """The first and last tokens of what stands in FROM without a window: names of streams, and sub-queries."""
    for before, token, after in zip(level, level[1:], [*level[2:], level[0]], strict=False):
        if before.token_type not in (TokenType.FROM, TokenType.JOIN):
            continue
        if token.token_type == TokenType.L_PAREN:
            yield token, after
        elif token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and after.token_type not in OPENING:
            yield token, token


def _newest_rows(text: str, times: Mapping[str, str]) -> Iterator[Edit]:
    """A stream keeps n rows of a key if these are wanted by `row_number() OVER (PARTITION BY k ORDER BY ts DESC)`."""
    for outer in tree_of(text).find_all(exp.Select):
        source, limits = _source(outer), dict(_limits(outer))
        select = source.this if isinstance(source, exp.Subquery) else exp.Select()
        table = None if any(map(select.args.get, ("where", "joins", "group"))) else _source(select)
        if not isinstance(table, exp.Table) or table.args.get("window") is not None:
            continue
        newest = [(times.get(str(table.this.name).casefold(), "").casefold(), True)]
        for item in select.expressions:
            over = item.this.args.get("over") if isinstance(item, exp.Alias) else None
            count = limits.get(item.alias.casefold())
            if over is None or str(item.this.this).upper() != "ROW_NUMBER" or count is None:
                continue
            keys, order = over.args.get("partition_by") or [], over.args.get("order") or []
            ordered = [(key.this.name.casefold(), bool(key.args.get("desc"))) for key in order]
            if ordered == newest and keys and all(isinstance(key, exp.Column) for key in keys):
                yield behind(table, f" [PARTITION BY {', '.join(key.name for key in keys)} ROWS {count}]")


def _source(select: Node) -> Node | None:
    return select.args["from_"].this if select.args.get("from_") is not None else None


def _limits(select: Node) -> Iterator[tuple[str, str]]:
    """How many rows are wanted at most, by the column that counts them."""
    for part in flatten(select.args["where"].this, exp.And) if select.args.get("where") is not None else ():
        counts = isinstance(part.this, exp.Column) and isinstance(part.expression, exp.Literal)
        if counts and (isinstance(part, exp.LTE) or (isinstance(part, exp.EQ) and part.expression.name == "1")):
            yield part.this.name.casefold(), part.expression.name
