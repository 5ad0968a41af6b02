from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from tests.distribution.routed.drawing import draw_case, draw_change, draw_line, names

from midstream.lab.papers.node_operator_sets.centralized import Coordinator
from midstream.lab.papers.node_operator_sets.cost import Costs, violation
from midstream.lab.papers.node_operator_sets.distributed import (
    line_triggered,
    plan_of,
    received,
    repairing_nodes,
    triggered,
)
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.join_plan import head_plan
from midstream.lab.papers.node_operator_sets.modification import Setting, affected_nodes
from midstream.lab.papers.node_operator_sets.network import Relined, node_per_stream
from midstream.lab.papers.node_operator_sets.node_sets import head_sets, node_sets
from midstream.lab.papers.node_operator_sets.query_shapes import clique
from midstream.lab.papers.node_operator_sets.repair import Begin, Compare, Host, Message, Relay, Settle
from midstream.lab.papers.node_operator_sets.statistics import StreamStatistics
from midstream.lab.papers.node_operator_sets.wire import from_json, to_json
from midstream.optimizer.sites.links import Link


def modify(nodes, stream, own, setting, random, seen=None, trigger=None):
    """Delivers messages in any order until none is left."""
    nodes, before = dict(nodes), nodes[stream].own
    trigger = trigger or (line_triggered if isinstance(own, Relined) else triggered)
    nodes[stream], sent = trigger(nodes[stream], own, setting)
    queue = list(sent)
    while queue:
        message = queue.pop(random.randrange(len(queue)))
        if seen is not None:
            seen.append(message)
        node = nodes[message.to]
        nodes[message.to], more = received(node, message, setting, before if message.to == stream else node.own)
        queue += more
    return nodes


def finished(nodes, starter):
    """What the starter tells all nodes at the end."""
    orders = nodes[starter].orders
    return {s: replace(node, orders=orders, received=0, sent={}) for s, node in nodes.items()}


def check_agreement(random, count, changes=3, lines=0.0):
    conditions, statistics, costs = draw_case(random, count)
    setting = Setting(conditions, costs)
    coordinator = Coordinator(greedy_plan(conditions, statistics, costs), statistics)
    nodes = repairing_nodes(coordinator.plan, statistics, setting)
    for _ in range(changes):
        stream, receiver = random.sample(conditions.streams, 2)
        if random.random() < lines:
            line = draw_line(random)
            change: object = Relined(stream, receiver, line)
            coordinator = coordinator.with_line(stream, receiver, line, setting)
        else:
            change = own = draw_change(random, coordinator.statistics[stream])
            coordinator = coordinator.with_report(stream, own)
        central = coordinator.modified(setting)
        nodes = modify(nodes, stream, change, setting, random)
        assert plan_of(nodes, conditions.streams) == central.plan
        assert {s: node.node_set for s, node in nodes.items()} == central.sets
        starter = nodes[stream]
        assert not starter.open and not any(node.waiting for node in nodes.values())
        assert {s: n for s, n in starter.sent.items() if n} == {s: n.received for s, n in nodes.items() if n.received}
        assert set(central.affected) <= set(starter.sent)
        network = costs.network.with_lines(coordinator.lines)
        assert violation(central.plan, coordinator.statistics, replace(costs, network=network), conditions) is None
        nodes = finished(nodes, stream)
        coordinator = coordinator.using(central.plan)


def test_centralized_and_distributed_modification_agree():
    random = Random(17)
    for _ in range(200):
        check_agreement(random, random.choice([3, 3, 4, 4, 5, 6]))


def test_both_agree_after_changes_of_lines_too():
    random = Random(19)
    for _ in range(150):
        check_agreement(random, random.choice([2, 3, 3, 4, 4, 5, 6]), changes=4, lines=0.6)


@pytest.mark.slow
def test_centralized_and_distributed_modification_agree_100_000_times():
    """Ways of 8 streams take most of the time and are drawn less often, for some 5,000 changes."""
    random, counts = Random(18), [3] * 8 + [4] * 6 + [5] * 3 + [6, 7, 8]
    for _ in range(20_000):
        check_agreement(random, random.choice(counts), changes=5, lines=random.choice([0.0, 0.5]))


def test_states_and_messages_survive_being_written_down():
    random = Random(2)
    conditions, statistics, costs = draw_case(random, 5)
    setting = Setting(conditions, costs)
    nodes = repairing_nodes(greedy_plan(conditions, statistics, costs), statistics, setting)
    seen: list = []
    nodes = modify(nodes, "S2", statistics["S2"].grown(statistics["S2"].rate * 9), setting, random, seen)
    for value in [*seen, *nodes.values()]:
        assert from_json(json.loads(json.dumps(to_json(value)))) == value


