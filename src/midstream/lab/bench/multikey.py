"""`midstream bench multikey`: joins on differing keys on Spark: trees, routed joins, Spark's own cascade, in one run.

Streams form a chain: each is joined with the next by a key of its own. All sides of a part read the same files, one per
stream and trigger, in one Spark session, and take turns once they are warm. Plans are held against each other in
executors; against Spark's cascade a job also runs as it does by default, where the driver may run its batches.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from midstream.lab.bench.figures import Report
from midstream.lab.bench.multikey_streams import RATE, WINDOW, Chain, write_chain
from midstream.lab.bench.on_spark import SparkBench

if TYPE_CHECKING:
    from midstream.lab.yardsticks.joins import Timed

WARM_UP = 2
SMALL = 10_000
"""Rows a batch of what each side works through before it is measured."""


def bench_multikey(batches: int = 6, seed: int = 5, only: Sequence[str] = ()) -> Report:
    """The parts that are asked for, or all."""
    from midstream.cluster.spark.environment import spark_session

    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        bench = Bench(spark_session(), Path(temporary), batches, seed, Report("multikey"))
        for part in only or PARTS:
            PARTS[part](bench)
        return bench.report


class Side(NamedTuple):
    """A plan, in executors alone or wherever a job runs its batches by default; no plan is Spark's own cascade."""

    plan: str | None
    executors: bool = True


CASCADE = Side(None)


@dataclass(slots=True)
class Bench(SparkBench):
    """Chains of joins, by plans and by Spark's own cascade."""

    def run_side(self, chain: Chain, side: Side, folders: dict[str, Path]) -> Timed:
        """One run of a side."""
        from midstream.lab.yardsticks.chains import native_chain, our_chain

        work = self.work()
        if side.plan is None:
            return native_chain(self.spark, list(folders.values()), f"{WINDOW} seconds", work)
        small = 0 if side.executors else None
        return our_chain(self.spark, folders, chain.query, work, side.plan, small_batches=small)

    def data(self, chain: Chain, batches: int) -> dict[str, Path]:
        """The files of a chain."""
        folder = self.root / f"{chain.names}-{chain.rows}-{batches}-{'-'.join(map(str, chain.keys))}"
        if not folder.exists():
            write_chain(folder, chain, batches, self.seed)
        return {name: folder / name for name in chain.names}

    def in_turns(self, chain: Chain, rounds: int, *sides: Side) -> dict[Side, float]:
        """The seconds of each side's median steady batch, taken in turns once all are warm."""
        small = replace(chain, rows=SMALL)
        found: dict[Side, list[float]] = {side: [] for side in sides}
        results: set[int] = set()
        for side in sides:
            if self.is_cold(f"{side} {chain.names}"):
                self.run_side(small, side, self.data(small, 6))
        for _ in range(rounds):
            for side in sides:
                timed = self.run_side(chain, side, self.data(chain, self.batches))
                found[side] += timed.seconds[WARM_UP:]
                results.add(timed.results)
        label = f"{len(chain.names)}-way, {chain.rows // 1000}k rows a batch"
        self.report.add(f"{label}: results", float(max(results)), "rows", 1.0)
        self.report.add(f"{label}: sides differ by", float(max(results) - min(results)), "rows", 0.0, "at most")
        return {side: statistics.median(seconds) for side, seconds in found.items()}


def _best(chain: Chain, routed: bool | None = None) -> str:
    """The optimizer's choice by what is known of a chain: any plan, or the best routed join or tree."""
    from midstream.api import ask
    from midstream.optimizer.cost import SPARK
    from midstream.optimizer.estimates import Estimator
    from midstream.optimizer.plans import enumerate_plans, plan_query

    columns = {"ts": pa.timestamp("us", "UTC"), "a": pa.int64(), "b": pa.int64(), "v": pa.int64()}
    asked = ask(chain.query, {name: pa.schema(columns).empty_table() for name in chain.names})
    if routed is None:
        return plan_query(asked.plan, statistics=chain.statistics, constants=SPARK, spread=True).text
    estimator = Estimator(chain.statistics, None, SPARK.by_tick(asked.plan.domain), True)
    plans = enumerate_plans(asked.plan, statistics=chain.statistics, constants=SPARK, spread=True)
    kind = [p for p in plans if ("->" in p.text or "<-" in p.text) == routed and ":" not in p.text]
    return min(kind, key=lambda p: estimator.per_tick(p.logical)).text


