"""Midstream's own balancing decisions on D-CAPE's cluster: by measured time, for all machines at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from midstream.adaptation.decider import Caution, DeciderMemory, DecisionOutcome, Now, decide, made
from midstream.adaptation.group_moves import BalancePolicy, GroupLoad, MoveTerms, group_moves
from midstream.distribution.move_costs import Prices, predict_all
from midstream.lab.papers.partitioned_load_balancing.group_states import Numbers, groups_of
from midstream.lab.papers.partitioned_load_balancing.protocols.manager import MoveRequest

ROW_BYTES = 100.0
PROTOCOLS = ("ptlb", "mslb")


@dataclass(frozen=True, slots=True)
class MachineLook:
    """What is seen of a machine: milliseconds at work so far, rows that wait now, and rows held of each group."""

    busy: float
    waiting: int
    rows: Mapping[int, int]


@dataclass(slots=True)
class MeasuredBalance:
    """Follows what machines do from look to look, and decides."""

    policy: BalancePolicy
    window: float
    arrivals: tuple[Numbers, Numbers]
    groups: int
    memory: DeciderMemory = field(default_factory=DeciderMemory)
    looks: int = 0
    before: dict[str, MachineLook] = field(default_factory=dict)
    moment: float = 0.0

    def look(
        self, moment: float, machines: Mapping[str, MachineLook], owners: Sequence[str], moving: frozenset[int]
    ) -> list[MoveRequest]:
        """Decides at a moment, in milliseconds, which groups move."""
        times, groups = self.arrivals
        recent = (times >= self.moment) & (times < moment)
        arrived = np.bincount(groups[recent], minlength=self.groups)
        seconds = max(1e-3, (moment - self.moment) / 1000)
        price = {name: self._per_row(name, look, arrived, owners) for name, look in machines.items()}
        names = list(machines)
        loads = [
            GroupLoad(
                names.index(owner),
                float(arrived[g]) * price[owner] / 1000 / seconds,
                float(machines[owner].rows.get(g, 0)),
                ROW_BYTES * machines[owner].rows.get(g, 0),
                float(arrived[g]) / seconds,
            )
            for g, owner in enumerate(owners)
        ]
        self.before, self.moment = dict(machines), moment
        queued = {names.index(name): look.waiting * price[name] / 1000 for name, look in machines.items()}
        terms = MoveTerms(PROTOCOLS, self.window, queued=queued)
        under_way = f"{len(moving)} groups are under way." if moving else ""
        fixed = {int(group) for group, until in self.memory.resting.items() if until > self.looks}
        found = group_moves(loads, len(names), terms, self.policy, fixed, under_way)
        self.looks += 1
        now, caution = Now(self.looks), self.policy.caution
        self.memory, verdict = decide(
            self.memory,
            now,
            [found],
            caution,
            lambda name, watch: {} if moving else {name: DecisionOutcome(found.before, watch.expected)},
        )
        if verdict.action == "stay":
            return []
        self.memory = made(self.memory, now, caution, found)
        moves = found.change
        return [
            MoveRequest(
                predict_all(PROTOCOLS, moved, self.window, self.policy.prices)[0].protocol,
                names[old],
                names[new],
                groups=groups,
            )
            for ((old, new), groups), moved in zip(moves.pairs.items(), moves.moved, strict=True)
        ]

    def _per_row(self, name: str, look: MachineLook, arrived: Numbers, owners: Sequence[str]) -> float:
        """Milliseconds that a machine has taken per row that it has processed."""
        before = self.before.get(name, MachineLook(0.0, 0, {}))
        came = sum(int(arrived[g]) for g, owner in enumerate(owners) if owner == name)
        processed = came - (look.waiting - before.waiting)
        return (look.busy - before.busy) / max(1, processed)


def measured_balance(
    tables: Mapping[str, pa.Table], groups: int, length: float, insert: float, per_row: float
) -> MeasuredBalance:
    """A follower for some streams; `length` is what PTLB takes in seconds, prices are in milliseconds."""
    times = np.concatenate([table["ts"].to_numpy() for table in tables.values()])
    keys = [groups_of([table["k"].combine_chunks()], groups) for table in tables.values()]
    prices = Prices(store=insert / 1000, ship=0.01 / ROW_BYTES / 1000, process=per_row / 1000)
    policy = BalancePolicy(prices=prices, caution=Caution(2))
    return MeasuredBalance(policy, length, (times, np.concatenate(keys)), groups)


def paper_request(memory: Mapping[str, float], protocol: str, least_share: float = 0.1) -> MoveRequest | None:
    """D-CAPE's policy: half the difference from the fullest machine to the emptiest; None if that is a small share.

    The sender chooses the groups.

    >>> paper_request({"a": 100.0, "b": 20.0, "c": 60.0}, "mslb")
    MoveRequest(protocol='mslb', sender='a', receiver='b', amount=40.0, groups=())
    """
    sender, receiver = max(memory, key=lambda m: (memory[m], m)), min(memory, key=lambda m: (memory[m], m))
    amount = (memory[sender] - memory[receiver]) / 2
    mean = sum(memory.values()) / len(memory)
    if sender == receiver or amount <= least_share * mean:
        return None
    return MoveRequest(protocol, sender, receiver, amount)
