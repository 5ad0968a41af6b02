"""Patterns of rows: what MATCH_RECOGNIZE looks for.

Of several ways to match from one row the first counts: options from left to right, repetitions as long as they can be,
or as short if they are reluctant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Symbol:
    """A row for which the symbol's condition holds."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class InOrder:
    """One part after the other."""

    parts: tuple[Pattern, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Options:
    """One of several."""

    options: tuple[Pattern, ...]

    def __str__(self) -> str:
        return f"({' | '.join(map(str, self.options))})"


@dataclass(frozen=True, slots=True)
class Repeated:
    """A part several times; `most` is None where there is no bound."""

    part: Pattern
    least: int
    most: int | None
    greedy: bool = True

    def __str__(self) -> str:
        most = "" if self.most is None else self.most
        return f"({self.part}){{{self.least},{most}}}{'' if self.greedy else '?'}"


Pattern = Symbol | InOrder | Options | Repeated


def symbols_of(pattern: Pattern) -> Iterator[str]:
    """The symbols of a pattern, from left to right."""
    match pattern:
        case Symbol(name):
            yield name
        case InOrder(parts) | Options(parts):
            for part in parts:
                yield from symbols_of(part)
        case Repeated(part):
            yield from symbols_of(part)


def may_be_empty(pattern: Pattern) -> bool:
    """Whether no row at all matches."""
    match pattern:
        case Symbol():
            return False
        case InOrder(parts):
            return all(map(may_be_empty, parts))
        case Options(options):
            return any(map(may_be_empty, options))
        case Repeated(part, least):
            return least == 0 or may_be_empty(part)


def repeats_nothing(pattern: Pattern) -> bool:
    """Whether a part that may match no row is repeated."""
    match pattern:
        case InOrder(parts) | Options(parts):
            return any(map(repeats_nothing, parts))
        case Repeated(part):
            return may_be_empty(part) or repeats_nothing(part)
    return False


def length_of(pattern: Pattern) -> int:
    """How many symbols a pattern has, written out as often as they are counted."""
    match pattern:
        case InOrder(parts) | Options(parts):
            return sum(map(length_of, parts))
        case Repeated(part, least, most):
            return length_of(part) * max(1, least, most or 0)
    return 1


MATCHES = "#matches"
"""The column in which rows carry how many matches there have been, where matches are numbered; it begins as null."""

OF_ROWS = frozenset({"sum", "avg", "min", "max", "count"})
"""The aggregates of matched rows."""

PatternFunction = OneOf["first", "last", "sum", "avg", "min", "max", "count", "number"]


@dataclass(frozen=True, slots=True)
class PatternValue:
    """A value of the rows that have been matched so far, under a name that conditions and measures know it by.

    `first` and `last` are the value of a column in the `number`-th row of a symbol (None: of any), counted from that
    side, or `before` rows earlier in the stream, later ones if that is negative; without a column, what symbol that row
    has. `number` is that of the match in its partition. The others are aggregates over the symbol's rows; `count`
    without a column counts them. A `final` value is of all rows of the match.
    """

    name: str
    function: PatternFunction
    symbol: str | None
    column: str | None
    type: pa.DataType
    number: int = 0
    before: int = 0
    final: bool = False

    def is_of_row(self, symbol: str) -> bool:
        """Whether it is a value of the row that the symbol's condition is asked of, or of one at a distance from it."""
        own = self.function == "last" and self.number == 0 and self.symbol in (None, symbol)
        return own and self.column is not None

    def __str__(self) -> str:
        back, final = f", {self.number}" if self.number else "", "final " if self.final else ""
        of = f"{self.symbol or 'any'}.{self.column or '*'}{back}"
        return f"{final}{self.function}({of}) {'-' if self.before >= 0 else '+'} {abs(self.before)} AS {self.name}"


@dataclass(frozen=True, slots=True)
class Skip:
    """Where the next match may begin: behind the last row, at the second row, or at a row of a symbol."""

    to: OneOf["past last row", "next row", "first", "last"] = "past last row"
    symbol: str = ""

    def __str__(self) -> str:
        return f"{self.to} {self.symbol}".rstrip()