def _against_native(bench: Bench, names: str, rows: int, bar: float, rounds: int = 1) -> None:
    # About as many results as rows, and so are the intermediate ones.
    chain = Chain(names, rows, (2 * RATE * WINDOW,) * (len(names) - 1))
    usual, executors = Side(_best(chain), executors=False), Side(_best(chain))
    found = bench.in_turns(chain, rounds, usual, executors, CASCADE)
    label = f"{len(names)}-way, {rows // 1000}k rows a batch"
    bench.report.add(f"{label}: Midstream by {usual.plan}", rows / found[usual], "rows/s")
    bench.report.add(f"{label}: Midstream in executors", rows / found[executors], "rows/s")
    bench.report.add(f"{label}: Spark's cascade", rows / found[CASCADE], "rows/s")
    bench.report.add(f"{label}: Midstream / Spark's cascade", found[CASCADE] / found[usual], "ratio", bar)
    in_executors = found[CASCADE] / found[executors]
    bench.report.add(f"{label}: Midstream in executors / Spark's cascade", in_executors, "ratio")


def three_way_100k(bench: Bench) -> None:
    """Three streams, 100,000 rows a batch, against Spark's cascade."""
    _against_native(bench, "ABC", 100_000, 3.0, rounds=2)


def five_way_100k(bench: Bench) -> None:
    """Five streams, 100,000 rows a batch, against Spark's cascade."""
    _against_native(bench, "ABCDE", 100_000, 3.0, rounds=2)


def three_way_500k(bench: Bench) -> None:
    """Three streams, 500,000 rows a batch, against Spark's cascade."""
    _against_native(bench, "ABC", 500_000, 8.0)


def five_way_500k(bench: Bench) -> None:
    """Five streams, 500,000 rows a batch, against Spark's cascade."""
    _against_native(bench, "ABCDE", 500_000, 8.0)


def _routed_and_tree(bench: Bench, label: str, chain: Chain, bar: float | None) -> None:
    routed, tree, chosen = _best(chain, True), _best(chain, False), _best(chain)
    found = bench.in_turns(chain, 2, Side(routed), Side(tree))
    seconds = {routed: found[Side(routed)], tree: found[Side(tree)]}
    bench.report.add(f"{label}: routed by {routed}", chain.rows / seconds[routed], "rows/s")
    bench.report.add(f"{label}: best tree {tree}", chain.rows / seconds[tree], "rows/s")
    bench.report.add(f"{label}: routed / best tree", seconds[tree] / seconds[routed], "ratio", bar)
    worse = seconds.get(chosen, max(seconds.values())) / min(seconds.values())
    bench.report.add(f"{label}: the optimizer's choice ({chosen}) / the better", worse, "ratio", 1.1, "at most")


def exploding(bench: Bench) -> None:
    """Intermediate results explode: every pair of neighbours finds many partners, the whole finds few."""
    for partners, bar in ((10, None), (40, 2.0)):
        chain = Chain("ABC", 60_000, (RATE * WINDOW // partners,) * 3)
        _routed_and_tree(bench, f"exploding, {partners} partners", chain, bar)


def calm(bench: Bench) -> None:
    """Intermediate results are as few as rows."""
    chain = Chain("ABC", 100_000, (2 * RATE * WINDOW,) * 2)
    _routed_and_tree(bench, "calm", chain, None)


def placement(bench: Bench) -> None:
    """Two phases with another stream in flood each: fixed placements, and one that adapts."""
    from midstream.lab.bench.multikey_placement import measure_placement

    measure_placement(bench.report, bench.spark, bench.root / "placement", bench.batches + WARM_UP, bench.seed)


PARTS: dict[str, Callable[[Bench], None]] = {
    "exploding": exploding,
    "calm": calm,
    "three-way-100k": three_way_100k,
    "five-way-100k": five_way_100k,
    "three-way-500k": three_way_500k,
    "five-way-500k": five_way_500k,
    "placement": placement,
}
"""The parts by name, in the order in which they run."""
