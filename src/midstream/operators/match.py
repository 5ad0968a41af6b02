"""Patterns of rows, looked for partition by partition in the order of time.

A pattern is a small program: take a row for a symbol, or go on at one of two places, the preferred one first. From a
row on the program is followed along its preferred ways; the first that ends is the match. A way that needs a row which
has not come yet leaves all less preferred ones open, so the search stops there and begins anew with the next slice,
unless no row in time can come any more. What lies before the first open row is dropped at once, but for the rows that
conditions look back to: these are kept without an end, and begin no match. Where matches are numbered, they carry how
many there have been.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.expressions import columns_of
from midstream.algebra.patterns import MATCHES, InOrder, Options, Pattern, PatternValue, Repeated, Symbol
from midstream.algebra.plan import Match
from midstream.algebra.time import INFINITY
from midstream.operators.elements import Elements, Indices, Mask, empty_elements
from midstream.operators.expressions import CompiledExpression, Predicate
from midstream.operators.ordering import NeighbourRuns, stable_order
from midstream.operators.row_window import OrderedRowsOperator
from midstream.operators.state.places import ChosenRows
from midstream.operators.state.sorted_state import SortedState

Instruction = tuple[str, int] | tuple[int, int] | None
"""Take a row for a symbol and go on there; go on at the first place or else the second; the end."""

Symbols = npt.NDArray[np.str_]

Matched = tuple["Matched | None", int, str]
"""What is matched so far: the rows before, the row, and its symbol."""


def program_of(pattern: Pattern) -> tuple[list[Instruction], int]:
    """The instructions of a pattern, of which the first is the end, and where to begin."""
    code: list[Instruction] = [None]

    def put(instruction: Instruction) -> int:
        code.append(instruction)
        return len(code) - 1

    def begin(part: Pattern, then: int) -> int:
        """Where a part begins that goes on at another place."""
        match part:
            case Symbol(name):
                return put((name, then))
            case InOrder(parts):
                for one in reversed(parts):
                    then = begin(one, then)
                return then
            case Options(options):
                *before, last = [begin(option, then) for option in options]
                for option in reversed(before):
                    last = put((option, last))
                return last
            case Repeated():
                return repeat(part, then)

    def repeat(part: Repeated, then: int) -> int:
        at = then
        for _ in range(1 if part.most is None else part.most - part.least):
            fork = put(None)
            inside = begin(part.part, fork if part.most is None else at)
            code[fork] = (inside, then) if part.greedy else (then, inside)
            at = fork
        for _ in range(part.least):
            at = begin(part.part, at)
        return at

    return code, begin(pattern, 0)


@dataclass(frozen=True)
class MatchSpec:
    """What is looked for, and what is given of it."""

    match: Match
    conditions: dict[str, Predicate]
    measures: tuple[CompiledExpression, ...]

    @cached_property
    def program(self) -> tuple[list[Instruction], int]:
        """The instructions of the pattern, and where to begin."""
        return program_of(self.match.pattern)

    @cached_property
    def asked(self) -> dict[str, list[PatternValue]]:
        """The values that the conditions of symbols look at."""
        read = {symbol: columns_of(condition) for symbol, condition in self.match.conditions}
        return {symbol: [v for v in self.match.values if v.name in names] for symbol, names in read.items()}

    @cached_property
    def ahead(self) -> dict[str, int]:
        """How many rows after the row itself conditions look at."""
        return {symbol: max([0, *(-v.before for v in values)]) for symbol, values in self.asked.items()}

    @cached_property
    def free(self) -> frozenset[str]:
        """Symbols whose conditions look at the row alone, and at those at a distance from it."""
        return frozenset(s for s, values in self.asked.items() if all(v.is_of_row(s) for v in values))

    @cached_property
    def measured(self) -> list[PatternValue]:
        """The values that measures look at."""
        read = frozenset[str]().union(*(columns_of(m.expression) for m in self.match.measures))
        return [v for v in self.match.values if v.name in read]

    @cached_property
    def head(self) -> tuple[list[str], bool]:
        """The symbols that every match begins with, and whether these are all of it.

        They end where conditions look at more than the row and those before.
        """
        (code, at), symbols = self.program, []
        while (step := code[at]) is not None and isinstance(step[0], str):
            if step[0] in self.asked and (step[0] not in self.free or self.ahead[step[0]]):
                break
            symbols.append(step[0])
            at = step[1]
        return symbols, step is None

    @cached_property
    def reach(self) -> int:
        """How many rows before a match are looked at, or carry the number of matches so far."""
        return max((v.before if v.function != "number" else 1 for v in self.match.values), default=0)


class MatchRowsOperator(OrderedRowsOperator):
    """MATCH_RECOGNIZE."""

    name = "match"

    def __init__(self, schema: pa.Schema, kept: SortedState, spec: MatchSpec) -> None:
        super().__init__(schema, kept, tuple(name for name in kept.schema.names if name != MATCHES), None)
        self.spec, self.ties = spec, spec.match.order

    def drop(self, closed: ChosenRows) -> None:
        for segment, gone in closed:
            self._leave(segment, gone)

    def look(self, rows: Elements, start: int, end: int) -> tuple[Elements, Indices]:
        # Of rows that are equal those that begin no match come first.
        rank = stable_order((rows.valid_to != INFINITY).astype(np.int64))
        order, partitions = self._order(rows.take(rank))
        order = rank[order]
        ordered = rows.take(order)
        runs = NeighbourRuns(len(ordered), partitions[1:] != partitions[:-1])
        search = _Search(self.spec, ordered, runs.first.repeat(runs.sizes), start, end)
        closed, again, numbers = [], [], []
        for first, last in zip(runs.first.tolist(), runs.end.tolist(), strict=True):
            open_from = search.partition(first, last)
            kept_from = max(first, open_from - self.spec.reach)
            back = [row for row in range(kept_from, open_from) if not search.past[row]]
            closed += [*range(first, kept_from), *back]
            again += back
            numbers += [search.number] * len(back)
        if again:
            looked = ordered.take(np.array(again))
            if MATCHES in looked.columns.schema.names:
                place = looked.columns.schema.get_field_index(MATCHES)
                looked = looked.with_columns(looked.columns.set_column(place, MATCHES, pa.array(numbers, pa.int64())))
            self.again.append(looked.with_validity(looked.valid_from, np.full(len(looked), INFINITY)))
        return search.found(self.schema), order[np.array(closed, np.intp)]


class _Search:
    """Looks for matches among rows in order."""

    def __init__(self, spec: MatchSpec, rows: Elements, firsts: Indices, start: int, end: int) -> None:
        """`firsts` are the first rows of the partitions of all."""
        self.spec, self.rows, self.start, self.end = spec, rows, start, end
        self.times = rows.valid_from.tolist()
        new_partition = np.append(firsts[1:] != firsts[:-1], True)
        self.firsts, self.lasts = firsts, np.flatnonzero(new_partition)[np.cumsum(new_partition) - new_partition]
        self.holds = {name: self._holding(name) for name in spec.free}
        self.past = (rows.valid_to == INFINITY).tolist()
        self._begin()
        self.matches: list[tuple[list[tuple[int, str]], int, int]] = []
        self.decided = self.number = 0

    def _holding(self, symbol: str) -> Mask:
        """For which rows a symbol's condition holds, of one that looks at the row alone."""
        everyone, made = np.arange(len(self.rows)), {}
        for value in self.spec.asked[symbol]:
            there = everyone - value.before
            inside = (there >= self.firsts) & (there <= self.lasts)
            made[value.name] = self.rows.columns.column(value.column).take(pa.array(there, mask=~inside))
        return self.spec.conditions[symbol](self._known(self.rows.columns, made))

    def _known(self, own: pa.RecordBatch, values: dict[str, pa.Array]) -> pa.RecordBatch:
        """Rows with values, nulls where nobody looks at them."""
        more = [values[v.name] if v.name in values else pa.nulls(own.num_rows, v.type) for v in self.spec.match.values]
        return pa.RecordBatch.from_arrays([*own.columns, *more], schema=self.spec.match.known)

    def _begin(self) -> None:
        """What the symbols that every match begins with say, one after the other, of all rows at once.

        For each row: the next one from which a match is not ruled out, the time up to which rows were looked at to say
        so of itself, and whether that is all of a match.
        """
        times, rows, within, lasts = self.rows.valid_from, np.arange(len(self.rows)), self.spec.match.within, self.lasts
        until = np.full(len(rows), INFINITY) if within is None else times + within
        asked, ruled_out, seen = np.ones(len(rows), bool), np.zeros(len(rows), bool), times
        symbols, all_of_it = self.spec.head
        for number, symbol in enumerate(symbols):
            asked = asked & (rows + number <= lasts)
            there = np.minimum(rows + number, lasts)
            seen = np.where(asked, np.minimum(times[there], until), seen)
            out = asked & ((times[there] > until) | ~self.holds.get(symbol, np.ones(len(rows), bool))[there])
            ruled_out, asked = ruled_out | out, asked & ~out
        self.likely = np.minimum.accumulate(np.where(ruled_out, len(rows), rows)[::-1])[::-1].tolist()
        self.seen, self.whole = seen.tolist(), (asked & all_of_it).tolist()

    def partition(self, first: int, last: int) -> int:
        """Looks for the matches of the rows between two places; gives the first row that is still open."""
        begin = first
        while begin < last and self.past[begin]:
            begin += 1
        instant, self.number = self.start, 0
        if begin > first and MATCHES in self.rows.columns.schema.names:
            self.number = self.rows.columns.column(MATCHES)[begin - 1].as_py()
        while begin < last:
            if (likely := min(self.likely[begin], last)) > begin:
                instant = max(instant, *self.seen[begin:likely])
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
            self.number += 1
            self.matches.append((found, self.number, instant))
            begin = max(begin + 1, self._next(found))
        return last

    def _from(self, begin: int) -> list[tuple[int, str]] | None:
        """The match from a row on, nothing if there is none, None if that is open."""
        if self.whole[begin]:
            self.decided = self.seen[begin]
            return list(enumerate(self.spec.head[0], begin))
        within, (code, start), ahead = self.spec.match.within, self.spec.program, self.spec.ahead
        until, last = None if within is None else self.times[begin] + within, int(self.lasts[begin]) + 1
        stack: list[tuple[int, int, Matched | None]] = [(start, begin, None)]
        while stack:
            at, row, matched = stack.pop()
            while (step := code[at]) is not None:
                if isinstance(step[0], int):
                    stack.append((step[1], row, matched))
                    at = step[0]
                    continue
                late = row < last and until is not None and self.times[row] > until
                if late or row >= last:
                    if until is None or (row >= last and until >= self.end):
                        return None
                    self.decided = max(self.decided, until)
                    break
                seen = row + ahead.get(step[0], 0)
                if seen >= last:
                    return None
                self.decided = max(self.decided, self.times[seen])
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
        so_far = _Taken([_unrolled(matched)], [self.number + 1])
        own = self.rows.columns.slice(row, 1)
        values = {v.name: self._value(v, so_far) for v in self.spec.asked[symbol]}
        return bool(condition(self._known(own, values))[0])

    def _next(self, found: list[tuple[int, str]]) -> int:
        skip = self.spec.match.skip
        match skip.to:
            case "past last row":
                return found[-1][0] + 1
            case "next row":
                return found[0][0] + 1
            case to:
                own = [row for row, symbol in found if symbol == skip.symbol] or [0]
                return own[0 if to == "first" else -1]

    def _value(self, value: PatternValue, taken: _Taken) -> pa.Array:
        """A value of what is taken so far at each place that is asked about."""
        if value.function == "number":
            return pa.array(taken.numbers[taken.of], value.type)
        begins, ends = taken.begins[taken.of], taken.ends[taken.of] if value.final else taken.here + 1
        rows, symbols = taken.rows, taken.symbols
        if value.symbol is not None:
            own = symbols == value.symbol
            counts = np.append(0, np.cumsum(own))
            rows, symbols, begins, ends = rows[own], symbols[own], counts[begins], counts[ends]
        if value.function in ("first", "last"):
            return self._cells(value, rows, symbols, begins, ends)
        if value.column is None:
            return pa.array(ends - begins, value.type)
        column = self.rows.columns.column(value.column).take(pa.array(rows))
        parts = (column.slice(a, b - a) for a, b in zip(begins.tolist(), ends.tolist(), strict=True))
        return pa.array([_AGGREGATES[value.function](part).as_py() for part in parts], value.type)

    def _cells(self, value: PatternValue, rows: Indices, symbols: Symbols, begins: Indices, ends: Indices) -> pa.Array:
        """The first or last rows of runs: values of a column, or symbols."""
        place = begins + value.number if value.function == "first" else ends - 1 - value.number
        has = value.number < ends - begins
        place = np.where(has, place, -1)
        if value.column is None:
            return pa.array(np.append(symbols, "")[place].tolist(), value.type, mask=~has)
        matched = np.append(rows, 0)[place]
        row = matched - value.before
        return self.rows.columns.column(value.column).take(pa.array(row, mask=~has | (row < self.firsts[matched])))

    def found(self, schema: pa.Schema) -> Elements:
        """The matches, at the instants at which they were decided."""
        if not self.matches:
            return empty_elements(schema)
        matches, numbers, decided = map(list, zip(*self.matches, strict=True))
        match, taken = self.spec.match, _Taken(matches, numbers, self.spec.match.all_rows)
        own = self.rows.take(taken.rows[taken.here]).columns
        known = self._known(own, {v.name: self._value(v, taken) for v in self.spec.measured})
        columns = [*(known.column(key) for key in match.keys), *(measure(known) for measure in self.spec.measures)]
        instants = np.array(decided, np.int64)[taken.of]
        return Elements(pa.RecordBatch.from_arrays(columns, schema=schema), instants, instants + 1)


class _Taken:
    """The rows of matches, one match after the other: between `begins` and `ends`, with their symbols.

    Something is asked `here`, about the match `of`: at the last row of each, or at every row.
    """

    def __init__(self, matches: list[list[tuple[int, str]]], numbers: list[int], every_row: bool = False) -> None:
        taken = [pair for found in matches for pair in found]
        self.rows = np.array([row for row, _ in taken], np.int64)
        self.symbols = np.array([symbol for _, symbol in taken])
        counts = np.array([len(found) for found in matches])
        self.ends, self.numbers = np.cumsum(counts), np.array(numbers)
        self.begins = self.ends - counts
        self.here = np.arange(len(taken)) if every_row else self.ends - 1
        self.of = np.repeat(np.arange(len(matches)), counts if every_row else 1)


def _unrolled(matched: Matched | None) -> list[tuple[int, str]]:
    found = []
    while matched is not None:
        matched, row, symbol = matched
        found.append((row, symbol))
    return found[::-1]


_AGGREGATES = {"sum": pc.sum, "avg": pc.mean, "min": pc.min, "max": pc.max, "count": pc.count}
