from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.algebra.time import BEGINNING
from midstream.lab.mill.enhanced import arcs_of
from midstream.lab.mill.strictly_waiting import Difference, FollowsEarliestUnused, FollowsMostRecent
from midstream.lab.mill.virtual_time import VirtualRun, VirtualSource, stamped
from midstream.lab.mill.waiting import Pass, SlidingCount, Tuple, Union, Waiting, WindowJoin
from midstream.scheduling.graph import GraphNode, QueryGraph
from midstream.scheduling.schedule import Schedule, schedule_of
from midstream.scheduling.tables import BREADTH_FIRST, DEPTH_FIRST, ROUND_ROBIN, batching

TABLES = [DEPTH_FIRST, BREADTH_FIRST, ROUND_ROBIN, batching(1), batching(3)]
MODES = ["none", "heartbeats", "punctuation", "on demand"]


def everything(item: Tuple) -> Tuple:
    return item


def odd(item: Tuple) -> Tuple | None:
    return item if item.value % 2 else None


class Built:
    """Two nested unions over three sources, a select before each input, and a count of the last source if wanted."""

    def __init__(self, change: Callable[[Tuple], Tuple | None] = everything, slide: int | None = None) -> None:
        self.graph = QueryGraph()
        self.collected: list[Tuple] = []
        selects = {name: self.graph.add(f"σ{name}", Pass(change), [name]) for name in "abc"}
        third: GraphNode = selects["c"]
        if slide is not None:
            third = self.graph.add("Σ", SlidingCount(slide), [third])
        lower = self.graph.add("U1", Union(2), [selects["a"], selects["b"]])
        between = self.graph.add("σu", Pass(everything), [lower])
        self.graph.add("U2", Union(2), [between, third], self.sink)
        self.run: VirtualRun | None = None

    def sink(self, item: Tuple) -> None:
        if not item.punctuation:
            self.collected.append(item)
        if self.run is not None:
            self.run.sink(item)


def test_arcs_lead_from_sources_and_waiting_operators_past_everything_else():
    arcs = arcs_of(Built(slide=5).graph)
    shown = [(a.origin if isinstance(a.origin, str) else a.origin.name, a.target.name, a.port) for a in arcs]
    assert shown == [("c", "Σ", 0), ("a", "U1", 0), ("b", "U1", 1), ("U1", "U2", 0), ("Σ", "U2", 1)]
    assert [len(arc.way) for arc in arcs] == [2, 2, 2, 2, 1]


def test_nested_unions_are_woken_by_the_sources_they_starve_for():
    # a1 comes alone. σa yields to U1, which starves for b: back to σb, and at the source b is asked: U1 runs and takes
    # a1, σu passes it, U2 starves for c: the source c is asked, U2 runs and takes a1. Five operators, two questions.
    built = Built()
    trace: list[str] = []
    sources = {"a": VirtualSource(stamped([100])), "b": VirtualSource([]), "c": VirtualSource([])}
    built.run = VirtualRun(built.graph, sources, cost=10, trace=trace)
    built.run.run()
    assert trace == ["σa", "U1", "U1", "σu", "U2", "U2"]
    assert [item.time for item in built.collected] == [100]


def test_punctuation_wakes_the_same_operators_by_way_of_all_others():
    built = Built()
    trace: list[str] = []
    sources = {"a": VirtualSource(stamped([100])), "b": VirtualSource([]), "c": VirtualSource([])}
    built.run = VirtualRun(built.graph, sources, cost=10, mode="punctuation", trace=trace)
    built.run.run()
    # σb and σc have to pass the punctuations. U1 and U2 take the tuple, which is older, then the punctuation: U2 at
    # once, U1 when control comes back to it. It says no more than the tuple has said, so it goes no further.
    assert trace == ["σa", "U1", "σb", "U1", "σu", "U2", "σc", "U2", "U2", "U1"]


def test_without_timestamps_on_demand_a_union_waits_idly():
    built = Built()
    sources = {"a": VirtualSource(stamped([1, 2])), "b": VirtualSource(stamped([3])), "c": VirtualSource([])}
    built.run = VirtualRun(built.graph, sources, cost=1, mode="none")
    built.run.run()
    assert built.collected == []


