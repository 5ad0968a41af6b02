"""What benchmarks on Spark have in common: one Spark session, a folder for every run, and who is warm by now."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from midstream.lab.bench.figures import Report


@dataclass(slots=True)
class SparkBench:
    """One run of a benchmark: its Spark session, its folder, its figures.

    Before anything is measured each side works through some small batches, because Java compiles what has run often
    enough; `warm` names the sides that have.
    """

    spark: Any
    root: Path
    batches: int
    seed: int
    report: Report
    runs: int = 0
    warm: set[str] = field(default_factory=set)

    def work(self) -> Path:
        """A folder for one more run."""
        self.runs += 1
        return self.root / f"run-{self.runs}"

    def is_cold(self, side: str) -> bool:
        """Whether a side has not run yet; from now on it counts as warm."""
        cold = side not in self.warm
        self.warm.add(side)
        return cold
