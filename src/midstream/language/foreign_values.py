"""Values of other systems whose texts would mean something else here: what differs is written out.

Each change is made at a token or between the arguments of a call, so that changes within one another do not meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from midstream.algebra.foreign_functions import AFTER_ORDER, CASTS, FOREIGN_FUNCTIONS, NULLS_FIRST, SUFFIXES, TIGHTNESS
from midstream.errors import QueryError
from midstream.language.foreign_tokens import Called, Edit, beside, calls
from midstream.language.grammar import NAMES, NOTHING
from midstream.language.operator_tables import WINDOW_WORDS
from midstream.language.text import CLOSING, OPENING, tokens_of

_LOOSE = "AND OR NOT EQ NEQ NULLSAFE_EQ LT LTE GT GTE LIKE ILIKE RLIKE IN IS BETWEEN WHEN THEN ELSE COMMA ARROW ALIAS"

LOOSE = {TokenType[name] for name in f"{_LOOSE} SELECT FROM ON WHERE GROUP_BY HAVING ORDER_BY".split()}
"""What stands between values that no such operator joins."""


def spark_constants(text: str) -> Iterator[Edit]:
    """Texts in either quotes and with backslashes, numbers with their types, and `^`, which is XOR."""
    tokens = tokens_of(text, Spark())
    _require_parentheses(text, tokens)
    for token, after in pairwise([*tokens, NOTHING]):
        place = (token.start, token.end + 1)
        if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
            yield Edit(*place, "'" + token.text.replace("'", "''") + "'")
        elif token.token_type == TokenType.CARET:
            yield Edit(*place, "#")
        elif after.token_type == TokenType.DCOLON and after.start == token.start:
            suffix = text[slice(*place)].upper().lstrip("0123456789.E+-")
            yield Edit(*place, SUFFIXES.get(suffix, "{}").format(token.text))


def _require_parentheses(text: str, tokens: Sequence[Token]) -> None:
    """Refuses an operator behind one that binds less tight there: here the one that stands first comes first."""
    loosest = [len(TIGHTNESS)]
    for before, token, after in zip([NOTHING, *tokens], tokens, [*tokens[1:], NOTHING], strict=False):
        twin = any(other.text == token.text and abs(other.start - token.start) == 1 for other in (before, after))
        tightness = TIGHTNESS.get(token.text * (1 + twin))
        if token.token_type in {*OPENING, TokenType.CASE}:
            loosest.append(len(TIGHTNESS))
        elif token.token_type in {*CLOSING, TokenType.END}:
            loosest = loosest[:-1] or [len(TIGHTNESS)]
        elif tightness is not None and tightness > loosest[-1]:
            message = f"{token.text * (1 + twin)} binds tighter in Spark than what stands before it, but not here"
            raise QueryError(message, hint="write parentheses: a | (b & c)").at(text, token.start)
        elif tightness is not None or token.token_type in LOOSE:
            loosest[-1] = tightness or len(TIGHTNESS)


def backslashes(text: str) -> Iterator[Edit]:
    """A backslash in a pattern of LIKE escapes."""
    tokens = [*tokens_of(text), NOTHING]
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        pattern = token.token_type == TokenType.STRING and before.token_type in (TokenType.LIKE, TokenType.ILIKE)
        if pattern and "\\" in token.text and after.text.upper() != "ESCAPE":
            yield Edit(token.end + 1, token.end + 1, r" ESCAPE '\'")


def similar(text: str) -> Iterator[Edit]:
    """`a SIMILAR TO 'x%'`, of which `%` and `_` stand for any letters; and `BROADCAST JOIN`, which says how."""
    for token, after in pairwise(tokens_of(text)):
        if (token.text.upper(), after.text.upper()) == ("SIMILAR", "TO"):
            yield Edit(token.start, after.end + 1, "MATCHES_SQL")
        elif token.text.upper() == "BROADCAST" and after.text.upper() in ("JOIN", "LEFT", "INNER"):
            yield Edit(token.start, after.start, "")


def of_lists(text: str) -> Iterator[Edit]:
    """`aggregate:f(x)`: a function of the list of all values."""
    for word, colon, name in zip(*(tokens_of(text)[i:] for i in range(3)), strict=False):
        if (word.text.upper(), colon.text) == ("AGGREGATE", ":"):
            call = next(one for one in calls(text, (name.text.upper(),)) if one.start == name.start)
            yield Edit(word.start, call.arguments[0][0].start, f"{name.text}(array_agg(")
            yield Edit(call.end, call.end, ")")


def seconds(text: str) -> Iterator[Edit]:
    """`EXTRACT(SECOND FROM t)`, which has a fraction."""
    for call in calls(text, ("EXTRACT",)):
        if call.arguments[0][0].text.upper() in ("SECOND", "SECONDS") and len(call.arguments[0]) > 2:
            yield Edit(call.start, call.arguments[0][2].start, "seconds_of(")


def iso_casts(text: str) -> Iterator[Edit]:
    """Casts of times to texts and back, of anything but null."""
    for call in calls(text, ("CAST",)):
        value, (before, last) = call.arguments[0], call.arguments[0][-2:]
        name = CASTS.get(last.text.upper())
        if name is not None and before.token_type == TokenType.ALIAS and value[0].token_type != TokenType.NULL:
            yield Edit(call.start, value[0].start, f"{name}(")
            yield Edit(value[-3].end + 1, call.end, ")")


def spark_places(text: str) -> Iterator[Edit]:
    """`list[0]` is the first element, places of `transform(list, (x, i) -> …)` count from 0."""
    tokens, opened = tokens_of(text), list[int]()
    for i, token in enumerate(tokens):
        if token.token_type in OPENING:
            opened.append(i)
        elif token.token_type in CLOSING and opened:
            begin = opened.pop()
            inside, before = tokens[begin + 1].text.upper(), tokens[begin - 1]
            if token.text != "]" or inside in WINDOW_WORDS or before.token_type not in {*NAMES, *CLOSING}:
                continue
            if before.text.upper() not in ("ARRAY", "MAP"):
                start = _operand(tokens, begin - 1)
                yield Edit(start, start, "get(")
                yield Edit(tokens[begin].start, tokens[begin].end + 1, ", ")
                yield Edit(token.start, token.end + 1, ")")
    yield from {e.start: e for call in calls(text, ("TRANSFORM", "FILTER")) for e in _from_zero(call)}.values()


def named_values(text: str) -> Iterator[Edit]:
    """Columns of `FROM VALUES (…), (…)` are `col1`, `col2`, … if they have no names."""
    for call in calls(text, ("VALUES",)):
        level = beside(tokens_of(text), call.start)
        at = next(i for i, token in enumerate(level) if token.start == call.start)
        rows = list(takewhile(lambda token: token.text in ("(", ")", ","), level[at + 1 :]))
        alias = [token for token in level[at + 1 + len(rows) :] if token.token_type != TokenType.ALIAS][:2]
        names = f"({', '.join(f'col{i}' for i in range(1, len(call.arguments) + 1))})"
        if level[at - 1].token_type in (TokenType.FROM, TokenType.JOIN) and rows[-1].text != ",":
            if not alias or alias[0].token_type not in NAMES:
                yield Edit(rows[-1].end + 1, rows[-1].end + 1, f" AS values{names}")
            elif alias[-1].text != "(":
                yield Edit(alias[0].end + 1, alias[0].end + 1, names)


def _operand(tokens: Sequence[Token], last: int) -> int:
    """Where the value begins that ends with a token: a name, a call, or an element of one."""
    depth = 0
    while depth or tokens[last].token_type in CLOSING:
        depth += (tokens[last].token_type in CLOSING) - (tokens[last].token_type in OPENING)
        last -= 1
        if not depth and tokens[last].token_type not in {*NAMES, *CLOSING}:
            return tokens[last + 1].start
    return _operand(tokens, last - 2) if tokens[last - 1].token_type == TokenType.DOT else tokens[last].start


def _from_zero(call: Called) -> Iterator[Edit]:
    function = call.arguments[1] if len(call.arguments) == 2 else ()
    if [token.text for token in function[2:6:2]] == [",", ")"]:
        for before, token in pairwise(function[5:]):
            if token.text == function[3].text and before.token_type != TokenType.DOT:
                yield Edit(token.start, token.end + 1, f"({token.text} - 1)")


def functions(text: str, dialect: str) -> Iterator[Edit]:
    """Functions that mean something else there, and `/`, which gives whole numbers of whole numbers."""
    slashes = [token for token in tokens_of(text) if token.token_type == TokenType.SLASH]
    yield from (Edit(token.start, token.end + 1, " QUOTIENT ") for token in slashes if dialect != "spark")
    known = FOREIGN_FUNCTIONS.get(dialect, {})
    for call in calls(text, {name.partition("/")[0] for name in known}):
        form = known.get(f"{call.name}/{len(list(filter(None, call.arguments)))}", known.get(call.name))
        if form is not None and "…" not in form:
            yield Edit(call.start, call.end, form)
        if form is None or not all(call.arguments):
            continue
        first, *between, last = form.split("…")
        yield Edit(call.start, call.arguments[0][0].start, first)
        for one, other in pairwise(call.arguments):
            yield Edit(one[-1].end + 1, other[0].start, between[0] if between else ", ")
        yield Edit(call.arguments[-1][-1].end + 1, call.end, last)


def nulls_placed(text: str, dialect: str, times: frozenset[str]) -> Iterator[Edit]:
    """Keys of ORDER BY whose nulls come first there; times are never null."""
    tokens = [*tokens_of(text), NOTHING]
    for i, token in enumerate(tokens):
        key, depth = list[Token](), 0
        for other in tokens[i + 2 :] if token.token_type == TokenType.ORDER_BY else ():
            if depth or other.text.upper() not in AFTER_ORDER:
                depth += (other.token_type in OPENING) - (other.token_type in CLOSING)
                key.append(other)
                continue
            words = [part.text.upper() for part in key if part.text.upper() != "ASC"]
            down, time = words[-1:] == ["DESC"], key[-1 - (words[-1:] == ["DESC"])].text.casefold() in times
            if down == (NULLS_FIRST[dialect] == "DESC") and not time and "NULLS" not in words:
                yield Edit(key[-1].end + 1, key[-1].end + 1, " NULLS FIRST")
            key = []
            if other.text != ",":
                break


READ_FIRST = {
    "spark": (spark_constants, backslashes, seconds, spark_places, named_values),
    "flink": (backslashes, similar),
    "risingwave": (backslashes, seconds, similar, of_lists),
    "ksqldb": (iso_casts,),
}
"""By dialect, what is changed before all else, so that the text can be read."""
