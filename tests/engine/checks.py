"""What every operator must pass, whichever it is: `check_*` functions over a plan that holds it."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.engine import driving
from tests.engine.driving import Drive, Step
from tests.engine.kinds import Kind
from tests.migration.drive import segment_from_batch

import midstream as ms
from midstream.algebra.declarations import Catalog
from midstream.algebra.plan import Relation, streams_of
from midstream.algebra.semantics import evaluate
from midstream.algebra.semantics.values import row_identity
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.cluster.local.embedded import StreamProgress
from midstream.cluster.local.live_query import LiveQuery
from midstream.migration.execution import SingleBox
from midstream.operators.base import Operator
from midstream.operators.box import Box
from midstream.operators.changes import ChangesOperator
from midstream.operators.distinct import DeduplicateOperator
from midstream.operators.elements import Elements, empty_elements
from midstream.operators.match import MatchRowsOperator
from midstream.operators.over_stream import OverStreamOperator
from midstream.operators.row_window import RowWindowOperator, SessionWindowOperator
from midstream.operators.sequence import FollowedByOperator
from midstream.operators.slices import SliceOperator
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.plans import Plan, plan_query
from midstream.scheduling.scheduler import Scheduler

Inputs = Mapping[str, pa.Table]
Entry = tuple[Any, int, int]
"""A row's identity and its interval."""


def bound(kind: Kind, inputs: Inputs) -> tuple[Relation, Catalog, Plan]:
    """A kind's query, what it is bound against, and its plan."""
    relation, catalog = driving.question(kind.query, inputs)
    return relation, catalog, plan_query(relation, kind.plan)


def steps_of(relation: Relation, inputs: Inputs, rows: int) -> tuple[Step, ...]:
    """All streams side by side, some rows of each at a time."""
    names = sorted({s.name for s in streams_of(relation)})
    longest = max(inputs[name].num_rows for name in names)
    steps = []
    for start in range(0, longest, rows):
        ranges = {name: (start, min(start + rows, inputs[name].num_rows)) for name in names}
        steps.append(Step({name: (a, b) for name, (a, b) in ranges.items() if a < b}))
    return tuple(steps)


def check_order(kind: Kind, inputs: Inputs) -> None:
    """Results leave in order of their start, and are the oracle's."""
    relation, catalog, plan = bound(kind, inputs)
    for rows in (1, 3, 1000):
        found = driving.run(Drive(plan, steps_of(relation, inputs, rows)), inputs, catalog)
        starts = found["valid_from" if "valid_from" in found.column_names else "ts"].to_pylist()
        assert starts == sorted(starts)
        difference = ms.snapshot_equal(found, evaluate(relation, inputs, catalog))
        assert difference, f"in batches of {rows}: {difference}"


def check_empty_batches(kind: Kind, inputs: Inputs) -> None:
    """An operator that is given nothing gives nothing and remembers nothing."""
    _, catalog, plan = bound(kind, inputs)
    box = Box(plan.physical, catalog.functions)
    for operator, node in zip(box.operators, box.nodes, strict=True):
        for port, child in enumerate(node.inputs):
            given = operator.process(port, empty_elements(child.schema))
            assert given is None or len(given) == 0
        assert sum(state.rows for state in operator.states) == 0


def check_purging(kind: Kind, inputs: Inputs) -> None:
    """After every batch, what is alive in a state is exactly what came and has not ended before the query's frontier.

    The frontier is the least of all the query's registers, or for operators that wait the grid point below it.
    """
    relation, catalog, plan = bound(kind, inputs)
    query, box, taken = recorded_query(plan, catalog)
    streams = {name: StreamProgress(catalog.streams[name]) for name in sorted(query.streams)}
    rows = {name: driving.one_batch(inputs[name]) for name in streams}
    for step in steps_of(relation, inputs, 3):
        for name, (start, end) in step.rows.items():
            query.feed(name, *streams[name].accept(rows[name].slice(start, end - start)))
        for stream in streams.values():
            stream.raise_register()
        query.advance({name: stream.register for name, stream in streams.items()})
        for operator in box.operators:
            if operator.states:
                assert_alive(operator, taken[id(operator)], query.frontier)


