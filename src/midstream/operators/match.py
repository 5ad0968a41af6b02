"""Patterns of rows, looked for partition by partition in the order of time.

A pattern is a small program: take a row for a symbol, or go on at one of two places, the preferred one first. From a
row on the program is followed along its preferred ways; the first that ends is the match. A way that needs a row which
has not come yet leaves all less preferred ones open, so the search stops there and begins anew with the next slice,
unless no row in time can come any more. What lies before the first open row is dropped at once, but for the rows that
conditions look back to: these are kept without an end, and begin no match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.patterns import InOrder, Options, Pattern, PatternValue, Repeated, Skip, Symbol
from midstream.algebra.time import INFINITY
from midstream.operators.elements import Elements, Indices, Mask, concatenate, empty_elements
from midstream.operators.expressions import CompiledExpression, Predicate
from midstream.operators.ordering import stable_order
from midstream.operators.row_window import OrderedRowsOperator
from midstream.operators.state.places import ChosenRows
from midstream.operators.state.sorted_state import SortedState

Instruction = tuple[str, int] | tuple[int, int] | None
"""Take a row for a symbol and go on there; go on at the first place or else the second; the end."""

Matched = tuple["Matched | None", int, str]
"""What is matched so far: the rows before, the row, and its symbol."""


def program_of(pattern: Pattern) -> list[Instruction]:
    """The instructions of a pattern; its end is the last one."""
    code: list[Any] = []

    def add(part: Pattern) -> None:
        match part:
            case Symbol(name):
                code.append((name, len(code) + 1))
            case InOrder(parts):
                for one in parts:
                    add(one)
            case Options(options):
                ends = []
                for option in options[:-1]:
                    fork = len(code)
                    code.append(None)
                    add(option)
                    ends.append(len(code))
                    code.append(None)
                    code[fork] = (fork + 1, len(code))
                add(options[-1])
                for end in ends:
                    code[end] = (len(code), len(code))
            case Repeated():
                repeat(part)

    def repeat(part: Repeated) -> None:
        for _ in range(part.least):
            add(part.part)
        forks = []
        for _ in range(1 if part.most is None else part.most - part.least):
            forks.append(len(code))
            code.append(None)
            add(part.part)
        if part.most is None:
            code.append((forks[0], forks[0]))
        for fork in forks:
            inside, behind = fork + 1, len(code)
            code[fork] = (inside, behind) if part.greedy else (behind, inside)

    add(pattern)
    return [*code, None]


@dataclass(frozen=True, slots=True)
class MatchSpec:
    """What is looked for, and what is given of it."""

    program: Sequence[Instruction]
    conditions: dict[str, Predicate]
    free: frozenset[str]
    """Symbols whose conditions look at the row alone, and at those at a distance from it."""
    values: tuple[PatternValue, ...]
    known: pa.Schema
    keys: tuple[str, ...]
    measures: tuple[CompiledExpression, ...]
    skip: Skip
    within: int | None

    @property
    def head(self) -> list[str]:
        """The symbols that every match begins with, as far as their conditions look at the row alone."""
        straight = takewhile(lambda step: step is not None and isinstance(step[0], str), self.program)
        symbols = [str(step[0]) for step in straight if step is not None]
        return list(takewhile(lambda symbol: symbol in self.free or symbol not in self.conditions, symbols))

    @property
    def reach(self) -> int:
        """How many rows before a match are looked at."""
        return max((value.before for value in self.values), default=0)


class MatchRowsOperator(OrderedRowsOperator):
    """MATCH_RECOGNIZE."""

    name = "match"

    def __init__(self, schema: pa.Schema, kept: SortedState, spec: MatchSpec) -> None:
        super().__init__(schema, kept, tuple(kept.schema.names), None)
        self.spec = spec
        self._looked_back_to: list[Elements] = []

    def evaluations(self, start: int, end: int) -> Iterator[Elements]:
        yield from super().evaluations(start, end)
        again, self._looked_back_to = self._looked_back_to, []
        if again:
            rows = concatenate(again)
            self.kept[0].insert(rows, self.hashes(0, rows))

    def drop(self, closed: ChosenRows) -> None:
        for segment, gone in closed:
            self._leave(segment, gone)

    def look(self, rows: Elements, start: int, end: int) -> tuple[Elements, Indices]:
        # Of rows that are equal those that begin no match come first.
        rank = stable_order((rows.valid_to != INFINITY).astype(np.int64))
        order, partitions = self._order(rows.take(rank))
        order = rank[order]
        ordered = rows.take(order)
        new = np.append(True, partitions[1:] != partitions[:-1])
        bounds = np.append(np.flatnonzero(new), len(ordered))
        search = _Search(self.spec, ordered, bounds[np.cumsum(new) - 1], start, end)
        closed, again = [], []
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            open_from = search.partition(first, last)
            kept_from = max(first, open_from - self.spec.reach)
            back = [row for row in range(kept_from, open_from) if not search.past[row]]
            closed += [*range(first, kept_from), *back]
            again += back
        if again:
            looked = ordered.take(np.array(again))
            self._looked_back_to.append(looked.with_validity(looked.valid_from, np.full(len(looked), INFINITY)))
        return search.found(self.schema), order[np.array(closed, np.intp)]


@dataclass(frozen=True, slots=True)
class _Begun:
    """What the symbols that every match begins with say, one after the other, of all rows at once.

    For each row: the next one from which a match is not ruled out, the time up to which rows were looked at to say so
    of itself, and whether that is all of a match.
    """

    likely: list[int]
    seen: list[int]
    whole: list[bool]


class _Search:
    """Looks for matches among rows in order."""

    def __init__(self, spec: MatchSpec, rows: Elements, firsts: Indices, start: int, end: int) -> None:
        """`firsts` are the first rows of the partitions of all."""
        self.spec, self.rows, self.start, self.end = spec, rows, start, end
        self.times = rows.valid_from.tolist()
        self.holds = {name: self._holding(name, firsts) for name in spec.free}
        self.past = (rows.valid_to == INFINITY).tolist()
        self.head = spec.head
        self.begun = self._begun(firsts)
        self.matches: list[list[tuple[int, str]]] = []
        self.firsts: list[int] = []
        self.instants: list[int] = []
        self.first = self.last = self.decided = 0

    def _holding(self, symbol: str, firsts: Indices) -> Mask:
        """For which rows a symbol's condition holds, of one that looks at the row alone."""
        columns, everyone, values = self.rows.columns, np.arange(len(self.rows)), []
        for value in self.spec.values:
            if value.column is None or not value.is_of_row(symbol):
                values.append(pa.nulls(len(everyone), value.type))
                continue
            there = everyone - value.before
            values.append(columns.column(value.column).take(pa.array(there, mask=there < firsts)))
        batch = pa.RecordBatch.from_arrays([*columns.columns, *values], schema=self.spec.known)
        return self.spec.conditions[symbol](batch)

    def _begun(self, firsts: Indices) -> _Begun:
        times, rows, within = self.rows.valid_from, np.arange(len(self.rows)), self.spec.within
        new_partition = np.append(firsts[1:] != firsts[:-1], True)
        lasts = np.flatnonzero(new_partition)[np.cumsum(new_partition) - new_partition]
        until = np.full(len(rows), INFINITY) if within is None else times + within
        asked, ruled_out, seen = np.ones(len(rows), bool), np.zeros(len(rows), bool), times
        for number, symbol in enumerate(self.head):
            asked = asked & (rows + number <= lasts)
            there = np.minimum(rows + number, lasts)
            seen = np.where(asked, np.minimum(times[there], until), seen)
            out = asked & ((times[there] > until) | ~self.holds.get(symbol, np.ones(len(rows), bool))[there])
            ruled_out, asked = ruled_out | out, asked & ~out
        likely = np.minimum.accumulate(np.where(ruled_out, len(rows), rows)[::-1])[::-1]
        whole = asked if len(self.head) == len(self.spec.program) - 1 else np.zeros(len(rows), bool)
        return _Begun(likely.tolist(), seen.tolist(), whole.tolist())

    def partition(self, first: int, last: int) -> int:
        """Looks for the matches of the rows between two places; gives the first row that is still open."""
        self.first, self.last = first, last
        begin = first
        while begin < last and self.past[begin]:
            begin += 1
        instant = self.start
        while begin < last:
            if (likely := min(self.begun.likely[begin], last)) > begin:
                instant = max(instant, *self.begun.seen[begin:likely])
                begin = likely
                continue
            self.decided = self.times[begin]
            found = self._from(begin)
            if found is None:
                return begin
            instant = max(instant, self.decided)
            if not found:
                begin += 1
                continue
            self.matches.append(found)
            self.firsts.append(first)
            self.instants.append(instant)
            begin = max(begin + 1, self._next(found))
        return last

    def _from(self, begin: int) -> list[tuple[int, str]] | None:
        """The match from a row on, nothing if there is none, None if that is open."""
        if self.begun.whole[begin]:
            self.decided = self.begun.seen[begin]
            return list(enumerate(self.head, begin))
        within, program = self.spec.within, self.spec.program
        until = None if within is None else self.times[begin] + within
        stack: list[tuple[int, int, Matched | None]] = [(0, begin, None)]
        while stack:
            at, row, matched = stack.pop()
            while (step := program[at]) is not None:
                if isinstance(step[0], int):
                    stack.append((step[1], row, matched))
                    at = step[0]
                    continue
                late = row < self.last and until is not None and self.times[row] > until
                if late or row >= self.last:
                    if until is None or (row >= self.last and until >= self.end):
                        return None
                    self.decided = max(self.decided, until)
                    break
                self.decided = max(self.decided, self.times[row])
                further = (matched, row, step[0])
                if not self._holds(step[0], row, further):
                    break
                row, matched, at = row + 1, further, step[1]
            else:
                return _unrolled(matched)
        return []

    def _holds(self, symbol: str, row: int, matched: Matched) -> bool:
        if symbol in self.holds:
            return bool(self.holds[symbol][row])
        condition = self.spec.conditions.get(symbol)
        if condition is None:
            return True
        so_far = _unrolled(matched)
        own = [column.slice(row, 1) for column in self.rows.columns.columns]
        values = self._values([so_far], [self.first])
        return bool(condition(pa.RecordBatch.from_arrays([*own, *values], schema=self.spec.known))[0])

    def _next(self, found: list[tuple[int, str]]) -> int:
        match self.spec.skip.to:
            case "past last row":
                return found[-1][0] + 1
            case "next row":
                return found[0][0] + 1
            case to:
                own = [row for row, symbol in found if symbol == self.spec.skip.symbol] or [0]
                return own[0 if to == "first" else -1]

    def _values(self, matches: list[list[tuple[int, str]]], firsts: list[int]) -> list[pa.Array]:
        """The values of each match; `firsts` are the first rows of their partitions."""
        taken = [pair for found in matches for pair in found]
        rows, symbols = np.array([row for row, _ in taken], np.int64), np.array([symbol for _, symbol in taken])
        of = np.repeat(np.arange(len(matches)), [len(found) for found in matches])
        made = []
        for value in self.spec.values:
            own = np.ones(len(rows), bool) if value.symbol is None else symbols == value.symbol
            counts = np.bincount(of[own], minlength=len(matches))
            made.append(self._value(value, rows[own], counts, np.array(firsts)))
        return made

    def _value(self, value: PatternValue, rows: Indices, counts: Indices, firsts: Indices) -> pa.Array:
        """A value of each match: so many of the rows are its own, after those of the matches before."""
        if value.column is None:
            return pa.array(counts, value.type)
        column, ends = self.rows.columns.column(value.column), np.cumsum(counts)
        if value.function not in ("first", "last"):
            parts = (column.take(pa.array(own)) for own in np.split(rows, ends[:-1]))
            return pa.array([_AGGREGATES[value.function](part).as_py() for part in parts], value.type)
        place = ends - counts + value.number if value.function == "first" else ends - 1 - value.number
        has = value.number < counts
        row = np.append(rows, 0)[np.where(has, place, -1)] - value.before
        return column.take(pa.array(row, mask=~has | (row < firsts)))

    def found(self, schema: pa.Schema) -> Elements:
        """The matches, at the instants at which they were decided."""
        if not self.matches:
            return empty_elements(schema)
        last = pa.array([found[-1][0] for found in self.matches], pa.int64())
        own = [column.take(last) for column in self.rows.columns.columns]
        values = self._values(self.matches, self.firsts)
        known = pa.RecordBatch.from_arrays([*own, *values], schema=self.spec.known)
        columns = [*(known.column(key) for key in self.spec.keys), *(measure(known) for measure in self.spec.measures)]
        instants = np.array(self.instants, np.int64)
        return Elements(pa.RecordBatch.from_arrays(columns, schema=schema), instants, instants + 1)


def _unrolled(matched: Matched | None) -> list[tuple[int, str]]:
    found = []
    while matched is not None:
        matched, row, symbol = matched
        found.append((row, symbol))
    return found[::-1]


_AGGREGATES = {"sum": pc.sum, "avg": pc.mean, "min": pc.min, "max": pc.max, "count": pc.count}
