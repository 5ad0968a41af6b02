"""Statements of ksqlDB, each of which is one SELECT, in words that other systems have too.

A table that is declared with a primary key has the newest row of each. Windows, which stand behind a stream there,
become keys of GROUP BY, a distance behind WITHIN a condition on times. Comparisons with null are false, and rows with a
null among their keys are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlglot.tokenizer_core import Token, TokenType

from midstream.algebra.foreign_functions import BEHIND, CLAUSES, LAST_CONDITION
from midstream.errors import QueryError
from midstream.language.foreign_tokens import Edit, beside, keys_of, text_of
from midstream.language.grammar import NAMES, NOTHING
from midstream.language.source_grammar import NOT_AN_ALIAS
from midstream.language.text import tokens_of

COMPARED = {TokenType[name] for name in ("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "LIKE", "IN", "BETWEEN")}


Tokens = Sequence[Token]

Columns = Mapping[str, Sequence[str]]
"""By stream that is declared, what its columns are called."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a statement reads: a stream, how it is called there, the column of its time, and what stands behind it."""

    name: str
    alias: str
    time: str
    start: int
    end: int
    windowed: bool


def of_ksqldb(text: str, times: Mapping[str, str], keys: Mapping[str, str], columns: Columns) -> Iterator[Edit]:
    """A SELECT in words that other systems have too; `keys` and `columns` are those of what is declared."""
    tokens = tokens_of(text)
    level = beside(tokens, tokens[0].start)
    words, reads = [token.text.upper() for token in level], list(_reads(level, times))
    clauses = [(t.start, word) for t, word in zip(level, words, strict=True) if word in CLAUSES] + [(len(text), "")]
    tabled = "WITHIN" not in words and any(read.name in keys for read in reads)
    for read in (read for read in reads if not read.windowed):
        if (key := keys.get(read.name)) is not None:
            newest = f"(SELECT * FROM {read.name} WHERE {key} IS NOT NULL) [PARTITION BY {key} ROWS 1] AS {read.alias}"
            yield Edit(read.start, read.end, newest)
        elif tabled:
            yield Edit(read.end, read.end, " [NOW]")
    yield from _within(text, level, words, reads)
    if "WITHIN" in words:
        yield from _versions(level, words, reads, keys)
    yield from _false_of_nulls(tokens, level)
    instants = yield from _window(text, tokens, level, reads, clauses)
    yield from _without_nulls(text, tokens, keys_of(level), {word: begin for begin, word in clauses}, instants)
    yield from _row_keys(text, level)
    yield from _stars(level, reads, columns)
    for i, token in enumerate(tokens):
        before, after = tokens[i - 1] if i else NOTHING, [*tokens, NOTHING][i + 1]
        if token.token_type == TokenType.PLUS and TokenType.STRING in (before.token_type, after.token_type):
            yield Edit(token.start, token.end + 1, "||")
        if (instant := instants.get(token.text.upper())) is not None and token.token_type in NAMES:
            dotted = before.token_type == TokenType.DOT
            named = f" AS {token.text}" if {before.text.upper(), after.text.upper()} <= {"SELECT", ",", "FROM"} else ""
            time = f"{tokens[i - 2].text}.{instant}" if dotted and token.text.upper() == "ROWTIME" else instant
            yield Edit((tokens[i - 2] if dotted else token).start, token.end + 1, f"epoch_ms({time}){named}")


def _reads(level: Tokens, times: Mapping[str, str]) -> Iterator[Read]:
    """The streams in FROM."""
    for i, token in enumerate(level[1:], 1):
        if level[i - 1].token_type in (TokenType.FROM, TokenType.JOIN) and token.token_type in NAMES:
            behind = [*level[i + 1 : i + 3], NOTHING, NOTHING]
            alias = behind[behind[0].token_type == TokenType.ALIAS]
            named = alias.token_type in NAMES and alias.text.upper() not in {*NOT_AN_ALIAS, *CLAUSES}
            name, last, windowed = token.text.casefold(), alias if named else token, behind[0].text == "["
            yield Read(name, last.text, times.get(name, "ts"), token.start, last.end + 1, windowed)


