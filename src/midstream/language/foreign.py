"""Queries in the words of Spark, Flink and RisingWave: the same text with windows where this language writes them.

What other systems say of time in functions and conditions is said here behind a stream. The changes are made in the
text, so that what is asked can be read: `TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES)` is `bids [TUMBLE
INTERVAL '10' MINUTES]`, a GROUP BY of `window(ts, '10 minutes')` puts that window behind its stream, the newest rows of
a key are `[PARTITION BY k ROWS n]`, and a join whose condition bounds how far apart two times are gives each stream the
window that this needs. What none of these bounds stays as it is, and is refused where it would have to be kept for
ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.errors import QueryError
from midstream.language.binding import nearest
from midstream.language.foreign_joins import behind, interval_joins, length_of, outer_joins_apart, tree_of
from midstream.language.foreign_tokens import Called, Edit, calls, edited, other_keys, text_of
from midstream.language.foreign_values import functions, nulls_placed, spark_constants, spark_places
from midstream.language.nodes import Node, flatten
from midstream.language.text import read, tokens_of

DIALECTS = ("spark", "flink", "risingwave")

WINDOWS = {"TUMBLE": "TUMBLE", "HOP": "HOP", "CUMULATE": "CUMULATE", "SESSION": "SESSION", "WINDOW": "TUMBLE"} | {
    "SESSION_WINDOW": "SESSION"
}
"""Functions that say into which windows rows fall, and the window that each is."""

SIZE_LAST = ("HOP", "CUMULATE")
"""Flink's functions that take the size behind the slide; Spark's `window` takes it first."""

NAMED = ("DATA", "TIMECOL", "SLIDE", "STEP", "GAP", "SIZE", "OFFSET")
"""Flink's names of their arguments, in their order."""

WINDOW_TIME = "window_end - INTERVAL '1' MILLISECOND"

BOUNDS = {
    f"{word}_{end}": text
    for word in ("TUMBLE", "HOP", "SESSION")
    for end, text in (("START", "window_start"), ("END", "window_end"), ("ROWTIME", WINDOW_TIME))
}

NAMES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.DOT, TokenType.COMMA)

AS_STRUCT = "{'start': window_start, 'end': window_end}"


def to_cql(query: str, dialect: str, times: str | Mapping[str, str | None] = MappingProxyType({})) -> str:
    """A query of another system in this language; `times` are the time columns of streams, or that of all of them.

    >>> to_cql("SELECT k, count(*) AS n FROM A GROUP BY k, window(ts, '10 minutes')", "spark")
    "SELECT k, count(*) AS n FROM A [TUMBLE '10 minutes'] GROUP BY k, window_start, window_end"
    """
    if dialect not in DIALECTS:
        hint = nearest(str(dialect), DIALECTS, "dialects")
        raise QueryError(f"there is no dialect {dialect!r}", hint=hint)
    for spark in (spark_constants, spark_places) if dialect == "spark" else ():
        query = edited(query, list(spark(query)))
    _require_no_watermark(query)
    if isinstance(times, str):
        times = dict.fromkeys((token.text for token in tokens_of(query)), times)
    known = {name.casefold(): column for name, column in times.items() if column is not None}
    for step in (_statement, _table_functions, _grouped_windows, _newest_rows):
        query = edited(query, list(step(query, known)))
    query = edited(query, list(functions(query, dialect)))
    query = outer_joins_apart(query, known)
    query = edited(query, list(interval_joins(query, known)))
    return edited(query, list(nulls_placed(query, dialect, frozenset(map(str.casefold, known.values())))))


def _require_no_watermark(text: str) -> None:
    """Refuses `WATERMARK FOR ts AS ts - INTERVAL '5' SECOND`, and says where that is said."""
    tokens = tokens_of(text)
    for i, (token, following) in enumerate(zip(tokens, tokens[1:], strict=False)):
        if (token.text.upper(), following.text.upper()) == ("WATERMARK", "FOR"):
            rest = [other.text for other in tokens[i + 2 : i + 9]]
            late = f"{rest[5]} {rest[6].lower()}" if rest[4:5] == ["INTERVAL"] and len(rest) > 6 else "0 seconds"
            raise QueryError(
                "WATERMARK FOR is said of a stream, not in a query",
                detail="how late rows may come is known before any query reads them",
                hint=f'declare the stream with time = "{rest[0] if rest else ""}" and lateness = "{late}"',
            ).at(text, token.start)


