"""The workload of CAPE's experiments (section 6, table 2), in milliseconds.

Four streams are joined in a chain, A with B, B with C, C with D, under one window W. A reduction factor of 0.05 is a
join attribute uniform over 20 values. The old plan is left-deep; the new one joins B and C first, then D, then A.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.lab.experiments.arrivals import poisson
from midstream.lab.experiments.migration_run import Workload
from midstream.lab.experiments.virtual_processor import Costs

OLD, NEW = "(((A B) C) D)", "(A ((B C) D))"
COSTS = Costs(compare=0.1, insert=0.1)
"""In milliseconds, for both experiments: the low configuration keeps up with its old plan, the high one does not."""

PROCESSOR = f"Tj {COSTS.compare:g} ms per compared pair, Ts {COSTS.insert:g} ms per inserted row, nested loops"

QUERY = (
    "SELECT A.n AS a, B.n AS b, C.n AS c, D.n AS d "
    "FROM A [RANGE {w}], B [RANGE {w}], C [RANGE {w}], D [RANGE {w}] "
    "WHERE A.ab = B.ab AND B.bc = C.bc AND C.cd = D.cd"
)
ATTRIBUTES = {"A": ("ab",), "B": ("ab", "bc"), "C": ("bc", "cd"), "D": ("cd",)}


@dataclass(frozen=True, slots=True)
class Configuration:
    """A column of table 2: the window, mean interarrival times, and reduction factors."""

    window: int
    interarrival: Mapping[str, float]
    reduction: Mapping[str, float]

    @property
    def rates(self) -> dict[str, float]:
        """Tuples per millisecond, by stream."""
        return {name: 1 / gap for name, gap in self.interarrival.items()}

    def workload(self, ends: Sequence[int], seed: int) -> Workload:
        """Streams of this configuration, in batches with the given ends."""
        rng = np.random.default_rng(seed)
        streams = {name: self._stream(rng, name, ends[-1]) for name in ATTRIBUTES}
        return Workload(QUERY.format(w=self.window), streams, ends)

    def _stream(self, rng: np.random.Generator, name: str, end: int) -> pa.Table:
        times = poisson(rng, self.interarrival[name], end)
        columns = {"ts": times, "n": np.arange(len(times))}
        for attribute in ATTRIBUTES[name]:
            columns[attribute] = rng.integers(0, round(1 / self.reduction[attribute]), len(times))
        return pa.table(columns)

    def denser(self, times: int) -> Configuration:
        """So many times the tuples, and as many matches of each as before."""
        gaps = {name: gap / times for name, gap in self.interarrival.items()}
        return Configuration(self.window, gaps, {name: factor / times for name, factor in self.reduction.items()})

    def estimated_moving_state(self, costs: Costs, combined: float = 2.0) -> float:
        """Equation 8; `combined` is how many times |B||C|σ it takes the state of B and C to hold."""
        b, c, d = (self.rates[name] * self.window for name in "BCD")
        first, second = self.reduction["bc"], self.reduction["cd"]
        below = b * c * (costs.compare + costs.insert * first)
        return below + combined * b * c * d * first * (costs.compare + costs.insert * second)

    def describe(self) -> str:
        """The configuration in one line."""
        gaps = ", ".join(f"I{name} {gap:g} ms" for name, gap in self.interarrival.items())
        factors = ", ".join(f"σ{name.upper()} {factor:g}" for name, factor in self.reduction.items())
        return f"W {self.window} ms, {gaps}, {factors}"


def configuration(
    window: int, gaps: tuple[float, float, float, float], factors: tuple[float, float, float]
) -> Configuration:
    """A configuration from interarrival times of A to D and the reduction factors AB, BC, CD."""
    return Configuration(
        window, dict(zip("ABCD", gaps, strict=True)), dict(zip(("ab", "bc", "cd"), factors, strict=True))
    )
