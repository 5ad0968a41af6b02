"""The yardstick: a window join of sorted segments in plain NumPy, with nothing around it.

Binary search with sorted probes, expand, filter by time, append, merge. No hash, no payload, no order, no Arrow, no
check that anything is right; what the engine adds to this is its overhead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Run = tuple[Integers, Integers, Integers]
"""Keys in order, with starts and ends."""

TIER = 4


class BareJoin:
    """Two sides of segments; `push` joins a batch with the other side and stores it."""

    def __init__(self) -> None:
        self.sides: tuple[list[Run], list[Run]] = ([], [])

    def push(self, side: int, keys: Integers, starts: Integers, ends: Integers) -> Run:
        """The pairs with the other side: their keys, starts and ends."""
        order = np.argsort(keys)
        run = keys[order], starts[order], ends[order]
        pairs = [_probe(run, segment) for segment in self.sides[1 - side]]
        if len(keys):
            self._store(side, run)
        if not pairs:
            none = np.empty(0, np.int64)
            return none, none, none
        return tuple(np.concatenate(parts) for parts in zip(*pairs, strict=True))  # type: ignore[return-value]

    def expire(self, before: int) -> None:
        """Forgets what ended before an instant."""
        for side in self.sides:
            side[:] = [run for run in side if int(run[2].max()) > before]

    def _store(self, side: int, run: Run) -> None:
        segments = self.sides[side]
        segments.append(run)
        like = [s for s in segments if len(s[0]).bit_length() // 2 == len(run[0]).bit_length() // 2]
        if len(like) >= TIER:
            keys, starts, ends = (np.concatenate(parts) for parts in zip(*like, strict=True))
            order = np.argsort(keys, kind="stable")
            segments[:] = [s for s in segments if all(s is not other for other in like)]
            segments.append((keys[order], starts[order], ends[order]))


def _probe(run: Run, segment: Run) -> Run:
    keys, starts, ends = run
    low = np.searchsorted(segment[0], keys, side="left")
    counts = np.searchsorted(segment[0], keys, side="right") - low
    total = int(counts.sum())
    offsets = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    here = np.repeat(np.arange(len(keys)), counts)
    there = np.repeat(low, counts) + offsets
    start = np.maximum(starts[here], segment[1][there])
    end = np.minimum(ends[here], segment[2][there])
    keep = start < end
    return keys[here[keep]], start[keep], end[keep]
