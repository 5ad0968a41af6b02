"""Brings a physical plan to life: one operator per node, one state per input that must be remembered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.declarations import AggregateFunction, UserFunction
from midstream.algebra.expressions import AggregateCall, Column, Expression, columns_of
from midstream.algebra.partitioning import partition_of
from midstream.algebra.physical import routed
from midstream.errors import InternalError
from midstream.operators import (
    aggregate,
    changes,
    distinct,
    join,
    match,
    multiway_join,
    one_way_join,
    outer_join,
    over,
    over_stream,
    row_window,
    sequence,
    set_operations,
    stateless,
)
from midstream.operators.base import Operator
from midstream.operators.expressions import CompiledExpression, Predicate
from midstream.operators.state.narrowing import RowTests
from midstream.operators.state.segment import Grouping
from midstream.operators.state.sorted_state import RestingState, SortedState

Functions = Mapping[str, UserFunction]


@singledispatch
def build(node: p.PhysicalNode, functions: Functions) -> Operator:
    """The live operator of a node, with empty states."""
    raise InternalError(f"no operator for {type(node).__name__}")


@build.register
def _(node: p.AssignWindow, functions: Functions) -> Operator:
    return stateless.AssignWindowOperator(node, None)


@build.register
def _(node: p.Filter, functions: Functions) -> Operator:
    return stateless.FilterOperator(node, Predicate(node.predicate, node.input.schema, functions))


@build.register
def _(node: p.Compute, functions: Functions) -> Operator:
    columns = [CompiledExpression(c.expression, node.input.schema, functions) for c in node.columns]
    return stateless.ComputeOperator(node, (columns, _renames(node)))


@build.register
def _(node: p.Unnest, functions: Functions) -> Operator:
    lists = {one.name: CompiledExpression(one.expression, node.input.schema, functions) for one in node.lists}
    return stateless.UnnestOperator(node, lists)


@build.register
def _(node: p.Concatenate, functions: Functions) -> Operator:
    return stateless.ConcatenateOperator(node, None)


@build.register
def _(node: p.HashJoin, functions: Functions) -> Operator:
    gathered = _gathered(node, node.residual)
    sides = state_of(node.left, node.left_key), state_of(node.right, node.right_key)
    return join.SymmetricJoin(node, sides, _predicate(node.residual, gathered, functions), gathered)


@build.register
def _(node: p.MultiwayJoin, functions: Functions) -> Operator:
    asked: list[dict[tuple[str, ...], SortedState]] = [{} for _ in node.joined]

    def made(origin: p.PhysicalNode, step: p.ProbeStep) -> multiway_join.JoinStep:
        states = asked[step.target]
        if step.target_key not in states:
            states[step.target_key] = state_of(node.joined[step.target], step.target_key)
        state, residual = states[step.target_key], _predicate(step.residual, step.gathered, functions)
        return multiway_join.JoinStep(step, state, residual, _probing(step, state, origin))

    routes = [[made(origin, step) for step in route] for origin, route in zip(node.joined, node.routes, strict=True)]
    return multiway_join.MultiwayJoinOperator(node.schema, [list(states.values()) for states in asked], routes)


@build.register
def _(node: routed.OneWayJoin, functions: Functions) -> Operator:
    return one_way_join.OneWayJoinOperator(node, _predicate(node.residual, node.gathered, functions))


@build.register
def _(node: routed.KeptWindow, functions: Functions) -> Operator:
    return one_way_join.KeptWindowOperator(node.schema, state_of(node.input, node.key))


@build.register
def _(node: p.OuterJoin, functions: Functions) -> Operator:
    sides = state_of(node.left, node.left_key), state_of(node.right, node.right_key)
    both = pa.schema([*node.left.schema, *node.right.schema])
    return outer_join.OuterJoinOperator(node, sides, _predicate(node.residual, both, functions))


@build.register
def _(node: p.Deduplicate, functions: Functions) -> Operator:
    names = tuple(node.schema.names)
    coverage = distinct.CoverageState(f"coverage of {node.content}", names, node.schema, node.longest)
    coverage.grouping = grouping_of(node.input)
    return distinct.DeduplicateOperator(node.schema, coverage)


@build.register
def _(node: p.GroupAggregate, functions: Functions) -> Operator:
    specs = [_aggregate_spec(c.call, c.columns, c.where, functions) for c in node.aggregates]
    return aggregate.GroupAggregateOperator(node, state_of(node.input, node.keys), specs)


@build.register
def _(node: p.OverPartition, functions: Functions) -> Operator:
    return over.OverPartitionOperator(
        node.schema, state_of(node.input, node.keys), _row_functions(node, functions), node.grid
    )


@build.register
def _(node: p.OverStream, functions: Functions) -> Operator:
    made = _row_functions(node, functions)
    if node.running:
        return over_stream.RunningOver(node.schema, _rows_of(node), made)
    return over_stream.OverStreamOperator(node.schema, _rows_of(node), made, reach_of(node))


def _row_functions(node: p.OverPartition | p.OverStream, functions: Functions) -> over.OrderedFunctions:
    specs = [_aggregate_spec(c.over.call, c.columns, c.where, functions) for c in node.columns]
    columns = tuple(over.OverSpec(c.over, spec) for c, spec in zip(node.columns, specs, strict=True))
    return over.OrderedFunctions(node.order, node.ties, columns)


def reach_of(node: p.OverStream) -> over_stream.OverReach:
    """How far back the frames of a node reach."""
    time = node.input.schema.field(node.order[0].name).type
    tick = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0.001}[time.unit] if pa.types.is_timestamp(time) else 1
    back = [(c.over.frame.unit, -(c.over.frame.start or 0)) for c in node.columns if c.over.call.function != "lag"]
    lags = [(c.over.known, c.columns[0], c.over.number or 0) for c in node.columns if c.over.call.function == "lag"]
    return over_stream.OverReach(
        max([*(int(n) for unit, n in back if unit == "rows"), *(n for known, _, n in lags if not known)], default=0),
        max([int(n) for unit, n in back if unit == "groups"], default=0),
        max([math.ceil(n * tick) + 1 for unit, n in back if unit == "range"], default=0),
        tuple((name, n) for known, name, n in lags if known),
    )


@build.register
def _(node: p.SetOperation, functions: Functions) -> Operator:
    left, right = (state_of(side, tuple(side.schema.names)) for side in node.inputs)
    return set_operations.SetOperationOperator(node, left, right)


@build.register
def _(node: p.WindowBounds, functions: Functions) -> Operator:
    return stateless.WindowBoundsOperator(node, None)


@build.register
def _(node: p.RowWindow, functions: Functions) -> Operator:
    return row_window.RowWindowOperator(node.schema, _rows_of(node), node.spec, node.grid)


@build.register
def _(node: p.SessionWindow, functions: Functions) -> Operator:
    return row_window.SessionWindowOperator(node.schema, _rows_of(node), node.spec.gap, node.bounds is not None)


@build.register
def _(node: p.MatchRows, functions: Functions) -> Operator:
    wanted, known = node.match, node.match.known
    conditions = {symbol: Predicate(c, known, functions) for symbol, c in wanted.conditions}
    measures = tuple(CompiledExpression(m.expression, known, functions) for m in wanted.measures)
    return match.MatchRowsOperator(node.schema, _rows_of(node), match.MatchSpec(wanted, conditions, measures))


def _rows_of(node: p.OrderedRows) -> SortedState:
    below = node.input
    return SortedState(f"rows of {node.content}", node.partition_by, below.schema, None, grouping=grouping_of(below))


@build.register
def _(node: p.Instants, functions: Functions) -> Operator:
    return changes.InstantsOperator(node.schema, state_of(node.input, ()), node.boundaries)


@build.register
def _(node: p.Changes, functions: Functions) -> Operator:
    kept = state_of(node.input, (), RestingState if node.kind == "keep" else SortedState)
    return changes.ChangesOperator(node.schema, kept, node.kind)


@build.register
def _(node: p.FollowedBy, functions: Functions) -> Operator:
    groupings = grouping_of(node.left), grouping_of(node.right)
    if groupings[0] is None or not groupings[0].same_order(groupings[1]):
        groupings = None, None  # firsts are found by the hashes of seconds

    def kept(what: str, side: int) -> SortedState:
        key, schema = (node.left_key, node.right_key)[side], node.inputs[side].schema
        return SortedState(f"{what} of {node.content}", key, schema, None, grouping=groupings[side])

    condition = _predicate(node.condition, node.schema, functions)
    return sequence.FollowedByOperator(node, (kept("firsts", 0), kept("seconds", 1)), kept("used firsts", 0), condition)


def _aggregate_spec(
    call: AggregateCall, columns: tuple[str, ...], where: str | None, functions: Functions
) -> aggregate.AggregateSpec:
    user = functions.get(call.function)
    made = user if isinstance(user, AggregateFunction) else None
    return aggregate.AggregateSpec(call.function, columns, call.type, call.distinct, where, made, call.form)


def state_of(node: p.PhysicalNode, key: tuple[str, ...], kind: type[SortedState] = SortedState) -> SortedState:
    """An empty state for a node's output, sorted by a key; named by what it will hold."""
    grouping = None if kind.rests else grouping_of(node)
    return kind(node.content, key, node.schema, node.longest, grouping=grouping, tests=RowTests(node))


