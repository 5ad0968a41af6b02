from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generators import cases

import midstream as ms
from midstream.api import ask
from midstream.cluster.local.embedded import StreamProgress, batches
from midstream.cluster.local.live_query import Release
from midstream.job.task.ingest import reached, source_elements
from midstream.job.task.results import result_table
from midstream.operators.base import Operator
from midstream.operators.box import Box, BoxOutput
from midstream.operators.elements import Elements
from midstream.optimizer.plans import plan_query
from midstream.scheduling import scheduler as schedulers
from midstream.scheduling.break_points import chain, fragments
from midstream.scheduling.executor import Executor
from midstream.scheduling.graph import Eager, QueryGraph
from midstream.scheduling.schedule import Schedule, schedule_of
from midstream.scheduling.scheduler import Scheduler, cut
from midstream.scheduling.tables import BREADTH_FIRST, DEPTH_FIRST, ROUND_ROBIN, batching

TABLES = st.sampled_from([DEPTH_FIRST, BREADTH_FIRST, ROUND_ROBIN, batching(1), batching(2), batching(5)])
NAMES = st.sampled_from(["dfs", "bfs", "rr", "batch:1", "batch:3", "chain"])


@settings(max_examples=25, deadline=None)
@given(case=cases(most_rows=8), strategy=NAMES, rows=st.integers(1, 20))
def test_every_table_and_batch_size_gives_the_oracles_answer(case, strategy, rows):
    found = ms.run(case.query, case.inputs, batch_rows=rows, scheduling=strategy)
    assert ms.snapshot_equal(found, ms.reference(case.query, case.inputs)), strategy


class Stepped:
    """Runs a case with its batches lying in the graph, and changes the schedule between steps at will."""

    def __init__(self, case, draw) -> None:
        self.draw = draw
        question = ask(case.query, case.inputs)
        self.plan = plan_query(question.plan)
        self.box = Box(self.plan.physical)
        self.release = Release()
        self.scheduler = Scheduler(self.box, self.release)
        self.tabled = self.scheduler.tabled
        self.streams = {name: StreamProgress(question.catalog.streams[name]) for name in question.tables}
        self.wires = [(source, wire) for source, (wire,) in self.box.sources]
        self.inputs = question.tables

    def run(self, batch_rows: int):
        for parts in batches(self.streams, self.inputs, batch_rows):
            assert isinstance(parts, dict)
            for name, rows in parts.items():
                self._feed(name, *self.streams[name].accept(rows))
            self._step_and_switch()
            for stream in self.streams.values():
                stream.raise_register()
            self._advance()
        for stream in self.streams.values():
            stream.close()
        self._advance()
        return result_table(self.plan, self.release.release(2**63 - 1))

    def _feed(self, name, rows, ticks) -> None:
        for source, wire in self.wires:
            if source.stream.name == name and len(ticks):
                elements = source_elements(source, rows, ticks)
                if len(elements) == 0:
                    continue
                if wire.operator < 0:
                    self.release(elements)
                    continue
                for piece in cut(elements, 3):
                    self.tabled.nodes[wire.operator].inputs[wire.port].buffer.push(piece)

    def _step_and_switch(self) -> None:
        executor = self.tabled.executor
        while True:
            for _ in range(self.draw(st.integers(1, 6))):
                if not executor.step():
                    return
            executor.schedule = self._schedule()

    def _schedule(self) -> Schedule:
        places = [(node.name, port) for node in self.tabled.nodes for port in range(len(node.inputs))]
        some = st.lists(st.sampled_from(places), max_size=2) if places else st.just([])
        names = st.lists(st.sampled_from([n for n, _ in places]), max_size=2) if places else st.just([])
        return Schedule(
            self.draw(TABLES),
            {name: self.draw(TABLES) for name in self.draw(names)},
            frozenset(self.draw(some)),
        )

    def _advance(self) -> None:
        self.tabled.executor.run()
        registers = {name: stream.register for name, stream in self.streams.items()}
        self.scheduler.advance(reached((source for source, _ in self.wires), registers))


@settings(max_examples=25, deadline=None)
@given(case=cases(most_rows=8), data=st.data())
def test_tables_parts_and_break_nodes_may_change_between_any_two_steps(case, data):
    found = Stepped(case, data.draw).run(data.draw(st.integers(1, 12)))
    assert ms.snapshot_equal(found, ms.reference(case.query, case.inputs))