def test_a_value_does_not_pass_a_break_node_that_holds_tuples():
    built = Built()
    by_name = {node.name: node for node in built.graph.nodes}
    built.graph.set_break(by_name["σu"])
    arc = next(arc for arc in arcs_of(built.graph) if arc.target.name == "U2" and arc.port == 0)
    assert arc.clear
    by_name["U1"].emit(Tuple(5, 5))
    assert not arc.clear


def test_simultaneous_tuples_do_not_wait_for_each_other():
    graph, given = QueryGraph(), list[Tuple]()
    union = graph.add("U", Union(2), ["a", "b"], given.append)
    for name in "aabb":
        graph.sources[name].push(Tuple(7, 7, name))
    for _ in range(4):
        union.execute()
    assert [item.value for item in given] == ["a", "a", "b", "b"]
    assert not union.more()


def test_a_second_waits_until_the_firsts_are_strictly_past_it():
    graph, given = QueryGraph(), list[Tuple]()
    node = graph.add("seq", FollowsMostRecent(), ["a", "b"], given.append)
    graph.sources["a"].push(Tuple(1, 1, "a1"))
    graph.sources["b"].push(Tuple(5, 5, "b5"))
    node.execute()
    assert not node.more()
    assert isinstance(node.logic, FollowsMostRecent)
    node.logic.raise_register(0, 5)
    assert not node.more()
    graph.sources["a"].push(Tuple(5, 5, "a5"))
    node.execute()
    node.logic.raise_register(0, 6)
    node.execute()
    assert [item.value for item in given] == [("a5", "b5")]


def test_a_join_pairs_in_order_and_forgets_what_is_out_of_reach():
    graph, given = QueryGraph(), list[Tuple]()
    join = WindowJoin(10)
    node = graph.add("join", join, ["a", "b"], given.append)
    for name, times in {"a": [1, 20], "b": [5, 40]}.items():
        for time in times:
            graph.sources[name].push(Tuple(time, time, "k"))
    while node.more():
        node.execute()
    assert [item.time for item in given] == [5]
    assert join.windows == ([Tuple(20, 20, "k")], [])


arrivals = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3)), max_size=12)


def watched(graph: QueryGraph) -> None:
    """Checks at every take that no promise was broken and at every raise that none is lowered."""
    for node in graph.nodes:
        if isinstance(node.logic, Waiting):
            _watch(node, node.logic)


def _watch(node: GraphNode, logic: Waiting) -> None:
    original = logic.step

    def step(inputs, emit):
        before = [logic.register(port, inputs) for port in range(len(inputs))]
        for port, cursor in enumerate(inputs):
            if len(cursor):
                assert cursor.head().time >= logic.raised[port], f"{node.name}: a promise was broken"
        taken = original(inputs, emit)
        after = [logic.register(port, inputs) for port in range(len(inputs))]
        assert all(a >= b for a, b in zip(after, before, strict=True)), f"{node.name}: a register was lowered"
        return taken

    logic.step = step  # type: ignore[method-assign]


@settings(max_examples=80, deadline=None)
@given(
    streams=st.tuples(arrivals, arrivals, arrivals),
    table=st.sampled_from(TABLES),
    mode=st.sampled_from(MODES),
    slide=st.none() | st.integers(5, 60),
    cost=st.integers(1, 15),
    breaks=st.frozensets(st.sampled_from(["U1", "σu", "U2"]), max_size=2),
)
def test_registers_never_fall_never_lie_and_output_stays_in_order(streams, table, mode, slide, cost, breaks):
    built = Built(odd, slide)
    watched(built.graph)
    sources = {
        name: VirtualSource(stamped([t for t, _ in sorted(rows)], [v for _, v in sorted(rows)]), heartbeat=40)
        for name, rows in zip("abc", streams, strict=True)
    }
    built.run = VirtualRun(built.graph, sources, cost=cost, mode=mode, schedule=Schedule(table, breaks=breaks))
    built.run.run()
    times = [item.time for item in built.collected]
    assert times == sorted(times)
    if mode in ("on demand", "punctuation"):
        expected = [t for rows in streams[:2] for t, v in rows if v % 2]
        third = [t for t, v in streams[2] if v % 2]
        if slide is None:
            assert sorted(times) == sorted([*expected, *third])
        else:
            # The last slide may still be open when the streams end, and hold back what is newer than its tuples.
            assert set(times) <= {*expected, *(t - t % slide + slide for t in third)}


