"""Stored rows of a wider state, as a narrower one has them.

A window that is shorter, and a condition more, end rows sooner and leave some out. So a state of a changed query can
take over what another one has stored as it is: what is not among its rows has ended before it began. That is worked out
for the rows that are looked at, and for all of them only where they are merged or moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from midstream.algebra.expressions import columns_of
from midstream.algebra.physical.base import PhysicalNode
from midstream.algebra.physical.selections import Selection
from midstream.algebra.time import BEGINNING
from midstream.errors import InternalError
from midstream.operators.elements import Elements, Indices, Ticks
from midstream.operators.expressions import Predicate
from midstream.operators.vectors import gather_rows

Tests = tuple[list[str], tuple[Predicate, ...]]
"""RowTests, and the columns that they read."""


class RowTests:
    """Which conditions the output of a node meets, made ready once for rows that may not meet them."""

    __slots__ = ("_tests", "node")

    def __init__(self, node: PhysicalNode) -> None:
        self.node = node
        self._tests: dict[tuple[str, ...], Tests] = {}

    def __reduce__(self) -> tuple[Callable[[PhysicalNode], RowTests], tuple[PhysicalNode]]:
        return RowTests, (self.node,)

    def on(self, schema: pa.Schema) -> Tests:
        """Those that rows with some columns can be asked for; who gives rows knows that they meet the others."""
        names = tuple(schema.names)
        if names not in self._tests:
            selection = Selection.of(self.node)
            if selection is None:
                raise InternalError(f"{self.node.label} is no selection: what is stored cannot be narrowed to it")
            asked = [test for test in selection.tests if columns_of(test) <= set(names)]
            read = sorted({name for test in asked for name in columns_of(test)})
            columns = pa.schema([schema.field(name) for name in read])
            self._tests[names] = read, tuple(Predicate(test, columns) for test in asked)
        return self._tests[names]


@dataclass(frozen=True, slots=True)
class Narrowing:
    """By how many ticks rows end `sooner`, and the tests that rows as they are `stored` have to pass.

    `place` is where these are kept; "" for a run of them.
    """

    sooner: int
    tests: RowTests
    stored: pa.RecordBatch
    place: str

    def ends(self, since: Ticks, until: Ticks, at: Indices | None = None) -> Ticks:
        """When rows end that are valid from and to certain instants as they are stored: all, or some of them."""
        until = until - self.sooner
        names, tests = self.tests.on(self.stored.schema)
        if tests:
            read = self.stored.select(names)
            rows = read if at is None else gather_rows(read, at)
            for test in tests:
                until[~test(rows)] = BEGINNING
        until[until <= since] = BEGINNING  # what has ended before it begins must not look alive to those who lag behind
        return until

    def applied(self, stored: Elements) -> Elements:
        """All rows, with the times that they have."""
        return stored.with_validity(stored.valid_from, self.ends(stored.valid_from, stored.valid_to))

    def at(self, place: str) -> Narrowing:
        """The same of rows that are kept somewhere."""
        return replace(self, place=place)

    def slice(self, start: int, length: int) -> Narrowing:
        """The same of a run of the rows."""
        return replace(self, stored=self.stored.slice(start, length), place="")
