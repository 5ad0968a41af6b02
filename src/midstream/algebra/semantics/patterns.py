"""Matches of patterns by their definition: all ways to match from a row, the first that succeeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from midstream.algebra.declarations import Catalog
from midstream.algebra.expressions import columns_of
from midstream.algebra.patterns import InOrder, Options, Pattern, PatternValue, Repeated, Symbol
from midstream.algebra.plan import Match
from midstream.algebra.semantics.scalars import evaluator
from midstream.algebra.semantics.values import Row
from midstream.algebra.semantics.windows import Element, Tuple, in_order, partitions

Matched = tuple[tuple[int, str], ...]
"""Rows with their symbols."""

Way = tuple[int, Matched]
"""The next row, and the rows so far."""


class Undecided(Exception):
    """Rows that are still to come may change the answer."""


def matches(plan: Match, stream: list[Tuple], catalog: Catalog) -> list[Element]:
    """One element per match, or per row of it, at the instant at which it is decided."""
    names = plan.input.schema.names
    parts = partitions(in_order(stream, plan.order, names), [names.index(key) for key in plan.keys])
    return [element for part in parts for element in _Partition(plan, part, catalog).elements()]


class _Partition:
    def __init__(self, plan: Match, rows: list[Tuple], catalog: Catalog) -> None:
        self.plan, self.rows = plan, rows
        self.names = plan.input.schema.names
        known = plan.known.names
        self.conditions = {symbol: evaluator(c, known, catalog) for symbol, c in plan.conditions}
        self.read = {symbol: columns_of(c) for symbol, c in plan.conditions}
        self.measured = frozenset[str]().union(*(columns_of(m.expression) for m in plan.measures))
        self.measures = [evaluator(m.expression, known, catalog) for m in plan.measures]
        self.decided = self.count = 0

    def elements(self) -> list[Element]:
        found: list[Element] = []
        start, instant = 0, None
        while start < len(self.rows):
            self.decided = self.rows[start].time
            try:
                way = next(self._ways(self.plan.pattern, (start, ()), start), None)
            except Undecided:
                break
            instant = self.decided if instant is None else max(instant, self.decided)
            if way is None:
                start += 1
                continue
            matched = way[1]
            given = range(1 if self.plan.all_rows else len(matched), len(matched) + 1)
            found += [Element(self._given(matched, count), instant, instant + 1) for count in given]
            self.count += 1
            start = max(start + 1, self._next(matched))
        return found

    def _given(self, matched: Matched, count: int) -> Row:
        """The keys and measures of a match as of so many of its rows."""
        row = self.rows[matched[count - 1][0]].row
        extended = (*row, *self._values(self.measured, matched[:count], matched))
        return (*(row[self.names.index(key)] for key in self.plan.keys), *(m(extended) for m in self.measures))

    def _next(self, matched: Matched) -> int:
        own = [i for i, symbol in matched if symbol == self.plan.skip.symbol]
        match self.plan.skip.to:
            case "past last row":
                return matched[-1][0] + 1
            case "first":
                return own[0] if own else 0
            case "last":
                return own[-1] if own else 0
        return matched[0][0] + 1

    def _ways(self, pattern: Pattern, way: Way, start: int) -> Iterator[Way]:
        """All ways to go on with a pattern, the preferred ones first."""
        match pattern:
            case Symbol(name):
                yield from self._row(name, way, start)
            case InOrder(parts):
                yield from self._in_order(parts, way, start)
            case Options(options):
                for option in options:
                    yield from self._ways(option, way, start)
            case Repeated():
                yield from self._repeated(pattern, 0, way, start)

    def _in_order(self, parts: tuple[Pattern, ...], way: Way, start: int) -> Iterator[Way]:
        if not parts:
            yield way
            return
        for further in self._ways(parts[0], way, start):
            yield from self._in_order(parts[1:], further, start)

    def _repeated(self, pattern: Repeated, count: int, way: Way, start: int) -> Iterator[Way]:
        if not pattern.greedy and count >= pattern.least:
            yield way
        if pattern.most is None or count < pattern.most:
            for further in self._ways(pattern.part, way, start):
                if further[0] > way[0]:
                    yield from self._repeated(pattern, count + 1, further, start)
        if pattern.greedy and count >= pattern.least:
            yield way

    def _row(self, symbol: str, way: Way, start: int) -> Iterator[Way]:
        place, matched = way
        within, begun = self.plan.within, self.rows[start].time
        if within is not None and (place >= len(self.rows) or self.rows[place].time > begun + within):
            self.decided = max(self.decided, begun + within)
            return
        if place >= len(self.rows):
            raise Undecided
        self.decided = max(self.decided, self.rows[place].time)
        matched = (*matched, (place, symbol))
        condition = self.conditions.get(symbol)
        row = (*self.rows[place].row, *self._values(self.read.get(symbol, frozenset()), matched, matched))
        if condition is None or condition(row) is True:
            yield place + 1, matched

    def _values(self, read: frozenset[str], matched: Matched, whole: Matched) -> list[Any]:
        """The values that are read of what is matched so far, or of the whole match."""
        return [self._value(v, whole if v.final else matched) if v.name in read else None for v in self.plan.values]

    def _value(self, value: PatternValue, matched: Matched) -> Any:
        rows = [i for i, symbol in matched if value.symbol in (None, symbol)]
        if value.function in ("first", "last"):
            ordered = rows if value.function == "first" else rows[::-1]
            if value.number >= len(ordered) or ordered[value.number] < value.before:
                return None
            if value.column is None:
                return dict(matched)[ordered[value.number]]
            return self._cell(ordered[value.number] - value.before, value)
        if value.function == "number":
            return self.count + 1
        if value.column is None:
            return len(rows)
        cells = [cell for i in rows if (cell := self._cell(i, value)) is not None]
        if value.function == "count":
            return len(cells)
        if not cells:
            return None
        if value.function in ("min", "max"):
            return min(cells) if value.function == "min" else max(cells)
        total = math.fsum(cells) if any(isinstance(cell, float) for cell in cells) else sum(cells)
        return float(total) / len(cells) if value.function == "avg" else total

    def _cell(self, place: int, value: PatternValue) -> Any:
        assert value.column is not None
        if place >= len(self.rows):
            raise Undecided
        self.decided = max(self.decided, self.rows[place].time)
        return self.rows[place].row[self.names.index(value.column)]
