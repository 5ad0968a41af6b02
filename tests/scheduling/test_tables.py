"""The trace of operators, worked out by hand from the rules, for the shapes of the paper's tables 1 to 3."""

from __future__ import annotations

import pytest

from midstream.errors import QueryError
from midstream.scheduling.executor import Executor
from midstream.scheduling.graph import Eager, GraphNode, QueryGraph
from midstream.scheduling.schedule import Schedule, schedule_of
from midstream.scheduling.tables import BREADTH_FIRST, DEPTH_FIRST, ROUND_ROBIN, batching, table_named


def passing(port: int, item: object) -> object:
    return item


class Path:
    """Table 1: select, first sum, second sum; as many tuples as asked for lie before the first."""

    def __init__(self, schedule: str | Schedule, tuples: int = 3) -> None:
        self.graph = QueryGraph()
        self.given: list[int] = []
        select = self.graph.add("σ", Eager(passing), ["S"])
        first = self.graph.add("Σ1", Eager(passing), [select])
        self.graph.add("Σ2", Eager(passing), [first], self.given.append)
        for i in range(tuples):
            self.graph.sources["S"].push(i)
        self.trace: list[str] = []
        self.executor = Executor(self.graph, schedule_of(schedule), self.trace)

    def run(self) -> str:
        self.executor.run()
        assert self.given == sorted(self.given)
        return " ".join(self.trace)


def test_depth_first_takes_each_tuple_to_the_end_of_the_path():
    assert Path("dfs").run() == "σ Σ1 Σ2 σ Σ1 Σ2 σ Σ1 Σ2"


def test_breadth_first_empties_an_input_before_it_moves_on():
    assert Path("bfs").run() == "σ σ σ Σ1 Σ1 Σ1 Σ2 Σ2 Σ2"


def test_round_robin_empties_inputs_and_leaves():
    assert Path("rr").run() == "σ σ σ Σ1 Σ1 Σ1 Σ2 Σ2 Σ2"


def test_batching_takes_k_tuples_and_not_one_more():
    assert Path("batch:2").run() == "σ σ Σ1 Σ1 Σ2 Σ2 σ Σ1 Σ2"
    assert Path("batch:1").run() == Path("dfs").run()


def test_a_break_node_ends_one_fragment_and_starts_another():
    # Table 2: Σ1 writes as to a sink, so it only ever encores or goes back; Σ2 is source and sink at once.
    assert Path(Schedule(DEPTH_FIRST, breaks=frozenset({"Σ2"}))).run() == "σ Σ1 σ Σ1 σ Σ1 Σ2 Σ2 Σ2"
    assert Path(Schedule(BREADTH_FIRST, breaks=frozenset({"Σ2"}))).run() == "σ σ σ Σ1 Σ1 Σ1 Σ2 Σ2 Σ2"


def test_an_operator_that_gives_nothing_is_asked_again_before_going_back():
    graph = QueryGraph()
    trace: list[str] = []
    given: list[int] = []
    select = graph.add("σ", Eager(lambda port, item: item if item % 2 else None), ["S"])
    graph.add("Σ", Eager(passing), [select], given.append)
    for i in range(4):
        graph.sources["S"].push(i)
    Executor(graph, trace=trace).run()
    assert " ".join(trace) == "σ σ Σ σ σ Σ"
    assert given == [1, 3]


def forked(schedule: str | Schedule) -> tuple[str, dict[str, list[int]], QueryGraph]:
    graph = QueryGraph()
    trace: list[str] = []
    given: dict[str, list[int]] = {"Σ1": [], "Σ2": []}
    select = graph.add("σ", Eager(passing), ["S"])
    for name, sink in given.items():
        graph.add(name, Eager(passing), [select], sink.append)
    for i in range(2):
        graph.sources["S"].push(i)
    Executor(graph, schedule_of(schedule), trace).run()
    return " ".join("fork" if name.startswith("fork") else name for name in trace), given, graph


def test_a_fork_runs_its_branches_in_turn_under_depth_first():
    # Table 3, with a row for each branch.
    trace, given, _ = forked("dfs")
    assert trace == "σ fork Σ1 Σ2 σ fork Σ1 Σ2"
    assert given == {"Σ1": [0, 1], "Σ2": [0, 1]}


