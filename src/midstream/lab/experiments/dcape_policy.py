"""Midstream's own balancing decisions on D-CAPE's cluster: by measured time, for all machines at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from midstream.adaptation.balance import BalanceController, BalanceDecision, BalancePolicy, GroupLoad
from midstream.distribution.move_costs import Prices
from midstream.lab.papers.partitioned_load_balancing.group_states import Numbers, groups_of

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

    controller: BalanceController
    arrivals: tuple[Numbers, Numbers]
    groups: int
    before: dict[str, MachineLook] = field(default_factory=dict)
    moment: float = 0.0
    decisions: list[BalanceDecision] = field(default_factory=list)

    def look(
        self, moment: float, machines: Mapping[str, MachineLook], owners: Sequence[str], moving: frozenset[int]
    ) -> BalanceDecision:
        """Decides at a moment, in milliseconds."""
        times, groups = self.arrivals
        recent = (times >= self.moment) & (times < moment)
        arrived = np.bincount(groups[recent], minlength=self.groups)
        seconds = max(1e-3, (moment - self.moment) / 1000)
        price = {name: self._per_row(name, look, arrived, owners) for name, look in machines.items()}
        loads = [
            GroupLoad(
                owner,
                float(arrived[g]) * price[owner] / 1000 / seconds,
                float(machines[owner].rows.get(g, 0)),
                ROW_BYTES * machines[owner].rows.get(g, 0),
                float(arrived[g]) / seconds,
            )
            for g, owner in enumerate(owners)
        ]
        self.before, self.moment = dict(machines), moment
        queued = {name: look.waiting * price[name] / 1000 for name, look in machines.items()}
        decision = self.controller.consider(loads, list(machines), PROTOCOLS, moving, queued)
        self.decisions.append(decision)
        return decision

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
    policy = BalancePolicy(patience=2, prices=prices)
    return MeasuredBalance(BalanceController(length, policy), (times, np.concatenate(keys)), groups)
