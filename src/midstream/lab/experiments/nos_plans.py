"""`nos-plans`: how far greedy plans, and plans improved by the joint cost, are from the best plan.

The paper calls greedy plans efficient, not optimal, and gives no figures. Here the best plan is found exactly, for up
to six streams, over random statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from midstream.lab.experiments.nos_workload import streams
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.papers.node_operator_sets.cost import Costs, joint_cost
from midstream.lab.papers.node_operator_sets.exact import exact_plan
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.joint import improved_plan
from midstream.lab.papers.node_operator_sets.modification import Setting
from midstream.lab.papers.node_operator_sets.network import node_per_stream
from midstream.lab.papers.node_operator_sets.query_shapes import chain, clique, cycle, star
from midstream.lab.papers.node_operator_sets.statistics import Statistics, StreamStatistics
from midstream.optimizer.sites.links import Link

SIZES = (3, 4, 5, 6)
SHAPES = (chain, star, cycle, clique)
GREEDY, IMPROVED = "greedy", "improved by the joint cost"


def nos_plans(sizes: Sequence[int] = SIZES, cases: int = 60, seed: int = 0) -> Report:
    """Compares plans by their joint cost."""
    report = Report(
        "nos-plans",
        "Greedy plans against the best (Tran and Lee, section 3)",
        {
            "cases": f"{cases} for each number of streams: chains, stars, cycles and cliques in turn",
            "streams": "20 to 1000 rows/s, windows of 0.5 to 10 s, rows of 20 to 600 bytes, factors 0.0001 to 0.03",
            "lines": "0.5 to 50 ms, 128 KB/s to 10 MB/s",
            "prices": "0.01 to 1 µs per compared pair, 0.1 to 10 µs per update",
            "cost": "joint: what several heads share is paid once",
        },
    )
    ratios: dict[str, list[list[float]]] = {GREEDY: [], IMPROVED: []}
    for count in sizes:
        random = Random(f"{seed} {count}")
        found = [_ratios(*draw(random, count, i)) for i in range(cases)]
        for number, kind in enumerate(ratios):
            ratios[kind].append([pair[number] for pair in found])
    for place, count in enumerate(sizes):
        _verdict(report, count, ratios[GREEDY][place], ratios[IMPROVED][place])
    _figure(report, sizes, ratios)
    return report


def draw(random: Random, count: int, number: int) -> tuple[Setting, Statistics]:
    """A random case."""
    names = streams(count)
    found = {}
    for name in names:
        rate = random.choice([20, 50, 100, 200, 500, 1000]) * random.uniform(0.8, 1.2)
        window, size = random.choice([0.5, 2, 10]), random.choice([20, 150, 600])
        found[name] = StreamStatistics(rate, rate * window, size, 10 ** random.uniform(-4, -1.5))
    line = Link(random.choice([0.0005, 0.005, 0.05]), random.choice([128e3, 1e6, 1e7]))
    prices = 10 ** random.uniform(-8, -6), 10 ** random.uniform(-7, -5)
    return Setting(SHAPES[number % len(SHAPES)](names), Costs(*prices, node_per_stream(names, line))), found


def _ratios(setting: Setting, known: Statistics) -> tuple[float, float]:
    arguments = setting.conditions, known, setting.costs
    best = joint_cost(exact_plan(*arguments), known, setting.costs)
    greedy, improved = greedy_plan(*arguments), improved_plan(*arguments)
    return joint_cost(greedy, known, setting.costs) / best, joint_cost(improved, known, setting.costs) / best


def _said(ratios: Sequence[float]) -> str:
    return f"median {np.median(ratios):.2f}, 95 % {np.quantile(ratios, 0.95):.2f}, worst {max(ratios):.1f}"


def _verdict(report: Report, count: int, greedy: Sequence[float], improved: Sequence[float]) -> None:
    report.verdict(
        f"{count} streams: greedy plans cost at most twice the best, in the median",
        "efficient, not necessarily optimal",
        _said(greedy),
        bool(np.median(greedy) <= 2),
        kind="own",
        value=float(np.median(greedy)),
    )
    report.verdict(
        f"{count} streams: plans that know what heads share are within a tenth of the best, in the median",
        "not considered",
        _said(improved),
        bool(np.median(improved) <= 1.1) and min(improved) > 1 - 1e-6,
        kind="own",
        value=float(np.median(improved)),
    )


def _figure(report: Report, sizes: Sequence[int], ratios: dict[str, list[list[float]]]) -> None:
    series = []
    for kind, found in ratios.items():
        series.append(Series(f"{kind}, median", list(sizes), [float(np.median(r)) for r in found]))
        series.append(Series(f"{kind}, 95 %", list(sizes), [float(np.quantile(r, 0.95)) for r in found]))
    plot = Plot("Joint cost against the best plan's", "streams", "times the least cost", series)
    report.figures.append(Figure(plot, "Section 3", ("no figures are published",)))
