"""Operators over signed tuples, each built on the operator that computes the same over intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.time import BEGINNING
from midstream.errors import QueryError
from midstream.lab.papers.positive_negative.signs import consolidated, intervals, repeated, settled, signed
from midstream.operators.base import Operator, joined
from midstream.operators.build import Functions, build
from midstream.operators.elements import Elements, concatenate, empty_elements
from midstream.operators.expressions import Predicate
from midstream.operators.hashing import columns_equal
from midstream.operators.join import prepare
from midstream.operators.row_window import OrderedRowsOperator
from midstream.operators.slices import SliceOperator
from midstream.operators.state.segment import pairs


class SignedOperator:
    """Takes and gives signed tuples; `advance` says that all before the frontier have come."""

    def process(self, port: int, batch: Elements) -> Elements | None:
        """Takes signed tuples and gives what follows from them at once."""
        raise NotImplementedError

    def advance(self, frontier: int) -> Elements | None:
        """Gives what the frontier makes final."""
        return None


class Linear(SignedOperator):
    """A selection, projection or union: signs pass through."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def process(self, port: int, batch: Elements) -> Elements | None:
        return self.operator.process(port, batch)


class Multilinear(SignedOperator):
    """An inner join: all combinations of signed tuples, at the latest time, with the product of the signs."""

    def __init__(
        self, inputs: Sequence[p.PhysicalNode], routes: Sequence[Sequence[SignedMeeting]], schema: pa.Schema
    ) -> None:
        self.schema, self.routes = schema, routes
        self.kept = [empty_elements(node.schema) for node in inputs]

    def process(self, port: int, batch: Elements) -> Elements | None:
        result: Elements | None = batch
        for meeting in self.routes[port]:
            if result is None or len(result) == 0:
                break
            result = meeting(result, self.kept[meeting.target])
        self.kept[port] = concatenate([self.kept[port], batch])
        if result is None or len(result) == 0:
            return None
        return result.with_columns(result.columns.select(self.schema.names))

    def advance(self, frontier: int) -> Elements | None:
        self.kept = [settled(events, frontier) for events in self.kept]
        return None


@dataclass(frozen=True, slots=True)
class SignedMeeting:
    """How signed tuples meet those of another input: by which columns on both sides, and what must hold then."""

    target: int
    key: tuple[str, ...]
    target_key: tuple[str, ...]
    nulls_equal: bool
    residual: Predicate | None

    def __call__(self, batch: Elements, kept: Elements) -> Elements | None:
        """All pairs, at the later time, with the product of the signs."""
        here, hashes_here = prepare(batch, self.key, self.nulls_equal)
        there, hashes_there = prepare(kept, self.target_key, self.nulls_equal)
        rows_here, rows_there = pairs(hashes_here, hashes_there)
        if len(rows_here) == 0:
            return None
        here, there = here.take(rows_here), there.take(rows_there)
        schema = pa.schema([*here.columns.schema, *there.columns.schema])
        columns = pa.RecordBatch.from_arrays([*here.columns.columns, *there.columns.columns], schema=schema)
        keep = np.ones(len(here), bool)
        if self.key:
            keep &= columns_equal(
                [here.columns.column(name) for name in self.key],
                [there.columns.column(name) for name in self.target_key],
                self.nulls_equal,
            )
        if self.residual is not None:
            keep &= self.residual(columns)
        times = np.maximum(here.valid_from, there.valid_from)
        return Elements(columns, times, here.valid_to * there.valid_to).where(keep)


def _two_way(node: p.HashJoin, functions: Functions) -> Multilinear:
    left = SignedMeeting(1, node.left_key, node.right_key, node.nulls_equal, _residual(node, (0, 1), functions))
    right = SignedMeeting(0, node.right_key, node.left_key, node.nulls_equal, _residual(node, (1, 0), functions))
    return Multilinear(node.inputs, ((left,), (right,)), node.schema)


def _residual(node: p.HashJoin, order: tuple[int, int], functions: Functions) -> Predicate | None:
    if node.residual is None:
        return None
    schema = pa.schema([field for i in order for field in node.inputs[i].schema])
    return Predicate(node.residual, schema, functions)


def _many_way(node: p.MultiwayJoin, functions: Functions) -> Multilinear:
    routes = []
    for start, route in enumerate(node.routes):
        schema, meetings = node.joined[start].schema, []
        for step in route:
            schema = pa.schema([*schema, *node.joined[step.target].schema])
            residual = None if step.residual is None else Predicate(step.residual, schema, functions)
            meetings.append(SignedMeeting(step.target, step.key, step.target_key, step.nulls_equal, residual))
        routes.append(tuple(meetings))
    return Multilinear(node.inputs, routes, node.schema)


