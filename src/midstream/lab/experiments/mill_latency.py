"""`mill-latency`: how long results wait, with and without timestamps on demand, depth first and breadth first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from midstream.lab.experiments.mill_graphs import (
    COST,
    SEED,
    Setting,
    Traffic,
    latent_union,
    simple_union,
    simulate,
)
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.mill.virtual_time import Mode, VirtualRun, VirtualSource, stamped
from midstream.lab.mill.waiting import Tuple
from midstream.scheduling.graph import QueryGraph
from midstream.scheduling.schedule import schedule_of

SECONDS = 8.0
BURSTS = (1, 5, 10, 20, 50, 100)
TABLES = ("dfs", "bfs")
MODES: tuple[Mode, ...] = ("none", "heartbeats", "on demand")
FORMULAS = {"dfs": (1.0, 1.0), "bfs": (1.5, 0.5)}
"""How the mean latency of a burst grows with its size, in executions: so much per tuple, and so much besides."""


def mill_latency(seconds: float = SECONDS, bursts: Sequence[int] = BURSTS, seed: int = SEED) -> Report:
    """Figure 14 and the two formulas of section 6."""
    report = Report(
        "mill-latency",
        "Latency of a union with and without timestamps on demand",
        {
            "graph": "two streams, a selection that passes 95 % on each, their union",
            "rates": "1000/s and 0.5/s, Poisson",
            "virtual seconds": seconds,
            "cost of an execution": f"{COST // 1000} microseconds of virtual time",
            "heartbeats": "every 0.1 s on each stream",
            "tuple": "one row",
        },
    )
    _idle_waiting(report, seconds, seed)
    _bursts_on_demand(report, seconds, bursts, seed)
    _bursts_by_formula(report, bursts)
    return report


def _idle_waiting(report: Report, seconds: float, seed: int) -> None:
    setting = Setting(simple_union, {"a": Traffic(1000), "b": Traffic(0.5)}, seconds, seed)
    means = {(mode, name): simulate(setting, mode, name).mean_latency / 1e6 for mode, name in product(MODES, TABLES)}
    for name in TABLES:
        ratio = means["none", name] / means["on demand", name]
        report.verdict(
            f"timestamps on demand cut the mean latency at least 100 times ({name})",
            "orders of magnitude (figure 14a has a logarithmic axis)",
            f"{means['none', name]:.1f} ms against {means['on demand', name]:.4f} ms: {ratio:,.0f} times",
            ratio >= 100,
            value=ratio,
        )
        beats = means["heartbeats", name] / means["on demand", name]
        report.verdict(
            f"timestamps on demand beat periodic heartbeats, at least ten times ({name})",
            "less latency than with periodic heartbeats",
            f"{means['heartbeats', name]:.1f} ms with heartbeats: {beats:,.0f} times",
            beats >= 10,
            value=beats,
        )
    apart = abs(means["none", "dfs"] - means["none", "bfs"]) / means["none", "dfs"]
    report.verdict(
        "without timestamps on demand, depth first and breadth first have similar latencies",
        "similar",
        f"{100 * apart:.3f} % apart",
        apart < 0.05,
    )
    series = [
        Series(name, list(range(len(MODES))), [math.log10(means[mode, name]) for mode in MODES]) for name in TABLES
    ]
    report.figures.append(
        Figure(
            Plot("Mean latency (0: none, 1: heartbeats, 2: on demand)", "timestamps", "log10 of milliseconds", series),
            "Figure 14a",
            ("both strategies alike without timestamps on demand", "a dramatic drop with them, on a logarithmic axis"),
        )
    )


def _bursts_on_demand(report: Report, seconds: float, bursts: Sequence[int], seed: int) -> None:
    means: dict[str, list[float]] = {}
    for name in TABLES:
        traffic = [{"a": Traffic(1000, n), "b": Traffic(0.5)} for n in bursts]
        settings = [Setting(simple_union, each, seconds, seed) for each in traffic]
        means[name] = [simulate(setting, "on demand", name).mean_latency / 1e6 for setting in settings]
    for name in TABLES:
        report.verdict(
            f"latency grows with the size of bursts ({name})",
            "increasing (figure 14b)",
            ", ".join(f"{n}: {mean:.3f} ms" for n, mean in zip(bursts, means[name], strict=True)),
            means[name] == sorted(means[name]),
        )
    slopes = {name: (m[-1] - m[0]) / (bursts[-1] - bursts[0]) for name, m in means.items()}
    report.verdict(
        "bursts affect breadth first more severely than depth first, by a half as with latent timestamps",
        "steeper for breadth first; 1.5 times with latent timestamps, by the formulas",
        f"{1000 * slopes['bfs']:.1f} against {1000 * slopes['dfs']:.1f} microseconds per tuple of a burst: "
        f"{slopes['bfs'] / slopes['dfs']:.2f} times",
        abs(slopes["bfs"] / slopes["dfs"] - 1.5) <= 0.1,
        value=slopes["bfs"] / slopes["dfs"],
    )
    report.figures.append(
        Figure(
            Plot(
                "Mean latency by size of bursts, timestamps on demand",
                "tuples in a burst",
                "milliseconds",
                [Series(name, list(bursts), means[name]) for name in TABLES],
            ),
            "Figure 14b",
            ("both grow with the size of bursts", "breadth first grows faster"),
        )
    )


def _bursts_by_formula(report: Report, bursts: Sequence[int]) -> None:
    """One burst in the first stream, latent timestamps, every tuple passing: the formulas hold to the step."""
    for name, (each, besides) in FORMULAS.items():
        measured = [_one_burst(n, name) / COST for n in bursts]
        expected = [each * n + besides for n in bursts]
        report.verdict(
            f"with latent timestamps a burst of n tuples takes {'(n + 1)c' if name == 'dfs' else '(1.5n + 0.5)c'}"
            f" on average ({name})",
            ", ".join(f"{n}: {value:g}c" for n, value in zip(bursts, expected, strict=True)),
            ", ".join(f"{n}: {value:g}c" for n, value in zip(bursts, measured, strict=True)),
            measured == expected,
            kind="check",
        )


def _one_burst(size: int, table: str) -> float:
    graph, runs = QueryGraph(), list[VirtualRun]()

    def sink(item: Tuple) -> None:
        runs[0].sink(item)

    latent_union(graph, sink)
    sources = {"a": VirtualSource(stamped([0] * size), "latent"), "b": VirtualSource([], "latent")}
    runs.append(VirtualRun(graph, sources, cost=COST, mode="none", schedule=schedule_of(table)))
    return runs[0].run().mean_latency
