"""What a simulated job has to do: streams cut into files, queries over them, and what people ask of it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.adaptation.policy import Mode, Policy

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
STREAMS = ("A", "B", "C")
LATENESS = 8

QUERIES = {
    "join": "SELECT A.k, A.v, B.v AS w FROM A [RANGE 20], B [RANGE 30] WHERE A.k = B.k",
    "three": "SELECT A.k, A.v, B.v AS w, C.v AS x FROM A [RANGE 20], B [RANGE 30], C [RANGE 10]"
    " WHERE A.k = B.k AND B.k = C.k",
    "keys": "SELECT A.k, A.v, C.k AS x FROM A [RANGE 20], B [RANGE 30], C [RANGE 10] WHERE A.k = B.k AND B.v = C.v",
    "groups": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM A [RANGE 25] GROUP BY k",
    "joined_groups": "SELECT B.v, COUNT(*) AS n FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY B.v",
    "distinct": "SELECT DISTINCT v FROM A [RANGE 15]",
    "distinct_join": "SELECT DISTINCT A.v FROM A [RANGE 15], C [RANGE 15] WHERE A.k = C.k",
    "newest": "SELECT k, v FROM B [PARTITION BY k ROWS 2]",
    "outer": "SELECT A.k, A.v, B.v AS w FROM A [RANGE 12] LEFT JOIN B [RANGE 17] ON A.k = B.k",
    "hops": "SELECT k, COUNT(*) AS n FROM C [HOP 20, 5] GROUP BY k",
    "union": "SELECT k, v FROM A [RANGE 10] UNION ALL SELECT k, v FROM B [RANGE 12]",
    "except": "SELECT k FROM A [RANGE 10] EXCEPT SELECT k FROM B [RANGE 12]",
    "semi": "SELECT k, v FROM A [RANGE 20] WHERE v > 2 AND k IN (SELECT k FROM C [RANGE 20])",
    "all": "SELECT COUNT(*) AS n, MAX(v) AS m FROM B [RANGE 14]",
    "changes": "SELECT ISTREAM k, COUNT(*) AS n FROM A [RANGE 25] GROUP BY k",
    "sequence": "SELECT A.v, B.v AS u FROM A FOLLOWED BY B CHRONICLE ON A.k = B.k WITHIN 9",
    "both": "SELECT A.k, A.v, C.v AS w FROM A [RANGE 12] FULL JOIN C [RANGE 9] ON A.k = C.k",
    "common": "SELECT k, v FROM A [RANGE 18] INTERSECT SELECT k, v FROM C [RANGE 18]",
    "gone": "SELECT DSTREAM k, v FROM B [RANGE 7] WHERE v > 0",
    "average": "SELECT A.k, AVG(B.v) AS a, MIN(A.v) AS m FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY A.k",
    "pairs": "SELECT A.v, C.v AS w FROM A [RANGE 6], C [RANGE 6] WHERE A.v < C.v",
    "kinds": "SELECT g, COUNT(*) AS n FROM (SELECT DISTINCT B.v AS g, A.v AS v FROM A [RANGE 20], B [RANGE 20]"
    " WHERE A.k = B.k) AS d GROUP BY g",
    "finer": "SELECT ISTREAM B.v, COUNT(*) AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k GROUP BY B.v, A.v",
}
BY_ROWS = ("join", "three", "keys", "union", "pairs", "changes", "gone", "finer", "sequence")
"""The queries whose results are the same rows whatever batches their input comes in; of others snapshots are."""

OTHER_TEXT = "SELECT A.k, A.v FROM A [RANGE 20], C [RANGE 10] WHERE A.k = C.k AND A.v > 1"
"""What a query is replaced by."""

ROUTED = "A -> B -> C, B -> A -> C, C -> B -> A"
PLANS = {
    "join": ("(A B)", "(B A)"),
    "three": ("((A B) C)", "(A (B C))", "((A C) B)", "A: B C, B: A C, C: B A", ROUTED),
    "keys": ("((A B) C)", "(A (B C))", "A: B C, B: A C, C: B A", ROUTED),
    "average": ("(A B)", "(B A)"),
}
EXCHANGED = ("A.k", "A.v", "B.k", "B.v", "C.v", "A.k = B.k", "B.v = C.v")
"""Keys by which stages exchange rows, as streams arrive for one query or another."""

EAGER = Policy("auto", least_gain=0.01, margin=0.1, evidence=0.0, patience=1, warm_up=2)
"""Goes over to whatever seems to be a little better."""

STRATEGIES = (
    "auto",
    "moving_state",
    "moving_state_paced",
    "parallel_track",
    "genmig",
    "genmig_reference_point",
    "genmig_shortened",
)


@dataclass(slots=True)
class Workload:
    """All that is drawn for a run, besides what goes wrong."""

    files: dict[str, dict[str, pa.Table]]
    queries: dict[str, str]
    coming: dict[str, str]
    """Queries that may be added."""
    slots: int
    retained: int
    at_once: int | None
    replaced: str | None = None
    """The query that another takes the place of, if one does."""
    adaptive: Policy | Mode = "off"
    """How queries adapt that are declared."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    source_folders: bool = False
    """Whether rows come from folders."""
    sink_folder: bool = False
    """Whether results go into a folder."""
    retention: dict[str, str] = field(default_factory=dict)
    """What is kept for a time that is longer than any run."""
    restores: bool = False
    """Whether the checkpoint may be restored from a copy."""

    @staticmethod
    def drawn(random: Random) -> Workload:
        """What a seed says."""
        names = random.sample(sorted(QUERIES), 5)
        begun = random.randint(1, 3)
        queries = {name: QUERIES[name] for name in names[:begun]}
        batches = random.randint(3, 7)
        return Workload(
            _files(random, batches),
            queries,
            {name: QUERIES[name] for name in names[begun:]},
            random.randint(1, 3),
            random.choice([1, 2, 5]),
            random.choice([1, 1, 2, None]),
            random.choice([None, None, random.choice(sorted(queries))]),
            random.choice(["off", EAGER, replace(EAGER, per_slot=True), replace(EAGER, verify=5)]),
            source_folders=random.random() < 0.5,
            sink_folder=random.random() < 0.5,
            retention=random.choice([{}, {"results": "30 days", "dead_letters": "30 days", "replaced": "30 days"}]),
        )

    def expect_restores(self) -> None:
        """Makes results the same rows when their input comes again, those of one query at least.

        Which rows are late depends on what else is there when they come, so none is. What a query gives that takes
        another's place depends on when it does, so none does by request.
        """
        self.restores = True
        self.files = {name: _punctual(files) for name, files in self.files.items()}
        self.sink_folder = True
        if not any(name in BY_ROWS for name in self.queries):
            self.coming.pop("join", None)
            self.queries["join"] = QUERIES["join"]

    def draw_request(self, random: Random, number: int, known: set[str]) -> dict[str, Any]:
        """Something that people ask; it may be refused."""
        names = sorted(known) or ["nothing"]
        name = random.choice(names)
        able = [n for n in names if n in PLANS]
        kinds = ["add", "adapt", "rebalance", "rescale", "schedule", "status", "drop", "odd"]
        kinds += ["status"] * 2 if self.restores else ["replace"] * 2
        match random.choice([*(["migrate"] * 5 if able else []), "cancel", "cancel_rebalance", *kinds]):
            case "migrate":
                name = random.choice(able)
                plan, strategy = random.choice(PLANS[name]), random.choice(STRATEGIES)
                record = {"query": name, "plan": plan, "strategy": strategy, "trigger": f"request {number}"}
                return {"command": "migrate", **record, "part": random.choice(["auto", "whole"]), **self._terms(random)}
            case "cancel":
                return {"command": "cancel", "query": name}
            case "cancel_rebalance":
                return {"command": "cancel_rebalance"}
            case "add" if self.coming:
                name = random.choice(sorted(self.coming))
                return {"command": "add", "query": name, "cql": self.coming[name]}
            case "adapt":
                return {"command": "adapt", "query": name, "mode": random.choice(["off", "suggest", "auto"])}
            case "rebalance":
                how = {"command": "rebalance", "protocol": random.choice(["auto", "mslb", "split_time", "ptlb"])}
                if random.random() < 0.5:
                    how |= {"protocol": "auto", "by": random.choice(EXCHANGED)}
                if random.random() < 0.5:
                    return how
                slots = [random.randint(0, self.slots - 1) for _ in range(random.choice([8, 256]))]
                return {**how, "routing": [slots[group * len(slots) // 256] for group in range(256)]}
            case "rescale":
                return {"command": "rescale", "slots": random.randint(1, 4)}
            case "schedule":
                return {"command": "schedule", "scheduling": random.choice(["dfs", "bfs", "rr", "batch:2", "chain"])}
            case "drop" if len(names) > 1:
                return {"command": "drop", "query": name}
            case "replace":
                cql, incomplete = random.choice(sorted(QUERIES.values())), random.choice(["emit", "withhold"])
                rate = [None, 5, 50][number % 3]
                return {
                    "command": "replace",
                    "query": name,
                    "cql": cql,
                    "incomplete": incomplete,
                    "backfill_rate": rate,
                }
            case "odd":
                return random.choice([{"command": "fly"}, {"command": "migrate", "query": name}, {"query": 3}])
        return {"command": "status"}

    def _terms(self, random: Random) -> dict[str, Any]:
        """How a migration is to be: of some slots alone, or verified."""
        match random.randrange(8):
            case 0:
                return {"slots": random.sample(range(self.slots), random.randint(1, self.slots))}
            case 1:
                return {"verify": random.choice([1, 10])}
        return {}


def _files(random: Random, batches: int) -> dict[str, dict[str, pa.Table]]:
    found: dict[str, dict[str, pa.Table]] = {name: {} for name in STREAMS}
    hot = random.choice([0.0, 0.0, 0.8])
    at = 0
    for number in range(batches):
        for name in STREAMS:
            if random.random() < 0.9:
                found[name][f"{number:03d}"] = _rows(random, at, random.randint(0, 12), hot)
        at += random.randint(1, 14)
    return found


def _punctual(files: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Without the rows that are late if every file comes by itself."""
    found, latest = {}, 0
    for path, rows in files.items():
        found[path] = rows.filter(pc.greater_equal(rows["ts"], latest - LATENESS))
        latest = max([latest, *rows["ts"].to_pylist()])
    return found


def _rows(random: Random, at: int, count: int, hot: float) -> pa.Table:
    """Rows about an instant; the part `hot` of them has one key, and as many one value."""
    columns: dict[str, list[int | None]] = {"k": [], "v": [], "ts": []}
    for _ in range(count):
        columns["k"].append(None if random.random() < 0.05 else 0 if random.random() < hot else random.randint(0, 4))
        columns["v"].append(0 if random.random() < hot else random.randint(0, 5))
        back = random.randint(0, 2 * LATENESS) if random.random() < 0.25 else 0
        columns["ts"].append(max(0, at + random.randint(0, 6) - back))
    return pa.table(columns, schema=SCHEMA)
