"""Jobs with a key hotter than a slot, on simulated machines that fail: slots share it, and nothing is lost."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from midstream.job.slots import spreading
from midstream.lab.simulation import workload
from midstream.lab.simulation.simulate import simulate
from midstream.lab.simulation.workload import QUERIES, SCHEMA, Workload

SEEDS = (8, 13)
HOT_QUERIES = ("join", "joined_groups", "groups", "outer")


def skewed_files(random: Random, batches: int) -> dict[str, dict[str, pa.Table]]:
    """Most rows are of A, and most of these have one key."""
    found: dict[str, dict[str, pa.Table]] = {name: {} for name in "ABC"}
    for number in range(batches):
        for name, count in (("A", 24), ("B", 4), ("C", 1)):
            keys = [1 if name == "A" and random.random() < 0.8 else random.randint(0, 9) for _ in range(count)]
            ticks = [6 * number + random.randint(0, 6) for _ in range(count)]
            columns = {"k": keys, "v": [random.randint(0, 5) for _ in range(count)], "ts": ticks}
            found[name][f"{number:03d}"] = pa.table(columns, schema=SCHEMA)
    return found


def drawn(random: Random) -> Workload:
    names = random.sample(HOT_QUERIES, 3)
    queries = {name: QUERIES[name] for name in names[:2]}
    return Workload(skewed_files(random, 7), queries, {names[2]: QUERIES[names[2]]}, random.randint(2, 4), 5, 1)


def draw_request(self: Workload, random: Random, number: int, known: set[str]) -> dict[str, Any]:
    match random.choice(["rebalance", "rebalance", "rebalance", "rescale", "add", "migrate", "status"]):
        case "rebalance":
            return {"command": "rebalance"}
        case "rescale":
            return {"command": "rescale", "slots": random.randint(2, 4)}
        case "add" if self.coming:
            name, cql = next(iter(self.coming.items()))
            return {"command": "add", "query": name, "cql": cql}
        case "migrate" if "join" in known:
            return {"command": "migrate", "query": "join", "plan": "(B A)", "strategy": "genmig"}
    return {"command": "status"}


def test_hot_keys_are_shared_whatever_a_seed_has_in_store(monkeypatch):
    shared, after = [], spreading.Spreading.after

    def noted(self, *args):
        found = after(self, *args)
        shared.append(any(group.active for group in found[1]))
        return found

    monkeypatch.setattr(spreading.Spreading, "after", noted)
    monkeypatch.setattr(workload.Workload, "drawn", staticmethod(drawn))
    monkeypatch.setattr(workload.Workload, "draw_request", draw_request)
    for seed in SEEDS:
        simulate(seed)
    assert any(shared)