@settings(max_examples=60, deadline=None)
@given(data=st.data(), mode=st.sampled_from(MODES), table=st.sampled_from(TABLES))
def test_external_timestamps_hold_their_declared_skew(data, mode, table):
    skew, newest, rows = 20, 0, {name: list[tuple[int, Tuple]]() for name in "abc"}
    last = dict.fromkeys("abc", 0)
    for arrival in sorted(data.draw(st.lists(st.integers(0, 300), max_size=25))):
        name = data.draw(st.sampled_from("abc"))
        time = max(last[name], newest - skew, data.draw(st.integers(arrival - skew, arrival)))
        last[name], newest = time, max(newest, time)
        rows[name].append((arrival, Tuple(time, arrival, 1)))
    built = Built()
    watched(built.graph)
    sources = {name: VirtualSource(listed, "external", skew, heartbeat=30) for name, listed in rows.items()}
    built.run = VirtualRun(built.graph, sources, cost=3, mode=mode, schedule=Schedule(table))
    built.run.run()
    times = [item.time for item in built.collected]
    assert times == sorted(times)
    if mode in ("on demand", "punctuation"):
        # Everything that the declared skew makes final has left, and nothing else has to.
        due = [item.time for listed in rows.values() for _, item in listed if item.time <= newest - skew]
        assert len(times) >= len(due)


def test_a_stream_with_latent_timestamps_can_promise_nothing():
    built = Built()
    sources = {name: VirtualSource([], "latent") for name in "abc"}
    run = VirtualRun(built.graph, sources, cost=1)
    assert run.progress("a") is None
    external = VirtualRun(Built().graph, {name: VirtualSource([], "external") for name in "abc"}, cost=1)
    assert external.progress("a") is None
    assert all(s.latest == BEGINNING for s in external.sources.values())
    assert schedule_of("dfs").table is DEPTH_FIRST


rows = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2)), max_size=14)


def most_recent(firsts, seconds):
    earlier = [[a for a in firsts if a[0] <= b[0]] for b in seconds]
    return [(b[0], (kept[-1][1], b[1])) for kept, b in zip(earlier, seconds, strict=True) if kept]


def earliest_unused(firsts, seconds):
    unused, found = list(firsts), []
    for time, value in seconds:
        if unused and unused[0][0] <= time:
            found.append((time, (unused.pop(0)[1], value)))
    return found


def difference(left, right):
    rest, found = list(right), []
    for row in left:
        if row in rest:
            rest.remove(row)
        else:
            found.append(row)
    return found


@settings(max_examples=80, deadline=None)
@given(
    streams=st.tuples(rows, rows),
    table=st.sampled_from(TABLES),
    cost=st.integers(1, 9),
    kind=st.sampled_from(
        [(FollowsMostRecent, most_recent), (FollowsEarliestUnused, earliest_unused), (Difference, difference)]
    ),
)
def test_operators_that_wait_strictly_give_what_they_mean_and_are_woken_on_demand(streams, table, cost, kind):
    made, meaning = kind
    left, right = (sorted(rows, key=lambda row: row[0]) for rows in streams)
    graph, given = QueryGraph(), list[Tuple]()
    node = graph.add("strict", made(), ["a", "b"], given.append)
    watched(graph)
    sources = {
        name: VirtualSource(stamped([t for t, _ in kept], [v for _, v in kept]))
        for name, kept in (("a", left), ("b", right))
    }
    VirtualRun(graph, sources, cost=cost, mode="on demand", schedule=Schedule(table)).run()
    # Only what is simultaneous with the end may still wait: nobody can be strictly past it yet.
    last = max((time for time, _ in [*left, *right]), default=0)
    assert all(cursor.head().time == last for cursor in node.inputs if len(cursor))
    assert isinstance(node.logic, Waiting)
    for port in range(2):
        node.logic.raise_register(port, last + 1)
    while node.more():
        node.execute()
    found = [(item.time, item.value) for item in given if not item.punctuation]
    assert [time for time, _ in found] == sorted(time for time, _ in found)
    expected = meaning(left, right)
    if made is Difference:
        assert sorted(found) == sorted(expected)
    else:
        assert found == expected
