"""Members change plans by messages that arrive in any order, without a simulator, rows or links."""

from __future__ import annotations

import json
from random import Random

import pytest
from tests.distribution.routed.drawing import draw_case, draw_change

from midstream.lab.papers.node_operator_sets.calls import Called, Directed, Measured
from midstream.lab.papers.node_operator_sets.distributed import plan_of
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.member import centralized_members, distributed_members, step
from midstream.lab.papers.node_operator_sets.modification import Setting
from midstream.lab.papers.node_operator_sets.node_sets import node_sets
from midstream.lab.papers.node_operator_sets.repair import Host
from midstream.lab.papers.node_operator_sets.track import PREPARING, Drained, Full
from midstream.lab.papers.node_operator_sets.wire import from_json, to_json

MODES = {"centralized": centralized_members, "distributed": distributed_members}


class Group:
    """Members that hear of each other in any order; windows are full at once, old plans drain after all switched."""

    def __init__(self, random: Random, mode: str, count: int) -> None:
        self.random, self.mode = random, mode
        self.conditions, statistics, costs = draw_case(random, count)
        self.statistics = dict(statistics)
        self.setting = Setting(self.conditions, costs)
        plan = greedy_plan(self.conditions, statistics, costs)
        self.members = MODES[mode](plan, statistics, self.setting, "S1", 1e9)
        self.flying: list = []
        self.early = 0

    def take(self, node: str, event) -> None:
        before = self.members[node]
        self.members[node], sent = step(before, event, self.setting)
        self.flying += sent
        move = self.members[node].track.move
        if move is not None and move.phase == PREPARING:
            self.take(node, Full(move.change))

    def run(self) -> None:
        while self.flying:
            message = self.flying.pop(self.random.randrange(len(self.flying)))
            waits = any(isinstance(getattr(m, "message", None), Host) and m.to == message.to for m in self.flying)
            self.early += isinstance(message, Called) and waits
            self.take(message.to, message)
            epochs = {m.track.epoch for m in self.members.values()}
            if not self.flying and len(epochs) == 1 and not any(m.track.move for m in self.members.values()):
                for node in self.members:
                    self.take(node, Drained(max(epochs)))

    def measure(self, stream: str) -> None:
        self.statistics[stream] = draw_change(self.random, self.statistics[stream])
        self.take(stream, Measured(self.statistics[stream]))

    def check(self) -> None:
        plan = greedy_plan(self.conditions, self.statistics, self.setting.costs)
        sets = node_sets(plan, self.setting.costs.network)
        latest = {node: m.track.shares[max(m.track.shares)].operators for node, m in self.members.items()}
        assert latest == sets
        assert len({m.track.epoch for m in self.members.values()}) == 1
        if self.mode == "distributed":
            shares = {m.stream: m.base for m in self.members.values() if m.base is not None}
            assert plan_of(shares, self.conditions.streams) == plan
            assert all(share.own == self.statistics[stream] for stream, share in shares.items())


@pytest.mark.parametrize("mode", list(MODES))
def test_changes_one_after_another_end_in_the_greedy_plan(mode):
    random, early = Random(3), 0
    for _ in range(60):
        group = Group(random, mode, random.choice([3, 4, 5]))
        for _ in range(3):
            group.measure(random.choice(group.conditions.streams))
            group.run()
            group.check()
        early += group.early
    assert early or mode == "centralized", "some nodes were called before they had all their messages"


@pytest.mark.parametrize("mode", list(MODES))
def test_concurrent_changes_end_in_the_greedy_plan(mode):
    random = Random(4)
    for _ in range(40):
        group = Group(random, mode, random.choice([3, 4]))
        for stream in random.sample(group.conditions.streams, 3):
            group.measure(stream)
        group.run()
        group.check()


def test_members_survive_being_written_down():
    group = Group(Random(5), "distributed", 4)
    group.measure("S3")
    for _ in range(12):
        message = group.flying.pop(0)
        group.take(message.to, message)
    for member in group.members.values():
        assert from_json(json.loads(json.dumps(to_json(member)))) == member


def test_a_directed_plan_is_used_until_statistics_change():
    group = Group(Random(6), "centralized", 3)
    plan = greedy_plan(group.conditions, group.statistics, group.setting.costs)
    other = next(p for p in _turned(plan) if p != plan)
    group.take("S1", Directed(other))
    group.run()
    latest = {node: m.track.shares[max(m.track.shares)].operators for node, m in group.members.items()}
    assert latest == node_sets(other, group.setting.costs.network)


def _turned(plan):
    from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan, head_plan

    first, *rest = plan.heads
    for placements in ([0, 0], [1, 1], [0, 1], [1, 0]):
        yield JoinPlan((head_plan(first.head, first.order, placements), *rest))