def recorded_query(plan: Plan, catalog: Catalog) -> tuple[LiveQuery, Box, dict[int, list[tuple[int, Elements]]]]:
    """A live query whose operators' inputs are written down."""
    query = LiveQuery(plan, catalog.functions)
    box = Box(plan.physical, catalog.functions)
    taken: dict[int, list[tuple[int, Elements]]] = {id(operator): [] for operator in box.operators}
    for operator in box.operators:
        _record(operator, taken[id(operator)])
    query.execution = SingleBox(box, query.release, partial(Scheduler, schedule="dfs"))
    return query, box, taken


def _record(operator: Operator, taken: list[tuple[int, Elements]]) -> None:
    pieces = operator.pieces

    def noted(port: int, batch: Elements) -> Iterator[Elements]:
        taken.append((port, batch))
        return pieces(port, batch)

    operator.pieces = noted  # type: ignore[method-assign]


def assert_alive(operator: Operator, taken: list[tuple[int, Elements]], frontier: int) -> None:
    """Holds an operator's states against all that it has taken in."""
    match operator:
        case DeduplicateOperator():
            _assert_coverage(operator, taken, operator.frontier)
        case RowWindowOperator():
            _assert_last_rows(operator, taken)
        case FollowedByOperator() | SessionWindowOperator() | OverStreamOperator() | MatchRowsOperator():
            pass  # What these may still need depends on other rows; their own tests say so.
        case ChangesOperator():
            _assert_states(operator, taken, operator.done - 1)
        case SliceOperator():
            assert operator.done <= frontier
            _assert_states(operator, taken, operator.done)
        case _:
            assert operator.frontier <= frontier
            _assert_states(operator, taken, operator.frontier)


def _assert_states(operator: Operator, taken: list[tuple[int, Elements]], purged: int) -> None:
    for port, state in _states_by_port(operator):
        expected: Counter[Any] = Counter()
        for at, batch in taken:
            if at == port:
                expected.update(_alive(batch, purged, state, operator))
        found = Counter(_elements(state.alive(purged), state.schema.names))
        assert found == expected, (
            f"{operator.name}, port {port}: {found - expected} too many, {expected - found} missing"
        )
        assert all(segment.latest_to > purged for segment in state.segments), "a segment outlived all of its rows"


def _states_by_port(operator: Operator) -> Iterator[tuple[int, SortedState]]:
    indexes = getattr(operator, "indexes", None)
    for port in range(operator.ports):
        for state in indexes[port] if indexes is not None else [operator.states[port]]:
            yield port, state


def _alive(batch: Elements, purged: int, state: SortedState, operator: Operator) -> list[Entry]:
    batch = batch.where(batch.valid_to > purged)
    if getattr(operator, "nulls_equal", None) is False and not isinstance(operator, SliceOperator):
        # A null key never finds a partner, so it is not kept where it could only be looked up.
        for name in state.key:
            batch = batch.where(batch.columns.column(name).is_valid().to_numpy(zero_copy_only=False))
    return _elements(batch, state.schema.names)


def _elements(batch: Elements, names: list[str]) -> list[Entry]:
    columns = [batch.columns.column(name).to_pylist() for name in names]
    rows = zip(*columns, strict=True) if columns else [()] * len(batch)
    times = zip(batch.valid_from.tolist(), batch.valid_to.tolist(), strict=True)
    return [(row_identity(tuple(row)), *when) for row, when in zip(rows, times, strict=True)]


def _assert_coverage(operator: DeduplicateOperator, taken: list[tuple[int, Elements]], frontier: int) -> None:
    """From the frontier on, each tuple is known to be covered exactly where it has been given."""
    names = operator.schema.names
    found = _instants(_elements(operator.coverage.alive(frontier), names), frontier)
    expected = _instants([e for _, batch in taken for e in _elements(batch, names)], frontier)
    assert found == expected


def _instants(elements: list[Entry], frontier: int) -> set[tuple[Any, int]]:
    return {
        (row, instant) for row, start, end in elements for instant in range(max(start, frontier, -1000), min(end, 1000))
    }


def _assert_last_rows(operator: RowWindowOperator, taken: list[tuple[int, Elements]]) -> None:
    """The rows that no n later ones have closed yet, and at most as many others.

    Those are the last n of each partition, and those after the slice.
    """
    state = operator.kept[0]
    rows = [e for _, batch in taken for e in _elements(batch, state.schema.names)]
    places = [state.schema.names.index(name) for name in state.key]
    early, later = ([e for e in rows if (e[1] < operator.done) is past] for past in (True, False))
    found = _elements(state.alive(BEGINNING), state.schema.names)
    held = _sizes([e for e in found if e[1] < operator.done], places)
    needed = {partition: min(operator.count, n) for partition, n in _sizes(early, places).items()}
    assert all(held[partition] >= n for partition, n in needed.items())
    assert len(found) <= 2 * (len(later) + sum(needed.values()))
    assert not Counter(later) - Counter(found)
    assert not Counter(found) - Counter(rows)