def test_a_fork_delivers_all_before_its_branches_run_under_breadth_first():
    trace, given, _ = forked("bfs")
    assert trace == "σ σ fork fork Σ1 Σ1 Σ2 Σ2"
    assert given == {"Σ1": [0, 1], "Σ2": [0, 1]}


def test_round_robin_breaks_a_fork_into_paths():
    trace, given, graph = forked("rr")
    assert trace == "σ σ fork fork Σ1 Σ1 Σ2 Σ2"
    assert given == {"Σ1": [0, 1], "Σ2": [0, 1]}
    assert {(node.name, port) for node, port in graph.breaks} == {("Σ1", 0), ("Σ2", 0)}


class Ordered:
    """A union that needs a tuple on every input, as before there are registers."""

    def more(self, inputs):
        return all(map(len, inputs))

    def step(self, inputs, emit):
        if not self.more(inputs):
            return 0
        port = min(range(len(inputs)), key=lambda i: (inputs[i].head(), i))
        emit(inputs[port].take())
        return 1

    def starving(self, inputs):
        return next((i for i, cursor in enumerate(inputs) if not len(cursor)), 0)


def nested_unions(schedule: str, sources: dict[str, list[int]]) -> tuple[str, list[int]]:
    """U2(U1(a, b), c), with a select before each input."""
    graph = QueryGraph()
    trace: list[str] = []
    given: list[int] = []
    selects: dict[str, GraphNode] = {name: graph.add(f"σ{name}", Eager(passing), [name]) for name in sources}
    lower = graph.add("U1", Ordered(), [selects["a"], selects["b"]])
    graph.add("U2", Ordered(), [lower, selects["c"]], given.append)
    for name, times in sources.items():
        for time in times:
            graph.sources[name].push(time)
    Executor(graph, schedule_of(schedule), trace).run()
    return " ".join(trace), given


def test_backtracking_from_nested_unions_goes_to_the_feeder_of_the_first_empty_input():
    # σa yields: U1, which lacks b: back to σb, which has a tuple: encore. U1 now goes on, U2 lacks c: back to σc.
    # U2 takes 1 and lacks its first input: back to U1, which lacks a: back to σa, whose 4 lets U1 give 2. U2 takes it.
    # Then b is lacking, then c: 3 leaves before 4. In the end a is empty and nothing can go on, though 5 and 6 wait.
    trace, given = nested_unions("dfs", {"a": [1, 4], "b": [2, 6], "c": [3, 5]})
    assert trace == "σa U1 σb U1 U2 σc U2 σa U1 U2 σb U1 U2 σc U2"
    assert given == [1, 2, 3, 4]


def test_breadth_first_empties_every_select_on_the_way():
    trace, given = nested_unions("bfs", {"a": [1, 4], "b": [2, 6], "c": [3, 5]})
    assert trace == "σa σa U1 σb σb U1 U1 U1 U2 σc σc U2 U2 U2 U2"
    assert given == [1, 2, 3, 4]


def test_parts_of_a_graph_follow_their_own_tables():
    path = Path(Schedule(DEPTH_FIRST, parts={"σ": BREADTH_FIRST}))
    assert path.run() == "σ σ σ Σ1 Σ2 Σ1 Σ2 Σ1 Σ2"


def test_tables_are_found_by_name_and_printed():
    assert [table_named(n).name for n in ("dfs", "bfs", "rr", "batch:7")] == ["dfs", "bfs", "rr", "batch:7"]
    assert "inner: forward if yield; else encore if more; else backtrack" in str(DEPTH_FIRST)
    assert "sink: encore if more; else exit" in str(ROUND_ROBIN)
    assert "encore if more and fewer than 3 taken" in str(batching(3))


@pytest.mark.parametrize("name", ["fifo", "batch:", "batch:x", "batch:0", "batch:-1", ""])
def test_what_is_no_table_is_refused(name):
    with pytest.raises(QueryError, match="scheduling strategy|at least one tuple"):
        schedule_of(name)
