"""The workload of GenMig's experiments (section 5), in milliseconds.

Four streams of 5,000 random numbers each, 100 a second: A and B uniform between 0 and 500, C and D between 0 and 1000.
They are joined on the number, with one window of 10 seconds for all. The old plan is left-deep and meets the large
intermediate result of A and B first, the new one is right-deep. The migration starts after 20 seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from midstream.lab.experiments.arrivals import poisson
from midstream.lab.experiments.migration_run import Workload, every

WINDOW = 10_000
START = 20_000
END = 50_000
STEP = 200
SEED = 2006
OLD, NEW = "(((A B) C) D)", "(A (B (C D)))"
LARGEST = {"A": 500, "B": 500, "C": 1000, "D": 1000}
INTERARRIVAL = 10.0

QUERY = "SELECT A.x AS a, B.x AS b, C.x AS c, D.x AS d FROM {sources} WHERE A.x = B.x AND B.x = C.x AND C.x = D.x"


def workload(seed: int) -> Workload:
    """The streams and the query."""
    rng = np.random.default_rng(seed)
    streams = {}
    for name, largest in LARGEST.items():
        times = poisson(rng, INTERARRIVAL, END)
        streams[name] = pa.table({"ts": times, "x": rng.integers(0, largest + 1, len(times))})
    sources = ", ".join(f"{name} [RANGE {WINDOW}]" for name in LARGEST)
    return Workload(QUERY.format(sources=sources), streams, every(STEP, END))


def settings(seed: int) -> dict[str, Any]:
    """What a report says about the workload."""
    return {
        "query": QUERY.format(sources=f"A, B, C, D [RANGE {WINDOW} ms]"),
        "values": "uniform integers, 0 to 500 in A and B, 0 to 1000 in C and D",
        "arrivals": f"Poisson, mean interarrival time {INTERARRIVAL:g} ms in every stream, seed {seed}",
        "window w": f"{WINDOW} ms",
        "run": f"{END} ms, migration from {OLD} to {NEW} at {START} ms",
        "batch": f"{STEP} ms of application time",
    }
