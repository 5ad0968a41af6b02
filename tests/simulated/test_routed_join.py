"""Routed joins on simulated machines give the oracle's answer, whatever happens to plans, messages and machines."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.distribution.routed.drawing import draw_change
from tests.distribution.routed.joins import Joined, draw_join, draw_plan

import midstream as ms
from midstream.algebra.placements import Placement
from midstream.lab.papers.node_operator_sets.calls import Directed, LineMeasured, Measured
from midstream.lab.papers.node_operator_sets.cost import Costs
from midstream.lab.papers.node_operator_sets.distributed import plan_of
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.network import node_per_stream
from midstream.lab.papers.node_operator_sets.node_sets import node_sets
from midstream.lab.papers.node_operator_sets.routed_run import RoutedRun, local_rows
from midstream.lab.papers.node_operator_sets.statistics import StreamStatistics
from midstream.lab.simulated_cluster.links import SimulatedLink
from midstream.optimizer.sites.links import Link as Line

INTERVAL = 20.0
FAULTY = SimulatedLink(latency=2, jitter=5, loss=0.1, duplication=0.1, reordering=0.2)


def draw_batches(random: Random, joined: Joined, count: int):
    """Every stream cut into batches anywhere: batches of different streams do not cover the same time."""
    query = joined.query
    batches: list[dict] = [{} for _ in range(count)]
    for stream in query.streams:
        table = joined.tables[stream]
        cuts = [0, *sorted(random.randint(0, table.num_rows) for _ in range(count - 1)), table.num_rows]
        for number in range(count):
            part = table.slice(cuts[number], cuts[number + 1] - cuts[number])
            batches[number][stream] = local_rows(query, stream, part, "ts")
    return batches


def make_run(random: Random, joined: Joined, mode: str, link: SimulatedLink, seed: int) -> RoutedRun:
    query = joined.query
    statistics = {s: StreamStatistics(random.choice([1, 5, 20]), 5, 50, 0.3) for s in query.streams}
    costs = Costs(1e-3, 1e-3, node_per_stream(query.streams, Line(1, 1e4)))
    plan = draw_plan(random, query.conditions)
    if mode == "distributed":  # repairs start from a greedy plan
        plan = greedy_plan(query.conditions, statistics, costs)
    return RoutedRun(query, plan, statistics, costs, mode, seed, link)


def crash_and_restart(run: RoutedRun, node: str, at: float, pause: float) -> None:
    run.simulation.at(at, lambda: run.simulation.crash(node))
    run.simulation.at(at + pause, lambda: run.simulation.restart(node))


def check(
    seed: int, count: int, rows: int, mode: str, link: SimulatedLink, crashes: int = 0, changes: int = 2
) -> RoutedRun:
    random = Random(seed)
    # Where plans change, windows are wide and changes early: later batches must meet rows that were copied.
    joined = draw_join(random, count, rows, window=rows if changes else 6)
    run, batches = (
        make_run(random, joined, mode, link, seed),
        random.randint(8, 12) if changes else random.randint(2, 8),
    )
    run.feed(draw_batches(random, joined, batches), INTERVAL)
    span = batches * INTERVAL
    current = dict(run.statistics)
    for _ in range(changes):
        at = random.uniform(0, span * 0.7)
        if mode == "centralized" and random.random() < 0.7:
            run.event(run.leader, Directed(draw_plan(random, run.query.conditions)), at)
        elif random.random() < 0.4:
            sender, receiver = random.sample(run.query.streams, 2)
            run.event(sender, LineMeasured(receiver, Line(random.choice([0.1, 40]), random.choice([10, 1e5]))), at)
        else:
            stream = random.choice(run.query.streams)
            current[stream] = draw_change(random, current[stream])
            run.event(stream, Measured(current[stream]), at)
    # A crash may lose what comes from outside; only machines between arrivals are hit.
    for _ in range(crashes):
        at = random.randrange(batches) * INTERVAL + random.uniform(1, INTERVAL / 2)
        crash_and_restart(run, random.choice([*run.query.streams, "results"]), at, random.uniform(0, INTERVAL / 3))
    said = f"seed {seed}, {mode}, {run.plan}, {joined.text}"
    assert run.run(50, 50_000), f"unfinished: {said}"
    same = ms.snapshot_equal(run.table(), ms.reference(joined.text, joined.tables))
    assert same, f"{same}\n{said}"
    assert run.table().num_rows == ms.reference(joined.text, joined.tables).num_rows, said
    return run


def check_in_one_plan(run: RoutedRun) -> None:
    """All members have ended up in one plan, without anything left of another."""
    run.simulation.run(until=run.simulation.now + 100)
    for _ in range(60):
        run.simulation.run(until=run.simulation.now + 500)
        members = run.members()
        if not any(m.track.move or m.draft for m in members.values()):
            break
    assert {m.track.move for m in members.values()} == {None}
    assert len({m.track.epoch for m in members.values()}) == 1
    if run.mode == "centralized":
        lead = members[run.leader].lead
        assert lead is not None and lead.coordinator is not None
        plan = lead.coordinator.plan
    else:
        plan = plan_of({m.stream: m.base for m in members.values() if m.base}, run.query.streams)
    latest = {node: m.track.shares[max(m.track.shares)].operators for node, m in members.items()}
    assert latest == node_sets(plan, run.costs.network)


@pytest.mark.parametrize("seed", range(6))
def test_joins_of_few_streams_agree_with_the_oracle(seed):
    check(seed, 3 + seed % 2, 12, "centralized", SimulatedLink(latency=2), changes=0)


@pytest.mark.parametrize(("seed", "count"), [(1, 5), (2, 6), (3, 7), (4, 8)])
def test_joins_of_many_streams_agree_with_the_oracle(seed, count):
    check(seed, count, 5, "centralized", SimulatedLink(latency=2, jitter=9), changes=0)


@pytest.mark.parametrize("mode", ["centralized", "distributed"])
@pytest.mark.parametrize("seed", range(10, 13))
def test_plans_change_under_way(seed, mode):
    check_in_one_plan(check(seed, 3 + seed % 3, 10, mode, SimulatedLink(latency=2, jitter=3)))


@pytest.mark.parametrize("mode", ["centralized", "distributed"])
@pytest.mark.parametrize("seed", range(20, 23))
def test_lost_messages_crashes_and_concurrent_changes_do_no_harm(seed, mode):
    check_in_one_plan(check(seed, 3 + seed % 3, 9, mode, FAULTY, crashes=2, changes=4))


def test_migrations_copy_windows():
    """The other tests would prove little if no migration moved rows."""
    run = check(11, 4, 10, "centralized", SimulatedLink(latency=2))
    assert run.meter.rows["Copy"] > 0 and max(m.track.epoch for m in run.members().values()) > 0


def run_with_a_worse_line(
    seed: int, link: SimulatedLink, mode: str = "centralized"
) -> tuple[RoutedRun, JoinPlan, JoinPlan]:
    """A run in which one line becomes far slower: with the plan before, and the one that is greedy afterwards."""
    random = Random(seed)
    joined = draw_join(random, 3 + seed % 3, 10, window=10)
    query = joined.query
    statistics = {s: StreamStatistics(random.choice([1, 5, 20]), 5, 50, 0.3) for s in query.streams}
    costs = Costs(1e-3, 1e-3, node_per_stream(query.streams, Line(1, 1e4)))
    before = greedy_plan(query.conditions, statistics, costs)
    slow = Line(40, 10)
    # The first rows of a head travel by the line that gets worse.
    sender, receiver = before.heads[0].head, before.heads[0].order[0]
    if before.heads[0].placements[0] is Placement.SOURCE:
        sender, receiver = receiver, sender
    after = greedy_plan(
        query.conditions, statistics, replace(costs, network=costs.network.with_lines({(sender, receiver): slow}))
    )
    run = RoutedRun(query, before, statistics, costs, mode, seed, link)
    run.feed(draw_batches(random, joined, 9), INTERVAL)
    at = 2.5 * INTERVAL
    run.simulation.at(at, lambda: run.simulation.connect(sender, receiver, replace(link, latency=slow.latency)))
    run.event(sender, LineMeasured(receiver, slow), at + 1)
    assert run.run(50, 50_000), f"unfinished: seed {seed}"
    same = ms.snapshot_equal(run.table(), ms.reference(joined.text, joined.tables))
    assert same, f"seed {seed}: {same}"
    assert run.table().num_rows == ms.reference(joined.text, joined.tables).num_rows
    return run, before, after


@pytest.mark.parametrize("link", [SimulatedLink(latency=2, jitter=3), FAULTY], ids=["jitter", "faulty"])
@pytest.mark.parametrize("seed", range(30, 33))
def test_a_line_that_gets_worse_moves_the_placement(seed, link):
    run, before, after = run_with_a_worse_line(seed, link)
    check_in_one_plan(run)
    lead = run.members()[run.leader].lead
    assert lead is not None and lead.coordinator is not None
    assert lead.coordinator.plan == after != before
    decision = lead.coordinator.decisions[-1]
    assert "bytes from" in decision and "take 40 s, 10 bytes/s, not 1 s" in decision


@pytest.mark.parametrize("link", [SimulatedLink(latency=2, jitter=3), FAULTY], ids=["jitter", "faulty"])
@pytest.mark.parametrize("seed", range(30, 33))
def test_a_line_that_gets_worse_moves_the_placement_by_repairs_too(seed, link):
    """The nodes find by messages the plan that the leader would have made."""
    run, before, after = run_with_a_worse_line(seed, link, "distributed")
    check_in_one_plan(run)
    nodes = {member.stream: member.base for member in run.members().values() if member.base}
    assert plan_of(nodes, after.streams) == after != before


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["centralized", "distributed"])
@pytest.mark.parametrize("seed", range(1000, 1080))
def test_many_runs_with_faults(seed, mode):
    random = Random(seed)
    count = random.choice([3, 4, 5, 6, 8])
    check_in_one_plan(check(seed, count, 9 if count < 6 else 5, mode, FAULTY, crashes=3, changes=5))


def test_the_tables_of_the_joins_are_not_all_empty():
    """The other tests would prove little over joins that find nothing."""
    found = []
    for seed, count in [*((s, 3 + s % 2) for s in range(6)), (1, 5), (2, 6), (3, 7), (4, 8)]:
        joined = draw_join(Random(seed), count, 12 if count < 5 else 5)
        found.append(ms.reference(joined.text, joined.tables).num_rows > 0)
    assert sum(found) >= 7