def test_the_third_example_is_what_modification_does_to_the_sets():
    """S2 becomes so dear that S1's rows meet S3 first, at their source."""
    streams = names(3)
    costs = Costs(1e-6, 1e-6, node_per_stream(streams, Link(0.005, 128_000)))
    setting = Setting(clique(streams), costs)
    statistics = {
        "S1": StreamStatistics(100, 50, 150, 0.01),
        "S2": StreamStatistics(110, 50, 150, 0.01),
        "S3": StreamStatistics(120, 60, 150, 0.01),
    }
    plan = greedy_plan(setting.conditions, statistics, costs)
    assert plan.way("S1") == head_plan("S1", ["S2", "S3"], [1, 1])
    changed = {"S2": StreamStatistics(2000, 2_000_000, 150, 0.01), "S3": StreamStatistics(50, 60, 150, 0.01)}
    nodes, random = repairing_nodes(plan, statistics, setting), Random(3)
    for stream, own in changed.items():
        nodes = finished(modify(nodes, stream, own, setting, random), stream)
    assert plan_of(nodes, streams).way("S1") == head_plan("S1", ["S3", "S2"], [0, 1])
    after = head_sets(head_plan("S1", ["S3", "S2"], [0, 1]), costs.network)
    assert {s: node.operators("S1") for s, node in nodes.items()} == after


def test_a_change_that_changes_nothing_affects_nobody():
    conditions, statistics, costs = draw_case(Random(21), 4)
    setting = Setting(conditions, costs)
    coordinator = Coordinator(greedy_plan(conditions, statistics, costs), statistics)
    assert coordinator.modified(setting).affected == ()
    nodes = repairing_nodes(coordinator.plan, statistics, setting)
    assert modify(nodes, "S1", statistics["S1"], setting, Random(0))["S1"].sent == {}


def head_of(message):
    return message.head if isinstance(message, Host) else message.token.head


def without_the_heads_way(node, own, setting):
    changed, sent = triggered(node, own, setting)
    return changed, tuple(m for m in sent if head_of(m) != node.stream)


def without_settling_behind(node, own, setting):
    """As printed, a stream whose own one-way cost is the same or that stays changes nothing behind it."""
    changed, sent = triggered(node, own, setting)
    kept = tuple(m for m in sent if isinstance(m, Relay | Compare) or head_of(m) == node.stream)
    return replace(changed, places=node.places), kept


@pytest.mark.parametrize("printed", [without_the_heads_way, without_settling_behind])
def test_without_the_added_triggers_plans_differ(printed):
    random, differ = Random(17), 0
    for _ in range(150):
        conditions, statistics, costs = draw_case(random, 4)
        setting, stream = Setting(conditions, costs), random.choice(conditions.streams)
        nodes = repairing_nodes(greedy_plan(conditions, statistics, costs), statistics, setting)
        own = draw_change(random, statistics[stream])
        nodes = modify(nodes, stream, own, setting, random, trigger=printed)
        differ += plan_of(nodes, conditions.streams) != greedy_plan(conditions, {**statistics, stream: own}, costs)
    assert differ


def unknown_to_the_other_end(node, own, setting):
    changed, sent = line_triggered(node, own, setting)
    begun = [m for m in sent if isinstance(m, Begin | Settle)]
    return changed, tuple(replace(m, token=replace(m.token, relined=None)) for m in begun)


def test_a_line_that_only_one_end_knows_leaves_another_plan():
    random, differ = Random(23), 0
    for _ in range(150):
        conditions, statistics, costs = draw_case(random, 4)
        setting, (stream, receiver) = Setting(conditions, costs), random.sample(conditions.streams, 2)
        nodes = repairing_nodes(greedy_plan(conditions, statistics, costs), statistics, setting)
        own = Relined(stream, receiver, draw_line(random))
        nodes = modify(nodes, stream, own, setting, random, trigger=unknown_to_the_other_end)
        known = replace(costs, network=costs.network.with_lines({own.ends: own.line}))
        differ += plan_of(nodes, conditions.streams) != greedy_plan(conditions, statistics, known)
    assert differ


@pytest.mark.parametrize("count", [4, 8, 16])
def test_messages_stay_within_their_complexity(count):
    """At most n by one node's report, at most n cubed by repair."""
    random = Random(count)
    for turn in range(4):
        conditions, statistics, costs = draw_case(random, count)
        setting = Setting(conditions, costs)
        plan = greedy_plan(conditions, statistics, costs)
        nodes, seen = repairing_nodes(plan, statistics, setting), list[Message]()
        stream, receiver = random.sample(conditions.streams, 2)
        grown = statistics[stream].grown(statistics[stream].rate * random.choice([0.2, 5]))
        change = Relined(stream, receiver, Link(0.5, 1e4)) if turn == 3 else grown
        after = modify(nodes, stream, change, setting, random, seen)
        assert len(seen) <= count**3
        hosts = Counter(type(m) for m in seen)[Host]
        assert hosts <= 2 * count * (count - 1)
        new = node_sets(plan_of(after, conditions.streams), costs.network)
        assert 1 + len(affected_nodes(node_sets(plan, costs.network), new)) <= 1 + count
