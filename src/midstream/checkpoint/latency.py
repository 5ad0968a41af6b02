"""How far results are behind: in event time, and by the clock.

In event time a query is behind by what lies between the newest row of its streams and the instant before which its
results are complete. By the clock, its latency at a batch is the time from the beginning of the batch that brought the
first row at or after that instant, to the commit of the batch that made results complete up to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa


def latencies(table: pa.Table, streams: Mapping[str, Sequence[str]]) -> dict[str, list[float | None]]:
    """Seconds by query, for each row of the metrics table; None where nothing is complete yet or everything is.

    `streams` are those that each query reads.
    """
    at = table.column("at").cast(pa.int64()).to_numpy() / 1e6
    seconds = [dict(row or ()) for row in table.column("seconds").to_pylist()]
    began = at - np.array([row.get("batch", row.get("job", 0.0)) for row in seconds])
    latest = [dict(row or ()) for row in table.column("latest").to_pylist()]
    released = [dict(row or ()) for row in table.column("released").to_pylist()]
    found: dict[str, list[float | None]] = {}
    for query, read in streams.items():
        newest = np.maximum.accumulate(
            [max((row[s] for s in read if s in row), default=np.iinfo(np.int64).min) for row in latest], dtype=np.int64
        )
        found[query] = [
            None if query not in row else _since(began, newest, row[query], here, float(at[here]))
            for here, row in enumerate(released)
        ]
    return found


def _since(began: np.ndarray, newest: np.ndarray, complete: int, here: int, now: float) -> float:
    """How long ago the batch began that brought the first row at or after the instant before which all is complete."""
    brought = min(int(np.searchsorted(newest, complete)), here)
    return max(0.0, round(now - float(began[brought]), 6))
