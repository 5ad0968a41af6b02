"""Texts of other systems as tokens: calls in them, the keys beside a call in GROUP BY, and other letters in a place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from sqlglot.tokenizer_core import Token, TokenType

from midstream.language.text import tokens_of

_AFTER_KEYS = "HAVING QUALIFY ORDER_BY LIMIT FETCH OFFSET UNION EXCEPT INTERSECT SEMICOLON"

AFTER_KEYS = frozenset(getattr(TokenType, name) for name in _AFTER_KEYS.split())
"""What may stand behind the keys of GROUP BY."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Other letters in the place of some."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call among tokens: its name, the place of its first token and behind its last, and its arguments' tokens."""

    name: str
    start: int
    end: int
    arguments: tuple[tuple[Token, ...], ...]


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A text with all edits made."""
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def calls(text: str, names: Collection[str]) -> Iterator[Called]:
    """The calls of some functions, by their tokens."""
    tokens = tokens_of(text)
    for i, token in enumerate(tokens[:-1]):
        if token.text.upper() in names and tokens[i + 1].token_type == TokenType.L_PAREN:
            depth, place, arguments = 1, i + 2, [list[Token]()]
            while place < len(tokens) and depth:
                kind = tokens[place].token_type
                depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(kind, 0)
                if depth == 1 and kind == TokenType.COMMA:
                    arguments.append([])
                elif depth:
                    arguments[-1].append(tokens[place])
                place += 1
            yield Called(token.text.upper(), token.start, tokens[place - 1].end + 1, tuple(map(tuple, arguments)))


def text_of(source: str, tokens: Sequence[Token]) -> str:
    """What is written from the first to the last of some tokens."""
    return source[tokens[0].start : tokens[-1].end + 1] if tokens else ""


def other_keys(text: str, call: Called, windows: Collection[str]) -> list[Token]:
    """What stands in the GROUP BY of a call's query besides calls of `windows`."""
    spans = [(each.start, each.end) for each in calls(text, windows)]
    tokens = [t for t in tokens_of(text) if not any(start <= t.start < end for start, end in spans)]
    depths, level = list[int](), 0
    for token in tokens:
        level -= token.token_type == TokenType.R_PAREN
        depths.append(level)
        level += token.token_type == TokenType.L_PAREN
    place = sum(token.start < call.start for token in tokens)
    own = depths[place - 1] + (tokens[place - 1].token_type == TokenType.L_PAREN)
    first = max((i + 1 for i in range(place) if depths[i] < own), default=0)
    last = min((i for i in range(place, len(tokens)) if depths[i] < own), default=len(tokens))
    groups = [i for i in range(first, last) if tokens[i].token_type == TokenType.GROUP_BY and depths[i] == own]
    begun = max((i for i in groups if i < place), default=groups[0] if groups else last)
    return list(takewhile(lambda token: token.token_type not in AFTER_KEYS, tokens[begun + 2 : last]))