def _within(text: str, level: Tokens, words: Sequence[str], reads: Sequence[Read]) -> Iterator[Edit]:
    """`a JOIN b WITHIN (1 HOUR, 2 HOURS) ON …`: b comes an hour before a at most, and two behind it."""
    for i in (i for i, word in enumerate(words) if word == "WITHIN"):
        on = words.index("ON", i)
        end = next((j for j in range(i, on) if words[j] == "GRACE"), on)
        spans = text[level[i + 1].start : level[end - 1].end + 1].strip("()").split(",")
        met = next(read for read in reversed(reads) if read.end <= level[i].start)
        left, right = f"{reads[0].alias}.{reads[0].time}", f"{met.alias}.{met.time}"
        least, most = (f"{left} {sign} INTERVAL '{s.strip()}'" for sign, s in (("-", spans[0]), ("+", spans[-1])))
        yield Edit(level[i].start, level[on].end + 1, f"ON {right} BETWEEN {least} AND {most} AND")


def _versions(level: Tokens, words: Sequence[str], reads: Sequence[Read], keys: Collection[str]) -> Iterator[Edit]:
    """Tables behind streams that are joined within a distance: the versions of the time at which the streams meet."""
    times = [f"{read.alias}.{read.time}" for read in reads if read.name not in keys]
    for place, read in enumerate(reads):
        at = next(i for i, token in enumerate(level) if token.start == read.start)
        if read.name in keys and (place < len(times) or {"LEFT", "FULL", "OUTER", "RIGHT"} & set(words[at - 3 : at])):
            raise QueryError(
                f"the table {read.name} is no inner join behind all streams that WITHIN joins",
                detail="a row keeps the version of the time at which its streams meet, whatever comes later",
                hint="join the table before, in a statement of its own",
            )
        if read.name in keys:
            on = level[words.index("ON", at)].end + 1
            yield Edit(on, on, f" {read.alias}.{read.time} <= greatest({', '.join(times)}) AND")


def _without_nulls(
    text: str, tokens: Tokens, keys: Tokens, begins: Mapping[str, int], instants: Collection[str]
) -> Iterator[Edit]:
    """Rows with a null among the keys of GROUP BY left out."""
    if len(keys) == 2 and keys[0].token_type == TokenType.L_PAREN:
        keys = beside(tokens, tokens[tokens.index(keys[0]) + 1].start)
    parts = [list(part) for comma, part in groupby(keys, lambda t: t.token_type == TokenType.COMMA) if not comma]
    told = [text_of(text, part) for part in parts if part[-1].text.upper() not in instants]
    there = " AND ".join(f"({key}) IS NOT NULL" for key in told)
    if there and "WHERE" in begins:
        yield Edit(begins["WHERE"], begins["WHERE"] + len("WHERE"), f"WHERE {there} AND (")
        yield Edit(begins["GROUP"], begins["GROUP"], ") ")
    elif there:
        yield Edit(begins["GROUP"], begins["GROUP"], f"WHERE {there} ")


def _row_keys(text: str, level: Tokens) -> Iterator[Edit]:
    """`ROWKEY` of a join: what its sides are equal in, of the one that is there."""
    if (equal := LAST_CONDITION.search(text)) is None:
        return
    for before, token, after in zip(level, level[1:], level[2:], strict=False):
        if token.text.upper() == "ROWKEY" and before.token_type != TokenType.DOT:
            named = "" if after.token_type == TokenType.ALIAS else " AS ROWKEY"
            yield Edit(token.start, token.end + 1, f"coalesce({equal[1]}, {equal[2]}){named}")