def _sizes(rows: list[Entry], places: list[int]) -> Counter[Any]:
    return Counter(tuple(row[0][place] for place in places) for row in rows)


def check_snapshot_and_restore(kind: Kind, inputs: Inputs) -> None:
    """A query stopped after any batch, its states written and read back into a new box, goes on as if nothing was."""
    relation, catalog, plan = bound(kind, inputs)
    steps = steps_of(relation, inputs, 7)
    expected = driving.run(Drive(plan, steps), inputs, catalog)
    for stop in range(1, len(steps)):
        found = _run_with_restart(plan, catalog, steps, stop, inputs)
        difference = ms.snapshot_equal(found, expected)
        assert difference, f"stopped after {stop} batches: {difference}"


def _run_with_restart(plan: Plan, catalog: Catalog, steps: tuple[Step, ...], stop: int, inputs: Inputs) -> pa.Table:
    query = LiveQuery(plan, catalog.functions)
    streams = {name: StreamProgress(catalog.streams[name]) for name in sorted(query.streams)}
    rows = {name: driving.one_batch(inputs[name]) for name in streams}
    released = [query.table(None)]
    for i, step in enumerate(steps):
        if i == stop:
            query = restarted(query, plan, catalog)
        for name, (start, end) in step.rows.items():
            query.feed(name, *streams[name].accept(rows[name].slice(start, end - start)))
        for stream in streams.values():
            stream.raise_register()
        released.append(query.table(query.advance({n: s.register for n, s in streams.items()})))
    released.append(query.table(query.advance(dict.fromkeys(streams, INFINITY))))
    return pa.concat_tables(released)


def restarted(query: LiveQuery, plan: Plan, catalog: Catalog) -> LiveQuery:
    """A new query that goes on from what the old one remembers, through bytes."""
    written = [
        pickle.dumps([(segment.to_batch(), segment.bucket, segment.born) for segment in state.segments])
        for state in query.execution.states()
    ]
    again = LiveQuery(plan, catalog.functions)
    for state, content in zip(again.execution.states(), written, strict=True):
        state.replace_segments([segment_from_batch(*part) for part in pickle.loads(content)])
    again.execution.restore(query.frontier)
    again.frontier = query.frontier
    again.release.waiting = list(query.release.waiting)
    return again


def check_pickling(kind: Kind, inputs: Inputs) -> None:
    """Plans and segments survive a journey to another process."""
    relation, catalog, plan = bound(kind, inputs)
    shipped = pickle.loads(pickle.dumps(plan))
    assert shipped.physical == plan.physical and shipped.text == plan.text
    query, box, _ = recorded_query(plan, catalog)
    for name in sorted(query.streams):
        stream = StreamProgress(catalog.streams[name])
        query.feed(name, *stream.accept(driving.one_batch(inputs[name])))
    for state in box.states():
        for segment in state.segments:
            copy = pickle.loads(pickle.dumps(segment))
            assert copy.to_batch().equals(segment.to_batch())
            assert np.array_equal(copy.hashes, segment.hashes)
            assert replace(copy, stored=segment.stored, hashes=segment.hashes) == segment
    found = driving.run(Drive(shipped, steps_of(relation, inputs, 9)), inputs, catalog)
    assert ms.snapshot_equal(found, evaluate(relation, inputs, catalog))


def check_closed(kind: Kind, inputs: Inputs) -> None:
    """What has been told that nothing more comes refuses what comes, whatever runs the operators."""
    _, catalog, plan = bound(kind, inputs)
    for schedule in (Scheduler, partial(Scheduler, schedule="bfs")):
        execution = SingleBox(Box(plan.physical, catalog.functions), lambda _: None, schedule)
        execution.advance(INFINITY)
        for source in execution.sources:
            with pytest.raises(ms.InputError, match="was closed"):
                execution.feed(source.stream.alias, empty_elements(source.schema))


CHECKS = (check_order, check_empty_batches, check_purging, check_snapshot_and_restore, check_pickling, check_closed)
