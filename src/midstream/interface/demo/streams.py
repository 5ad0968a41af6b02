"""Four streams that change their character half-way.

At first A and B are slow and have hardly a key in common, while C and D are fast and meet all the others; then it is
the other way round. Some keys are common to all four: they make the results, at the same rate all along. A plan that
joins A with B first does hardly any work before the change and a great deal after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

STREAMS = ("A", "B", "C", "D")
SECOND = 1_000_000
START = 1_700_000_000 * SECOND


@dataclass(frozen=True, slots=True)
class Scenario:
    """Seconds of event time, one per batch; the window in seconds; rates per second and sizes of key spaces."""

    seconds: int = 22
    flips_at: int = 8
    window: int = 3
    slow: int = 800
    fast: int = 2_000
    shared: int = 200
    own: int = 600
    common: int = 300
    seed: int = 7

    @property
    def query(self) -> str:
        """The four-way join."""
        windowed = ", ".join(f"{name} [RANGE {self.window} SECONDS]" for name in STREAMS)
        ids = ", ".join(f"{name}.id AS {name.lower()}" for name in STREAMS)
        return f"SELECT {ids} FROM {windowed} WHERE A.k = B.k AND B.k = C.k AND C.k = D.k"

    @property
    def old_plan(self) -> str:
        """Right before the change."""
        return "(((A B) C) D)"


def generate(scenario: Scenario) -> list[dict[str, pa.Table]]:
    """The rows of each stream, second by second."""
    random = np.random.default_rng(scenario.seed)
    given = dict.fromkeys(STREAMS, 0)
    batches = []
    for second in range(scenario.seconds):
        batch, changed = {}, second >= scenario.flips_at
        for name in STREAMS:
            rows = scenario.slow if _quiet(name, changed) else scenario.fast
            ticks = np.sort(random.integers(0, SECOND, rows)) + START + second * SECOND
            batch[name] = pa.table(
                {
                    "id": np.arange(given[name], given[name] + rows),
                    "k": _keys(random, scenario, name, changed, rows),
                    "ts": pa.array(ticks, pa.timestamp("us", "UTC")),
                }
            )
            given[name] += rows
        batches.append(batch)
    return batches


def _quiet(name: str, changed: bool) -> bool:
    return (name in "AB") != changed


def _keys(random: np.random.Generator, scenario: Scenario, name: str, changed: bool, rows: int) -> np.ndarray:
    """Keys that all streams share, and others, new ones after the change.

    Of these a quiet stream has every sixth, and the two that are quiet have none in common.
    """
    others = random.integers(0, scenario.own, rows)
    if _quiet(name, changed):
        others = 6 * (others // 6) + 3 * (name in "AC")
    keys = scenario.common + changed * scenario.own + others
    shared = random.random(rows) < scenario.shared / rows
    return np.where(shared, random.integers(0, scenario.common, rows), keys)