@settings(max_examples=15, deadline=None)
@given(case=cases(most_rows=8))
def test_the_compiled_form_of_depth_first_does_the_same_in_the_same_order(case):
    def outputs(scheduler) -> tuple[list[Elements], list[str]]:
        question = ask(case.query, case.inputs)
        box, output = Box(plan_query(question.plan).physical), BoxOutput()
        visited: list[str] = []
        for i, operator in enumerate(box.operators):
            # What gives piece by piece processes a batch by way of that too.
            call = "process" if type(operator).pieces is Operator.pieces else "pieces"
            setattr(operator, call, partial(_noting, visited, i, getattr(operator, call)))
        running = scheduler(box, output)
        for number, (source, _) in enumerate(box.sources):
            stream = StreamProgress(question.catalog.streams[source.stream.name])
            for parts in batches({source.stream.name: stream}, question.tables, 4):
                assert isinstance(parts, dict)
                rows, ticks = stream.accept(parts[source.stream.name])
                running.feed(number, source_elements(source, rows, ticks))
        running.advance(2**63 - 1)
        return output.batches, visited

    compiled, first = outputs(Scheduler)
    trace: list[str] = []
    by_table, second = outputs(partial(Scheduler, trace=trace))
    assert len(trace) >= len(second)  # the table did it: only it leaves a trace
    assert first == second
    assert [b.columns.to_pylist() for b in compiled] == [b.columns.to_pylist() for b in by_table]


def _noting(visited, number, process, port, batch):
    visited.append(f"{number}.{port}")
    return process(port, batch)


def test_chain_breaks_where_the_volume_drops_most():
    assert [(f.start, f.end) for f in fragments([1.0, 0.1, 1.0, 1.0])] == [(0, 2), (2, 4)]
    assert [(f.start, f.end) for f in fragments([0.5, 0.9, 0.5])] == [(0, 1), (1, 3)]
    first, second = fragments([0.2, 0.9])
    assert first.slope > second.slope


def memory_of(schedule: Schedule | None) -> tuple[int, list[int]]:
    """The most tuples that waited while a burst came in twice as fast as it could be worked off."""
    graph = QueryGraph()
    given: list[int] = []
    keep = graph.add("keep", Eager(lambda port, item: item), ["S"])
    drop = graph.add("drop", Eager(lambda port, item: item if item % 10 == 0 else None), [keep])
    slow = graph.add("slow", Eager(lambda port, item: item), [drop])
    graph.add("last", Eager(lambda port, item: item), [slow], given.append)
    executor = Executor(graph)
    for i in range(40):
        graph.sources["S"].push(i)
        executor.run()
    if schedule is None:
        chosen = chain(graph)
        executor.schedule = Schedule(DEPTH_FIRST, breaks=chosen.breaks)
        executor.prefer(chosen.priorities)
    else:
        executor.schedule = schedule
    most = 0
    for i in range(40, 140):
        graph.sources["S"].push(i)
        executor.step()
        executor.step()
        most = max(most, graph.waiting())
    executor.run()
    return most, given


def test_chain_keeps_less_in_memory_than_depth_first_and_breadth_first():
    chained, given = memory_of(None)
    depth, same = memory_of(Schedule(DEPTH_FIRST))
    breadth, too = memory_of(Schedule(BREADTH_FIRST))
    assert sorted(given) == sorted(same) == sorted(too)
    assert chained <= depth
    assert chained < breadth


def test_a_shared_tuple_is_freed_when_the_last_reader_has_passed_it():
    graph = QueryGraph()
    given: dict[str, list[int]] = {"a": [], "b": []}
    root = graph.add("root", Eager(lambda port, item: item), ["S"])
    a = graph.add("a", Eager(lambda port, item: item), [root], given["a"].append)
    b = graph.add("b", Eager(lambda port, item: item), [root], given["b"].append)
    for i in range(3):
        graph.sources["S"].push(i)
    while root.more():
        root.execute()
    fork = graph.nodes[1]
    while fork.more():
        fork.execute()
    assert len(root.output) == 3
    for _ in range(3):
        a.execute()
    assert len(root.output) == 3
    b.execute()
    assert len(root.output) == 2
    Executor(graph).run()
    assert len(root.output) == 0
    assert given == {"a": [0, 1, 2], "b": [0, 1, 2]}


def test_a_reader_that_comes_later_sees_what_comes_later():
    graph = QueryGraph()
    early: list[int] = []
    late: list[int] = []
    root = graph.add("root", Eager(lambda port, item: item), ["S"])
    graph.add("early", Eager(lambda port, item: item), [root], early.append)
    graph.sources["S"].push(0)
    root.execute()
    graph.add("late", Eager(lambda port, item: item), [root], late.append)
    graph.sources["S"].push(1)
    Executor(graph).run()
    assert (early, late) == ([0, 1], [1])
    assert graph.waiting() == 0


def test_a_chain_rechooses_while_it_runs(monkeypatch):
    monkeypatch.setattr(schedulers, "RECHAIN_STEPS", 4)
    table = ms.run("SELECT v FROM A [RANGE 3] WHERE v > 2", {"A": _numbers(40)}, batch_rows=4, scheduling="chain")
    assert sorted(table["v"].to_pylist()) == list(range(3, 40))


def _numbers(count: int) -> pa.Table:
    return pa.table({"ts": list(range(count)), "v": list(range(count))})


def test_an_unknown_strategy_is_refused():
    with pytest.raises(ms.QueryError, match="unknown scheduling strategy"):
        ms.run("SELECT v FROM A", {"A": _numbers(3)}, scheduling="fastest")
    assert schedule_of(Schedule(ROUND_ROBIN)).name == "rr"
