"""`midstream bench scheduling`: what choosing the next operator adds to a batch of 10,000 rows.

The same operators, called one after the other by hand, are what a schedule is held against: as it runs, where a single
tuple goes in compiled form, and by its table, which is asked after every step. Times are of the processor, batch by
batch the best of several runs taken in turns, so that a busy machine strikes nobody alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from midstream.inputs import catalog_of
from midstream.job.task.ingest import source_elements
from midstream.lab.bench.figures import Report
from midstream.language import parse
from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.elements import Elements
from midstream.optimizer.plans import Plan, plan_query
from midstream.scheduling.scheduler import Scheduler

ROWS = 10_000
BATCHES = 16
BAR = 1.05

QUERIES = {
    "selection": "SELECT k, v * 2 AS w FROM A [RANGE 1000] WHERE v > 20 AND k < 900",
    "join": "SELECT A.k, A.v, B.v AS w FROM A [RANGE 4], B [RANGE 4] WHERE A.k = B.k AND A.v > 20",
    "three-way join": "SELECT A.k, A.v, B.v AS w, C.v AS u FROM A [RANGE 4], B [RANGE 4], C [RANGE 4] "
    "WHERE A.k = B.k AND B.k = C.k AND A.v > 20",
    "grouping": "SELECT k, count(*) AS n, sum(v) AS s FROM A [RANGE 4] WHERE v > 20 GROUP BY k",
}
TABLES = ("dfs", "bfs", "rr", "batch:2")

Feed = Callable[[int, Elements], None]
Advance = Callable[[int], None]
Way = tuple[Feed, Advance, list[Elements]]
"""How to feed a box, how to advance it, and what it has given."""


class Direct:
    """Calls the operators one after the other, a path at a time; nobody is asked."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.given: list[Elements] = []

    def feed(self, source: int, batch: Elements) -> None:
        """Takes a batch of a source to the root."""
        self._send(self.box.sources[source][1][0], batch)

    def _send(self, wire: Wire, batch: Elements | None) -> None:
        operators, wires = self.box.operators, self.box.wires
        while batch is not None and len(batch):
            if wire.operator == ROOT:
                self.given.append(batch)
                return
            batch = operators[wire.operator].process(wire.port, batch)
            wire = wires[wire.operator][0]

    def advance(self, frontier: int) -> None:
        """Carries a frontier to the root."""
        for i, operator in enumerate(self.box.operators):
            incoming = self.box.incoming(i, frontier)
            if incoming > operator.frontier:
                self._send(self.box.wire(i), operator.advance(incoming))


def bench_scheduling(repeats: int = 6, seed: int = 5) -> Report:
    """What each schedule adds to each query."""
    report = Report("scheduling")
    for name, cql in QUERIES.items():
        plan, inputs = _plan(cql), _batches(seed)
        took = _measured(plan, inputs, repeats)
        report.add(f"{name}: a batch, operators called directly", took["direct"] * 1e6, "µs")
        for way in TABLES:
            ratio = took[way] / took["direct"]
            report.add(f"{name}: {way} / direct", ratio, "ratio", BAR, "at most")
        for way in TABLES:
            ratio = took[f"{way} by its table"] / took["direct"]
            # A selection alone takes 20 ns a row: there the question shows, and a single tuple is spared it.
            bar = None if name == "selection" else BAR
            report.add(f"{name}: {way}, its table asked after every step / direct", ratio, "ratio", bar, "at most")
    return report


def _plan(cql: str) -> Plan:
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
    return plan_query(parse(cql, catalog_of(dict.fromkeys("ABC", schema), "ts")))


def _batches(seed: int) -> list[dict[str, tuple[pa.RecordBatch, np.ndarray]]]:
    random = np.random.default_rng(seed)

    def rows(tick: int) -> tuple[pa.RecordBatch, np.ndarray]:
        ticks = np.sort(random.integers(2 * tick, 2 * tick + 2, ROWS))
        columns = {"ts": ticks, "k": random.integers(0, 20_000, ROWS), "v": random.integers(0, 100, ROWS)}
        return pa.RecordBatch.from_pydict(columns), ticks

    return [{name: rows(tick) for name in "ABC"} for tick in range(BATCHES)]


def _ways(plan: Plan) -> dict[str, Way]:
    """A fresh box for every way of running it."""

    def scheduled(name: str, trace: list[str] | None = None) -> Way:
        given: list[Elements] = []
        made = Scheduler(Box(plan.physical), given.append, schedule=name, trace=trace)
        return made.feed, made.advance, given

    direct = Direct(Box(plan.physical))
    ways: dict[str, Way] = {"direct": (direct.feed, direct.advance, direct.given)}
    ways |= {name: scheduled(name) for name in TABLES}
    return ways | {f"{name} by its table": scheduled(name, []) for name in TABLES}


def _measured(plan: Plan, inputs: list[dict[str, tuple[pa.RecordBatch, np.ndarray]]], repeats: int) -> dict[str, float]:
    """The processor's time for a batch, each way."""
    best: dict[tuple[str, int], float] = {}
    sources = [source for source, _ in Box(plan.physical).sources]
    for turn in range(repeats):
        ways = list(_ways(plan).items())
        for number, batch in enumerate(inputs):
            fed = [source_elements(source, *batch[source.stream.name]) for source in sources]
            # Whoever comes first finds cold caches: each way comes first now and then.
            shift = (turn + number) % len(ways)
            for name, (feed, advance, _) in [*ways[shift:], *ways[:shift]]:
                start = time.process_time_ns()
                for source, elements in enumerate(fed):
                    feed(source, elements)
                advance(2 * number)
                took = time.process_time_ns() - start
                best[name, number] = min(best.get((name, number), took), took)
    names = {name for name, _ in best}
    return {name: sum(best[name, n] for n in range(len(inputs))) / len(inputs) / 1e9 for name in names}