class Waiting(SignedOperator):
    """Anything else: answers for the time between two frontiers, from what is valid in it."""

    def __init__(self, node: p.PhysicalNode, functions: Functions) -> None:
        self.node, self.functions = node, functions
        self.kept = [empty_elements(child.schema) for child in node.inputs]
        self.done = BEGINNING
        # The answer is cut at every frontier: what goes on behind it cancels there.
        self.cut = empty_elements(node.schema)

    def process(self, port: int, batch: Elements) -> Elements | None:
        self.kept[port] = concatenate([self.kept[port], batch])
        return None

    def advance(self, frontier: int) -> Elements | None:
        start, self.done = self.done, frontier
        given, self.cut = _signed_answer(self.cut, self._answer(start, frontier), frontier)
        self.kept = [settled(kept, frontier) for kept in self.kept]
        return given if len(given) else None

    def _answer(self, start: int, end: int) -> Elements | None:
        operator = build(self.node, self.functions)
        given: list[Elements] = []
        for port, kept in enumerate(self.kept):
            rows = intervals(kept.where(kept.valid_from < end), end).clipped(start, end)
            given += operator.pieces(port, rows) if len(rows) else ()
        return operator.evaluate(start, end) if isinstance(operator, SliceOperator) else joined(given)


def _signed_answer(cut: Elements, answer: Elements | None, frontier: int) -> tuple[Elements, Elements]:
    """What the answer up to a frontier signs with what was cut before, and what is cut at its end in turn."""
    events = consolidated(cut if answer is None else concatenate([cut, signed(answer)]))
    at_the_end = events.valid_from >= frontier
    return events.where(~at_the_end), events.where(at_the_end)


class SignedOrderedRows(SignedOperator):
    """A window by rows: its input's raw tuples are taken once, its answer is signed."""

    def __init__(self, operator: OrderedRowsOperator) -> None:
        self.operator = operator
        self.operator.grid = None
        self.kept = empty_elements(operator.kept[0].schema)
        self.cut = empty_elements(operator.schema)

    def process(self, port: int, batch: Elements) -> Elements | None:
        self.kept = concatenate([self.kept, batch.where(batch.valid_to > 0)])
        return None

    def advance(self, frontier: int) -> Elements | None:
        early = self.kept.valid_from < frontier
        rows, self.kept = self.kept.where(early), self.kept.where(~early)
        self.operator.process(0, repeated(rows))
        given, self.cut = _signed_answer(self.cut, self.operator.advance(frontier), frontier)
        return given


class Net(SignedOperator):
    """ISTREAM or DSTREAM: the tuples whose signs add up to more, or less, than nothing at an instant.

    They have no validity to end, so they are given as positives without negatives.
    """

    def __init__(self, kind: str, schema: pa.Schema) -> None:
        self.sign = {"istream": 1, "dstream": -1, "keep": 0}[kind]
        self.kept = empty_elements(schema)

    def process(self, port: int, batch: Elements) -> Elements | None:
        self.kept = concatenate([self.kept, batch])
        return None

    def advance(self, frontier: int) -> Elements | None:
        early = self.kept.valid_from < frontier
        happened, self.kept = consolidated(self.kept.where(early)), self.kept.where(~early)
        counts = happened.valid_to * self.sign
        return happened.with_validity(happened.valid_from, counts).where(counts > 0)


def build_signed(node: p.PhysicalNode, functions: Functions) -> SignedOperator:
    """The signed operator of a node."""
    match node:
        case p.Filter() | p.Compute() | p.Unnest() | p.Concatenate():
            return Linear(build(node, functions))
        case p.HashJoin():
            return _two_way(node, functions)
        case p.MultiwayJoin():
            return _many_way(node, functions)
        case p.Deduplicate() | p.GroupAggregate() | p.OverPartition() | p.OuterJoin() | p.SetOperation():
            return Waiting(node, functions)
        case p.OrderedRows():
            operator = build(node, functions)
            assert isinstance(operator, OrderedRowsOperator)
            return SignedOrderedRows(operator)
        case p.Changes():
            return Net(node.kind, node.schema)
    raise QueryError(
        f"the positive-negative representation has no {node.label.partition(' ')[0]}",
        hint="use the interval representation, or another plan of the query",
    )
