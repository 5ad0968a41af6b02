"""What an execution knows about its streams by itself: how fast they come, and how often keys meet.

States are sorted by the hash of a key, so the values of the key and how many tuples have each can simply be counted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from midstream.algebra.statistics import Estimate, KeyProfile, Statistics, StreamStatistics
from midstream.algebra.time import BEGINNING
from midstream.migration.contents import held_states
from midstream.operators.box import Box
from midstream.operators.state.sorted_state import SortedState


def live_statistics(
    box: Box, counts: Mapping[str, int], firsts: Mapping[str, int], lasts: Mapping[str, int], batch_ticks: float | None
) -> Statistics:
    """Rates from how many elements came in what time, key profiles from what is stored."""
    streams = {}
    for alias, count in counts.items():
        span = max(1, lasts[alias] - firsts[alias])
        streams[alias] = StreamStatistics(Estimate(count / span, 1 / max(1, count) ** 0.5))
    keys: dict[str, KeyProfile] = {}
    for held in held_states(box):
        if held.port is not None and len(held.state.key) == 1 and held.state.rows:
            keys.setdefault(held.state.key[0], _profile(held.state))
    moment = max(lasts.values(), default=BEGINNING)
    return Statistics(streams, keys, batch_ticks=batch_ticks, moment=moment)


def _profile(state: SortedState) -> KeyProfile:
    hashes, numbers = np.unique(np.concatenate([s.hashes for s in state.segments]), return_counts=True)
    total = int(numbers.sum())
    return KeyProfile(hashes, numbers / total, np.ones(len(hashes), bool), 1, float(total))
