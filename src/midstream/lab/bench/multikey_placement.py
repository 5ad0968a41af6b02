"""How close placements that adapt come to the best fixed ones, while another stream floods in each phase.

A chain of three streams is joined by differing keys. In one phase nearly all rows are of the first stream, in the next
nearly all of the last. The rows of a flood should stay where they arrive, with the windows of the others in every slot:
so each phase has a fixed placement that is right for it, and wrong for the other one. All windows in every slot need no
further stage, at the price of the flood in every slot.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from midstream.adaptation.policy import Mode
from midstream.lab.bench.figures import Report
from midstream.lab.bench.multikey_streams import RATE, WINDOW, Chain, write_chain

PHASES = {"A floods": (0.9, 0.05, 0.05), "C floods": (0.05, 0.05, 0.9)}
FIXED = {
    "windows of B and C everywhere": "A <- B <- C, B -> A <- C, C <- B -> A",
    "windows of A and B everywhere": "A <- B -> C, B -> C <- A, C <- B <- A",
    "all windows everywhere": "A <- B <- C, B <- A <- C, C <- B <- A",
}
BAR = 1.2


def measure_placement(report: Report, spark: Any, root: Path, batches: int, seed: int, rows: int = 120_000) -> None:
    """The seconds of a batch by each placement in each phase, once the one that adapts has had time to."""
    from midstream.lab.yardsticks.chains import our_chain

    chain = Chain("ABC", rows, (2 * RATE * WINDOW,) * 2)
    for number, shares in enumerate(PHASES.values()):
        write_chain(root / "data", chain, batches, seed, shares, number * batches)
    folders = {name: root / "data" / name for name in chain.names}
    sides = {**FIXED, "adapting": FIXED["windows of B and C everywhere"]}
    taken: dict[str, Sequence[float]] = {}
    adapted: Sequence[tuple[int, str]] = ()
    our_chain(spark, folders, chain.query, root / "warm", FIXED["all windows everywhere"])
    for name, plan in sides.items():
        adaptive: Mode = "auto" if name == "adapting" else "off"
        timed = our_chain(spark, folders, chain.query, root / name.replace(" ", "-"), plan, adaptive=adaptive)
        taken[name], adapted = timed.seconds, timed.plans
        report.add(f"placement, {name}: results", float(timed.results), "rows")
    for number, phase in enumerate(PHASES):
        last = slice(number * batches + batches // 2, (number + 1) * batches)
        seconds = {name: statistics.median(taken[name][last]) for name in sides}
        plan = next((text for batch, text in reversed(adapted) if batch < last.stop), sides["adapting"])
        for name, value in seconds.items():
            by = f", at last by {plan}" if name == "adapting" else ""
            report.add(f"placement, {phase}, {name}{by}", value, "s")
        best = min(seconds[name] for name in FIXED)
        report.add(
            f"placement, {phase}: adapting / the best fixed", seconds["adapting"] / best, "ratio", BAR, "at most"
        )