def _statement(text: str, _: Mapping[str, str]) -> Iterator[Edit]:
    """Drops what stands around a query: into what its results go, and that they are given when windows end."""
    tokens = tokens_of(text)
    words = [token.text.upper() for token in tokens]
    if words[:1] in (["INSERT"], ["CREATE"]) and not {"MACRO", "FUNCTION"} & set(words[1:5]):
        query = next((t for t, word in zip(tokens, words, strict=True) if word in ("SELECT", "WITH")), tokens[0])
        yield Edit(0, query.start, "")
    ends = len(words) - (words[-1:] == [";"])
    for said in (["EMIT", "ON", "WINDOW", "CLOSE"], ["EMIT", "CHANGES"], ["EMIT", "FINAL"]):
        if words[ends - len(said) : ends] == said:
            yield Edit(tokens[ends - len(said) - 1].end + 1, len(text), "")


def _window(source: str, call: Called, amounts: Sequence[Sequence[Token]], partition: str = "") -> str:
    """The window that a function says, behind a stream."""
    written = [text_of(source, amount) for amount in amounts]
    word = WINDOWS[call.name]
    if call.name == "WINDOW" and len(written) > 1:
        word = "HOP"
    if call.name in SIZE_LAST:
        written = [written[1], written[0], *written[2:]]
    said, offset = (written[:1], written[1:]) if word in ("TUMBLE", "SESSION") else (written[:2], written[2:])
    lengths = [length_of(read(f"SELECT {amount}").expressions[0]) or 0 for amount in (*said, *offset)]
    if word == "HOP" and all(lengths) and (late := lengths[0] % lengths[1]):
        # Windows begin at multiples of the slide there, and end at such here.
        offset = [f"'{late + sum(lengths[2:])} microseconds'"]
    return f"[{partition}{word} {', '.join(said)}{f' OFFSET {offset[0]}' if offset else ''}]"


def _table_functions(text: str, times: Mapping[str, str]) -> Iterator[Edit]:
    """`[TABLE(] TUMBLE(TABLE a, DESCRIPTOR(ts), size) [)]`, or `TUMBLE(a, ts, size)`, as `a [TUMBLE size]`.

    Elsewhere the bounds of windows are columns like others, so they are selected where `*` is.
    """
    tokens = tokens_of(text)
    before = (TokenType.SELECT, TokenType.COMMA, TokenType.DOT, TokenType.DISTINCT)
    stars = [a for a, b in zip(tokens, tokens[1:], strict=False) if b.token_type == TokenType.STAR]
    starred = any(token.token_type in before for token in stars)
    timed = any(token.text.lower() == "window_time" for token in tokens)
    for call in calls(text, WINDOWS):
        arguments = _in_order(call.arguments)
        tabled = int(bool(arguments[0]) and arguments[0][0].text.upper() == "TABLE")
        if len(arguments) < 3 or not (tabled or [t.token_type for t in arguments[1]] == [TokenType.VAR]):
            continue
        stream, rest = arguments[0][tabled], text_of(text, arguments[0][tabled + 1 :])
        _require_time(text, call, times.get(stream.text.casefold()), arguments[1][2:-1] or arguments[1])
        partition = f"{rest} " if rest.upper().startswith("PARTITION") else ""
        window = f"{text_of(text, [stream])} {_window(text, call, arguments[2:], partition)}"
        if starred or timed:
            columns = f"*, window_start, window_end{f', {WINDOW_TIME} AS window_time' if timed else ''}"
            window = f"(SELECT {columns} FROM {window})"
        yield Edit(*_without_table(text, call), window)


