"""How fast streams came lately, for queries that nobody watches: by the rows and registers of the last batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from midstream.algebra.statistics import UNKNOWN, Estimate, Statistics, StreamStatistics


def arrivals(recent: Sequence[Mapping[str, Any]], aliases: Mapping[str, str]) -> Statistics:
    """Rates per tick of streams by alias, from the newest rows of the metrics table; `aliases` are of which streams.

    >>> batches = [{"rows": {"A": 5}, "registers": {"A": 10}}, {"rows": {"A": 40}, "registers": {"A": 30}}]
    >>> found = arrivals(batches, {"a": "A", "b": "B"})
    >>> found.streams["a"].rate.value, found.batch_ticks, "b" in found.streams
    (2.0, 20.0, False)
    """
    streams, spans = {}, []
    for alias, name in aliases.items():
        known = [(batch["registers"].get(name), batch["rows"].get(name, 0)) for batch in recent]
        passed = [register for register, _ in known if register is not None]
        since = next((i for i, (register, _) in enumerate(known) if register is not None), len(known))
        span, rows = (passed[-1] - passed[0] if passed else 0), sum(count for _, count in known[since + 1 :])
        if span > 0 and rows:
            streams[alias] = StreamStatistics(Estimate(rows / span, rows**-0.5))
            spans.append(span / max(1, len(passed) - 1))
    return Statistics(streams, batch_ticks=max(spans)) if streams else UNKNOWN
