"""Statistics as plain values, for people and programs."""

from __future__ import annotations

from typing import Any

from midstream.algebra.statistics import Statistics
from midstream.optimizer.explanation import heavy_hitters


def statistics_summary(statistics: Statistics) -> dict[str, Any]:
    """Rates, populations, selectivities and skews, with how sure they are."""
    return {
        "streams": {
            alias: {
                "rate": s.rate.value,
                "confidence": s.rate.confidence,
                "burstiness": s.burstiness,
                "population": s.population,
            }
            for alias, s in statistics.streams.items()
        },
        "selectivities": {
            text: {"value": e.value, "confidence": e.confidence} for text, e in statistics.selectivities.items()
        },
        "keys": {
            text: {"heavy_hitters": heavy_hitters(p), "skew": p.skew, "rows": p.rows}
            for text, p in statistics.keys.items()
        },
    }


def operators_summary(statistics: Statistics) -> list[dict[str, Any]]:
    """What the operators of the running plan did lately, per tick, what they took and what they keep."""
    names = ("label", "taken", "given", "probed", "inserted", "matched", "seconds_per_row", "purge_seconds")
    return [
        {**{name: getattr(o, name) for name in names}, "state_rows": o.state_rows, "state_bytes": o.state_bytes}
        for o in statistics.operators
    ]
