"""The setting of Tran and Lee's experiments: streams joined on one key, one of which changes its rate.

Four or eight streams of 100 rows/s on a fully connected network, joined by one attribute; the second stream alternates
between 50 and 200 rows/s. The paper leaves the costs of a comparison and of a window update open; here they are 1 and
10 microseconds.
"""

from __future__ import annotations

from typing import Any

from midstream.lab.papers.node_operator_sets.cost import Costs
from midstream.lab.papers.node_operator_sets.modification import Setting
from midstream.lab.papers.node_operator_sets.network import node_per_stream
from midstream.lab.papers.node_operator_sets.query_shapes import clique
from midstream.lab.papers.node_operator_sets.statistics import StreamStatistics
from midstream.optimizer.sites.links import Link

RATE, LOW, HIGH = 100.0, 50.0, 200.0
SIZE = 150.0
WINDOW = 0.5
SELECTIVITY = 0.01
LINE = Link(latency=0.005, rate=1024 * 1000 / 8)
PROBE, UPDATE = 1e-6, 1e-5
CHANGING = "S2"


def streams(count: int) -> tuple[str, ...]:
    """The names of the joined streams, which are also those of their nodes."""
    return tuple(f"S{i + 1}" for i in range(count))


def setting(count: int) -> Setting:
    """The join graph, prices and network."""
    names = streams(count)
    return Setting(clique(names), Costs(PROBE, UPDATE, node_per_stream(names, LINE)))


def at_rate(rate: float) -> StreamStatistics:
    """A stream at a rate."""
    return StreamStatistics(rate, rate * WINDOW, SIZE, SELECTIVITY)


def statistics(count: int, changing: float) -> dict[str, StreamStatistics]:
    """All streams, with the changing one at a rate."""
    return {name: at_rate(changing if name == CHANGING else RATE) for name in streams(count)}


def settings(**more: Any) -> dict[str, Any]:
    """What every report of these experiments says."""
    return {
        "streams": f"{RATE:g} rows/s, rows of {SIZE:g} bytes, windows of {1000 * WINDOW:g} ms, "
        f"selectivity factor {SELECTIVITY:g}, one join key",
        "change": f"{CHANGING} goes from {LOW:g} to {HIGH:g} rows/s or back",
        "network": f"fully connected, {1000 * LINE.latency:g} ms, 1024 Kbps a line",
        "prices": f"{1e6 * PROBE:g} µs per compared pair (nested loops), {1e6 * UPDATE:g} µs per window update; "
        "the paper gives none",
        **more,
    }
