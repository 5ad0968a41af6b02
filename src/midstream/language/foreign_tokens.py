"""Texts of other systems as tokens: calls in them, the keys beside a call in GROUP BY, and other letters in a place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from sqlglot.tokenizer_core import Token, TokenType

from midstream.language.text import CLOSING, OPENING, tokens_of

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
                depth += (kind in OPENING) - (kind in CLOSING)
                if depth == 1 and kind == TokenType.COMMA:
                    arguments.append([])
                elif depth:
                    arguments[-1].append(tokens[place])
                place += 1
            yield Called(token.text.upper(), token.start, tokens[place - 1].end + 1, tuple(map(tuple, arguments)))


def text_of(source: str, tokens: Sequence[Token]) -> str:
    """What is written from the first to the last of some tokens."""
    return source[tokens[0].start : tokens[-1].end + 1] if tokens else ""


def beside(tokens: Sequence[Token], start: int) -> list[Token]:
    """The tokens within the same parentheses as one, without what is within others there."""
    depths, depth = list[int](), 0
    for token in tokens:
        depth -= token.token_type in CLOSING
        depths.append(depth)
        depth += token.token_type in OPENING
    at = next(i for i, token in enumerate(tokens) if token.start == start)
    first = max((i + 1 for i in range(at) if depths[i] < depths[at]), default=0)
    last = min((i for i in range(at, len(tokens)) if depths[i] < depths[at]), default=len(tokens))
    return [tokens[i] for i in range(first, last) if depths[i] == depths[at]]


def selects_of(tokens: Sequence[Token]) -> list[int]:
    """For each token where the SELECT begins that it belongs to, and to no other within that; -1 for none."""
    open_at, found = [-1], list[int]()
    for token in tokens:
        if token.token_type == TokenType.SELECT:
            open_at[-1] = token.start
        elif token.token_type in OPENING:
            open_at.append(open_at[-1])
        elif token.token_type in CLOSING and len(open_at) > 1:
            open_at.pop()
        found.append(open_at[-1])
    return found


def keys_of(level: Sequence[Token]) -> list[Token]:
    """What stands in GROUP BY, of the tokens of a SELECT."""
    begun = next((i for i, token in enumerate(level) if token.token_type == TokenType.GROUP_BY), len(level))
    return list(takewhile(lambda token: token.token_type not in AFTER_KEYS, level[begun + 2 :]))
