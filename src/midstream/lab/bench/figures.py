"""What a benchmark says: figures with their bars, as a table or as one JSON object."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value; with a bar, whether it holds."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    sense: Literal["at least", "at most"] = "at least"

    @property
    def holds(self) -> bool | None:
        """Whether the value is on the right side of its bar."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.sense == "at least" else self.value <= self.bar

    @property
    def is_wrong(self) -> bool:
        """Whether it counts what must not occur at all, and something did; a speed that misses its bar is not wrong."""
        return self.bar == 0 and self.holds is False

    def to_json(self) -> dict[str, Any]:
        """The figure as the contract has it."""
        bar = None if self.bar is None else {"at least": ">=", "at most": "<="}[self.sense] + f" {self.bar:g}"
        return {"name": self.name, "value": self.value, "unit": self.unit, "bar": bar, "holds": self.holds}


@dataclass(slots=True)
class Report:
    """All figures of one benchmark, and where the time went."""

    bench: str
    figures: list[Figure] = field(default_factory=list)
    profile: dict[str, float] = field(default_factory=dict)

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        bar: float | None = None,
        sense: Literal["at least", "at most"] = "at least",
    ) -> None:
        """Adds a figure."""
        self.figures.append(Figure(name, value, unit, bar, sense))

    def to_json(self) -> dict[str, Any]:
        """One object, as the contract has it."""
        return {
            "bench": self.bench,
            "machine": machine(),
            "figures": [figure.to_json() for figure in self.figures],
            "profile": self.profile,
        }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()}


def alternating(repeats: int, **runs: Callable[[], object]) -> dict[str, float]:
    """The best time of each run, taken in turns so that a busy moment strikes all of them."""
    best: dict[str, float] = {}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            took = time.perf_counter() - start
            best[name] = min(best.get(name, took), took)
    return best