def _in_order(arguments: Sequence[tuple[Token, ...]]) -> Sequence[tuple[Token, ...]]:
    """Arguments in the order in which they stand without names."""
    named = {a[0].text.upper(): a[2:] for a in arguments if len(a) > 2 and a[1].token_type == TokenType.FARROW}
    return [named[name] for name in NAMED if name in named] or arguments


def _without_table(text: str, call: Called) -> tuple[int, int]:
    """The place of a call, with the `TABLE(…)` around it."""
    before, after = text[: call.start].rstrip(), text[call.end :].lstrip()
    if before.endswith("(") and before[:-1].rstrip().upper().endswith("TABLE") and after.startswith(")"):
        return len(before[:-1].rstrip()) - len("TABLE"), len(text) - len(after) + 1
    return call.start, call.end


def _require_time(text: str, call: Called, time: str | None, named: Sequence[Token]) -> None:
    """Refuses a window over another column than the stream's time."""
    column = named[-1].text if named else ""
    if time is not None and column.casefold() != time.casefold():
        raise QueryError(
            f"{call.name} goes by {column}, but the time of the stream is {time}",
            hint="windows go by the time column that the stream is declared with",
        ).at(text, call.start)


def _grouped_windows(text: str, times: Mapping[str, str]) -> list[Edit]:
    """Windows that are keys of GROUP BY, put behind the stream."""
    said = [call for call in calls(text, WINDOWS) if call.arguments[0] and len(call.arguments) > 1]
    if not said:
        return []
    written = {_window(text, call, call.arguments[1:], _sessions_of(text, call)) for call in said}
    tables = list(_tables(text))
    if len(written) > 1 or len(tables) != 1:
        raise QueryError(
            "a window as a key of GROUP BY needs a query of one stream and one window",
            hint="make a sub-query of the stream with its window: (SELECT … FROM A [TUMBLE '10 minutes'])",
        ).at(text, said[0].start)
    stream, end = tables[0]
    edits = [Edit(end, end, f" {written.pop()}")]
    for call in said:
        _require_time(text, call, times.get(stream.casefold()), call.arguments[0])
        edits.append(Edit(call.start, call.end, "window_start, window_end" if call.start > end else AS_STRUCT))
    edits += [Edit(call.start, call.end, BOUNDS[call.name]) for call in calls(text, BOUNDS)]
    return [*edits, *_fields_of_window(text)]


def _sessions_of(text: str, call: Called) -> str:
    """By what sessions are told apart: the other keys of the GROUP BY of the query in which they stand."""
    keys = other_keys(text, call, WINDOWS) if WINDOWS[call.name] == "SESSION" else []
    if any(key.token_type not in NAMES for key in keys):
        raise QueryError(
            "a session window cannot stand beside an expression in GROUP BY",
            hint="select the expression under a name in a sub-query, and group by that",
        ).at(text, call.start)
    parts = ", ".join(text_of(text, [key]) for key in keys if key.token_type != TokenType.COMMA).replace(", ., ", ".")
    return f"PARTITION BY {', '.join(name.rpartition('.')[2] for name in parts.split(', '))} " if parts else ""


def _fields_of_window(text: str) -> Iterator[Edit]:
    """`window.start`, `window.end`, and `window` alone."""
    tokens = tokens_of(text)
    for name, dot, field in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if name.text.upper() not in ("WINDOW", "SESSION_WINDOW"):
            continue
        if dot.token_type == TokenType.DOT:
            yield Edit(name.start, field.end + 1, f"window_{field.text.lower()}")
        elif dot.token_type in (TokenType.COMMA, TokenType.FROM):
            yield Edit(name.start, name.end + 1, f"{AS_STRUCT} AS {name.text}")


def _tables(text: str) -> Iterator[tuple[str, int]]:
    """The streams that stand in FROM without a window, each with the place behind its name."""
    tokens = tokens_of(text)
    for before, token, after in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        names = (TokenType.VAR, TokenType.IDENTIFIER)
        source = before.token_type in (TokenType.FROM, TokenType.JOIN) and token.token_type in names
        if source and (after is None or after.token_type not in (TokenType.L_PAREN, TokenType.L_BRACKET)):
            yield token.text, token.end + 1


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
