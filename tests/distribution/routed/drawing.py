"""Random join graphs, statistics and prices for routed joins."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from midstream.lab.papers.node_operator_sets.cost import Costs
from midstream.lab.papers.node_operator_sets.network import node_per_stream
from midstream.lab.papers.node_operator_sets.query_shapes import chain, clique, cycle, star
from midstream.lab.papers.node_operator_sets.statistics import Statistics, StreamStatistics
from midstream.optimizer.routed.conditions import RoutedConditions
from midstream.optimizer.sites.links import Link

SHAPES = (chain, star, cycle, clique)
Case = tuple[RoutedConditions, Statistics, Costs]


def names(count: int) -> tuple[str, ...]:
    return tuple(f"S{i + 1}" for i in range(count))


def draw_case(random: Random, count: int) -> Case:
    """Few different values, so that ties are common."""
    conditions = random.choice(SHAPES)(names(count))
    alike, by_pair = random.random() < 0.3, random.random() < 0.3
    pairs = {pair: 10 ** random.uniform(-4, -1) for pair in sorted(conditions.sets, key=sorted)}
    statistics = {}
    for stream in conditions.streams:
        noise = 1.0 if alike else random.uniform(0.8, 1.2)
        rate, window = random.choice([50, 100, 200]) * noise, random.choice([0.5, 2, 10])
        selectivities = {}
        if by_pair:
            selectivities = {next(iter(p - {stream})): value for p, value in pairs.items() if stream in p}
        factor = 0.01 if alike else 10 ** random.uniform(-4, -1)
        size = random.choice([20, 150, 600])
        statistics[stream] = StreamStatistics(rate, rate * window, size, factor, selectivities)
    line = draw_line(random)
    prices = 1e-7 * 10 ** random.uniform(-1, 1), 1e-6 * 10 ** random.uniform(-1, 1)
    return conditions, statistics, Costs(*prices, node_per_stream(conditions.streams, line))


def draw_line(random: Random) -> Link:
    return Link(random.choice([0.0005, 0.005, 0.05]), random.choice([128e3, 1e6, 1e7]))


def draw_change(random: Random, own: StreamStatistics) -> StreamStatistics:
    """Another rate, a selectivity alone, a tuple size alone, a window, two at once, or all."""

    def grown() -> float:
        return random.choice([0.25, 0.5, 1.0, 2.0, 4.0, 10 ** random.uniform(-0.7, 0.7)])

    changes = [
        lambda: own.grown(own.rate * grown()),
        lambda: replace(
            own,
            factor=own.factor * grown(),
            selectivities={s: v * grown() for s, v in own.selectivities.items()},
        ),
        lambda: replace(own, size=own.size * grown()),
        lambda: replace(own, rows=own.rows * grown()),
        lambda: replace(own, rate=own.rate * grown(), size=own.size * grown()),
        lambda: replace(
            own, rate=own.rate * grown(), rows=own.rows * grown(), size=own.size * grown(), factor=own.factor * grown()
        ),
    ]
    return random.choice(changes)()