def grouping_of(node: p.PhysicalNode) -> Grouping | None:
    """Of which partition groups a node's rows are, where states are sorted by group."""
    return Grouping.of(partition_of(node), node.schema.names)


def _probing(step: p.ProbeStep, state: SortedState, origin: p.PhysicalNode) -> Grouping | None:
    """The columns that say of what has been joined so far of which group it is: they equal those of the state.

    Where the key has none of them, those of the route's origin do: what is joined in a slot is dealt by equal values.
    """
    equal = dict(zip(step.target_key, step.key, strict=True))
    if state.grouping is None or not set(state.grouping.key) <= set(equal):
        return grouping_of(origin) if state.grouping else None
    return replace(state.grouping, key=tuple(equal[name] for name in state.grouping.key))


def _gathered(node: p.HashJoin, residual: Expression | None) -> pa.Schema:
    if residual is None or columns_of(residual) <= set(node.schema.names):
        return node.schema
    names = set(node.schema.names) | columns_of(residual)
    return pa.schema([f for f in (*node.left.schema, *node.right.schema) if f.name in names])


def _predicate(expression: Expression | None, schema: pa.Schema, functions: Functions) -> Predicate | None:
    return None if expression is None else Predicate(expression, schema, functions)


def _renames(node: p.Compute) -> dict[str, str]:
    """Input columns that come out unchanged under some name: what was hashed of them need not be hashed again."""
    return {c.expression.name: c.name for c in node.columns if isinstance(c.expression, Column)}
