"""What is known about streams and operators at one moment: an immutable snapshot that the optimizer reads.

Everything is an estimate with its relative standard error; a guess has an infinite one. Keys are described by the share
of tuples that have each value: exactly for heavy hitters, and for a sample of the other values chosen by bits of their
hash, the same values in every stream. So the tuples that several streams have in common are estimated by adding up
products of shares, also for streams that no running plan joins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
SharingPlan = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its relative standard error."""

    value: float
    error: float = math.inf

    @property
    def confidence(self) -> float:
        """From 0 for a guess to 1 for a count.

        >>> Estimate(3.0, 0.25).confidence
        0.8
        """
        return 1 / (1 + self.error)


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """A source of a query: arrivals per tick, how they cluster, what its window holds, and bytes per tuple."""

    rate: Estimate
    burstiness: float = 0.0
    population: float = 0.0
    width: float = 40.0
    rows: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class KeyProfile:
    """How often values of a key occur: hashes in order, and the share of tuples that have each.

    A heavy value stands for itself, any other for `sample` values like it. `rows` is how many tuples were looked at.
    """

    hashes: Hashes
    shares: SharingPlan
    heavy: npt.NDArray[np.bool_]
    sample: int
    rows: float

    @property
    def weights(self) -> SharingPlan:
        """How many values each one stands for."""
        return np.where(self.heavy, 1.0, float(self.sample))

    @property
    def skew(self) -> float:
        """The share of tuples with a heavy value."""
        return float(self.shares[self.heavy].sum())

    def distinct(self, rows: float) -> float:
        """How many different values are expected among so many tuples."""
        if rows <= 0 or len(self.shares) == 0:
            return 0.0
        return float(min(rows, (self.weights * -np.expm1(-rows * self.shares)).sum()))


def common(profiles: Sequence[KeyProfile]) -> Estimate:
    """The selectivity of equality between keys: the share of combinations of tuples that agree."""
    hashes = reduce(_in_both, [p.hashes for p in sorted(profiles, key=lambda p: len(p.hashes))])
    product = np.ones(len(hashes))
    heavy = np.zeros(len(hashes), bool)
    sample = max(p.sample for p in profiles)
    for profile in profiles:
        at = np.searchsorted(profile.hashes, hashes)
        product *= profile.shares[at]
        heavy |= profile.heavy[at]
    if any(p.sample < sample for p in profiles):
        # The values of a coarse sample are among those of a finer one.
        kept = heavy | ((hashes & np.uint64(sample - 1)) == 0)
        product, heavy = product[kept], heavy[kept]
    weights = np.where(heavy, 1.0, float(sample))
    total = float((weights * product).sum())
    if total == 0:
        # Nothing in common was seen: less than one combination of the sampled tuples.
        seen = math.prod(max(1.0, p.rows) for p in profiles)
        return Estimate(min(1.0, sample / seen), 1.0)
    sampled = product[~heavy]
    chance = math.sqrt(sample * (sample - 1) * float((sampled**2).sum())) / total
    counts = sum(1 / max(1.0, p.rows / p.sample) for p in profiles)
    return Estimate(total, math.hypot(chance, math.sqrt(counts)))


def _in_both(few: Hashes, many: Hashes) -> Hashes:
    """The hashes that two ordered arrays have in common."""
    if len(many) == 0:
        return many
    at = np.minimum(np.searchsorted(many, few), len(many) - 1)
    shared: Hashes = few[many[at] == few]
    return shared


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """What an operator of the running plan did lately, per tick, and what it keeps."""

    label: str
    taken: float
    given: float
    probed: float
    inserted: float
    matched: float
    seconds_per_row: float | None = None
    purge_seconds: float | None = None
    state_rows: int = 0
    state_bytes: int = 0


def _frozen() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """One snapshot. Streams go by alias, keys and selectivities by the text of the expression.

    `batch_ticks` is how much time a batch spans, on average; `moment` the instant up to which streams were seen.
    `linked` is how many seconds per tick the running plan's rows took on links between sites, if there are any.
    """

    streams: Mapping[str, StreamStatistics] = field(default_factory=_frozen)
    keys: Mapping[str, KeyProfile] = field(default_factory=_frozen)
    selectivities: Mapping[str, Estimate] = field(default_factory=_frozen)
    operators: tuple[OperatorStatistics, ...] = ()
    batch_ticks: float | None = None
    moment: int = 0
    linked: float | None = None

    @property
    def state_bytes(self) -> int:
        """What the running plan keeps."""
        return sum(o.state_bytes for o in self.operators)

    def equality(self, terms: Sequence[str]) -> Estimate | None:
        """The selectivity of the equality of several keys; None if one of them was never looked at."""
        profiles = [self.keys[t] for t in terms if t in self.keys]
        if len(profiles) < len(terms) or any(p.rows == 0 for p in profiles):
            return None
        return common(profiles)


UNKNOWN = Statistics()
"""Nothing is known yet."""