def _stars(level: Tokens, reads: Sequence[Read], columns: Columns) -> Iterator[Edit]:
    """Stars over joins of declared streams: columns are called after their sides, too."""
    known = len(reads) > 1 and all(read.name in columns for read in reads)
    for i, token in enumerate(level):
        before = level[i - 1].token_type
        if (
            known
            and token.token_type == TokenType.STAR
            and before in (TokenType.SELECT, TokenType.COMMA, TokenType.DOT)
        ):
            first = level[i - 2] if before == TokenType.DOT else token
            sides = [read for read in reads if first is token or read.alias.casefold() == first.text.casefold()]
            items = [f"{read.alias}.{name} AS {read.alias}_{name}" for read in sides for name in columns[read.name]]
            yield Edit(first.start, token.end + 1, ", ".join(items))


def _window(
    text: str, tokens: Tokens, level: Tokens, reads: Sequence[Read], clauses: Sequence[tuple[int, str]]
) -> Generator[Edit, None, dict[str, str]]:
    """The window behind a stream as a key of GROUP BY; what times are called there, and here."""
    instants = {"ROWTIME": reads[0].time if reads else "ts"}
    place = next((i for i, token in enumerate(tokens) if token.text.upper() == "WINDOW"), None)
    if place is None or tokens[place + 1].text.upper() not in BEHIND:
        return instants
    start, kind = tokens[place].start, tokens[place + 1].text.upper()
    end = next(token.end for token in level if token.start > tokens[place + 2].start)
    amounts = [part.split() for part in text[tokens[place + 2].end + 1 : end].split(",")]
    spans = [" ".join(part[-2:]) for part in amounts if part[0].upper() not in ("RETENTION", "GRACE")]
    group = next((begin for begin, word in clauses if word == "GROUP"), None)
    if group is None:
        raise QueryError("a window without GROUP BY has no meaning", hint="group by what each window is to tell apart")
    yield Edit(start, end + 1, "")
    behind = len(text[: next(begin for begin, _ in clauses if begin > group)].rstrip())
    yield Edit(behind, behind, f", {BEHIND[kind].format(*spans, time=reads[0].time)}")
    last = f"window_end - INTERVAL '{spans[0]}'" if kind == "SESSION" else "window_end"
    return {**instants, "WINDOWSTART": "window_start", "WINDOWEND": last}


def _false_of_nulls(tokens: Tokens, level: Tokens) -> Iterator[Edit]:
    """Selected comparisons, and what NOT denies, as false where they are null."""
    end = next((i for i, token in enumerate(level) if token.token_type == TokenType.FROM), len(level))
    item = list[Token]()
    for token in [*level[1:end], NOTHING]:
        if token.token_type not in (TokenType.COMMA, TokenType.ALIAS, TokenType.SENTINEL):
            item.append(token)
            continue
        if _compares(tokens, item):
            yield Edit(item[0].start, item[0].start, "coalesce(")
            yield Edit(item[-1].end + 1, item[-1].end + 1, ", FALSE)")
        item = []
    for i, token in enumerate(tokens[:-2]):
        if token.token_type == TokenType.NOT and tokens[i - 1].token_type != TokenType.IS:
            if tokens[i + 1].token_type == TokenType.L_PAREN:
                inside = beside(tokens, tokens[i + 2].start)[-1]
                yield Edit(token.end + 1, token.end + 1, " coalesce(")
                yield Edit(inside.end + 2, inside.end + 2, ", FALSE)")
            elif tokens[i + 1].token_type not in COMPARED and tokens[i + 2].token_type in COMPARED:
                hint = f"write NOT ({tokens[i + 1].text} {tokens[i + 2].text} …)"
                raise QueryError("it is not clear what NOT denies here", hint=hint)


def _compares(tokens: Tokens, item: Tokens) -> bool:
    """Whether a value is a comparison, or several: one in a CASE is none."""
    if len(item) == 2 and item[0].token_type == TokenType.L_PAREN:
        return _compares(tokens, beside(tokens, tokens[tokens.index(item[0]) + 1].start))
    cases, compares = 0, False
    for token in item:
        cases += (token.token_type == TokenType.CASE) - (token.token_type == TokenType.END)
        compares |= not cases and token.token_type in COMPARED
    return compares
