"""Random arrivals, the same in every run."""

from __future__ import annotations

import numpy as np

from midstream.operators.elements import Ticks


def poisson(rng: np.random.Generator, interarrival: float, end: int) -> Ticks:
    """Times of a Poisson process before an end, in whole milliseconds."""
    expected = end / interarrival
    gaps = rng.exponential(interarrival, int(expected + 8 * expected**0.5 + 16))
    times = np.cumsum(gaps)
    return np.floor(times[times < end]).astype(np.int64)
