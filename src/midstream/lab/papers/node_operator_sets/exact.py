"""The plan of least joint cost, found exactly for few streams.

Given a price for each shared item (a stream shipped to a node, a window kept at a node), the best way of one head is a
shortest path over (streams met, place). Splitting each item's cost among the heads gives a lower bound on every plan;
the split is improved by subgradients, and where bound and best plan found so far do not meet, items are decided in or
out. How often partial results match must not depend on the order of probes: both ends of a condition know the same
selectivity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from midstream.errors import QueryError
from midstream.lab.papers.node_operator_sets.cost import DESTINATION, SOURCE, Costs, joint_cost
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.statistics import Flow, Statistics, after, starting
from midstream.optimizer.routed.conditions import RoutedConditions
from midstream.optimizer.routed.plan import HeadPlan, OneWay

MOST = 6
"""Up to how many streams the search is exact within reasonable time."""

CLOSE = 1e-9
"""Bounds that differ by less, relative to the cost, meet."""

Item = tuple[str, str, str]
"""What heads share: `("ship", stream, node)` or `("keep", stream, node)`."""

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Edges:
    """One-way joins between states as columns: private cost, and up to two shared items (the last item is free)."""

    source: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    private: list[float] = field(default_factory=list)
    head: list[int] = field(default_factory=list)
    ship: list[int] = field(default_factory=list)
    keep: list[int] = field(default_factory=list)
    joins: list[OneWay] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Layer:
    """All edges that make paths one probe longer."""

    source: Places
    target: Places
    private: Numbers
    ship: Places
    keep: Places
    joins: tuple[OneWay, ...]


class _Paths:
    """The ways of all heads as paths, and their shared items."""

    def __init__(self, conditions: RoutedConditions, statistics: Statistics, costs: Costs) -> None:
        self.conditions, self.statistics, self.costs = conditions, statistics, costs
        self.items: dict[Item, int] = {}
        self.states: dict[tuple[int, frozenset[str], str], int] = {}
        self.heads = len(conditions.streams)
        self.starts: list[int] = []
        layers = [_Edges() for _ in conditions.streams[1:]]
        for number, head in enumerate(conditions.streams):
            self._expand(number, head, layers)
        self.free = len(self.items)
        self.layers = [self._layer(edges) for edges in layers]
        self.ends = [
            np.array([i for (h, met, _), i in self.states.items() if h == head and len(met) == self.heads - 1])
            for head in range(self.heads)
        ]

    @cached_property
    def item_costs(self) -> Numbers:
        """What each item costs once."""
        return np.array([self._item_cost(item) for item in self.items])

    def _item_cost(self, item: Item) -> float:
        kind, stream, node = item
        own = self.statistics[stream]
        if kind == "keep":
            return own.rate * self.costs.update
        network = self.costs.network
        return network.time(network.home(stream), node, own.rate * own.size)

    def _item(self, kind: str, stream: str, node: str) -> int:
        if kind == "ship" and self.costs.network.home(stream) == node:
            return -1
        return self.items.setdefault((kind, stream, node), len(self.items))

    def _state(self, head: int, met: frozenset[str], node: str) -> int:
        return self.states.setdefault((head, met, node), len(self.states))

    def _flow(self, head: str, met: frozenset[str], node: str) -> Flow:
        flow = starting(head, self.statistics[head], self.costs.network)
        for stream in sorted(met, key=self.conditions.numbers.__getitem__):
            flow = after(flow, stream, self.statistics[stream], node)
        return Flow(head, flow.met, flow.rate, flow.size, flow.factor, node)

    def _expand(self, number: int, head: str, layers: list[_Edges]) -> None:
        home = self.costs.network.home(head)
        reached = {(frozenset[str](), home)}
        self.starts.append(self._state(number, frozenset(), home))
        for edges in layers:
            following = set()
            for met, node in sorted(reached, key=lambda s: (sorted(s[0]), s[1])):
                for edge in self._edges(number, head, met, node, edges):
                    following.add(edge)
            reached = following

    def _edges(
        self, number: int, head: str, met: frozenset[str], node: str, edges: _Edges
    ) -> Iterator[tuple[frozenset[str], str]]:
        flow, network = self._flow(head, met, node), self.costs.network
        waiting = [s for s in self.conditions.streams if s != head and s not in met]
        for target in self.conditions.next({head, *met}, waiting):
            own, home = self.statistics[target], network.home(target)
            for placement, place in ((SOURCE, node), (DESTINATION, home)):
                private, ship = flow.rate * self.costs.probe * own.rows, -1
                if placement is SOURCE:
                    ship = self._item("ship", target, node)
                elif met:
                    private += self.costs.ship_flow(flow, target)
                else:
                    ship = self._item("ship", head, home)
                edges.source.append(self._state(number, met, node))
                edges.target.append(self._state(number, met | {target}, place))
                edges.private.append(private)
                edges.head.append(number)
                edges.ship.append(ship)
                edges.keep.append(self._item("keep", target, place))
                edges.joins.append(OneWay(target, placement))
                yield met | {target}, place

    def _layer(self, edges: _Edges) -> _Layer:
        width = self.free + 1
        heads, ship = np.array(edges.head), np.array(edges.ship)
        # Edges in order of the state they lead to, so that the best into each state is one reduction.
        order = np.argsort(edges.target, kind="stable")
        return _Layer(
            np.array(edges.source)[order],
            np.array(edges.target)[order],
            np.array(edges.private)[order],
            (heads * width + np.where(ship < 0, self.free, ship))[order],
            (heads * width + np.array(edges.keep))[order],
            tuple(edges.joins[i] for i in order),
        )

    def cheapest(self, prices: Numbers) -> tuple[float, list[list[tuple[OneWay, int, int, float]]]]:
        """The cheapest way of every head under prices per head and item: their sum, and the edges of each."""
        flat = prices.ravel()
        best = np.full(len(self.states), np.inf)
        best[self.starts] = 0.0
        totals = []
        for layer in self.layers:
            cost = best[layer.source] + layer.private + flat[layer.ship] + flat[layer.keep]
            cuts = np.flatnonzero(np.append(True, layer.target[1:] != layer.target[:-1]))
            best[layer.target[cuts]] = np.minimum.reduceat(cost, cuts)
            totals.append(cost)
        bound, ways = 0.0, []
        for ends in self.ends:
            state = int(ends[np.argmin(best[ends])])
            bound += float(best[state])
            ways.append(self._back(state, totals))
        return bound, ways

    def _back(self, state: int, totals: list[Numbers]) -> list[tuple[OneWay, int, int, float]]:
        way = []
        for layer, cost in zip(reversed(self.layers), reversed(totals), strict=True):
            low, high = np.searchsorted(layer.target, [state, state + 1])
            edge = int(low + np.argmin(cost[low:high]))
            width = self.free + 1
            ship, keep = int(layer.ship[edge] % width), int(layer.keep[edge] % width)
            way.append((layer.joins[edge], ship, keep, float(layer.private[edge])))
            state = int(layer.source[edge])
        return way[::-1]


@dataclass(slots=True)
class _Found:
    cost: float
    plan: JoinPlan


class _Search:
    """Decides items in or out, depth first, wherever the bound leaves room below the best plan found."""

    def __init__(self, paths: _Paths, first: JoinPlan) -> None:
        self.paths = paths
        self.best = _Found(joint_cost(first, paths.statistics, paths.costs), first)
        self.nodes = 0

    def run(self) -> JoinPlan:
        """The best plan."""
        split = np.repeat(self.paths.item_costs[None, :] / self.paths.heads, self.paths.heads, axis=0)
        self._visit(split, np.zeros(self.paths.free, np.int8), 120)
        return self.best.plan

    def _visit(self, split: Numbers, decided: npt.NDArray[np.int8], rounds: int) -> None:
        self.nodes += 1
        split, bound, open_item = self._bounded(split, decided, rounds)
        if bound >= self.best.cost * (1 - CLOSE) or open_item is None:
            return
        for decision in (1, -1):
            branch = decided.copy()
            branch[open_item] = decision
            self._visit(split.copy(), branch, 40)

    def _bounded(self, split: Numbers, decided: npt.NDArray[np.int8], rounds: int) -> tuple[Numbers, float, int | None]:
        """A better split, its bound, and the item that heads disagree on most; None if nothing is open."""
        paths, costs = self.paths, self.paths.item_costs
        paid = float(costs[decided == 1].sum())
        best_bound, best_split, open_item, scale = -np.inf, split, None, 1.0
        for _ in range(rounds):
            prices = np.zeros((paths.heads, paths.free + 1))
            prices[:, :-1] = split
            prices[:, :-1][:, decided == 1] = 0.0
            prices[:, :-1][:, decided == -1] = np.inf
            bound, ways = paths.cheapest(prices)
            bound += paid
            used = np.zeros((paths.heads, paths.free + 1), bool)
            for head, way in enumerate(ways):
                for _, ship, keep, _ in way:
                    used[head, [ship, keep]] = True
            self._note(ways, used[:, :-1])
            count = used[:, :-1].sum(axis=0)
            if bound > best_bound:
                best_bound, best_split = bound, split.copy()
                loose = (decided == 0) & (count > 0) & (count < paths.heads)
                open_item = int(np.argmax(np.where(loose, costs, -1.0))) if loose.any() else None
            else:
                scale *= 0.9
            if bound >= self.best.cost * (1 - CLOSE) or not np.isfinite(bound):
                return best_split, bound, open_item
            # An item used by some heads only: those that use it pay more, the others less; shares stay a split.
            direction = used[:, :-1] - count[None, :] / paths.heads
            norm = float((direction**2).sum())
            if norm == 0:
                break
            split = split + scale * (self.best.cost - bound) / norm * direction
            split = _projected(split, costs)
        if open_item is None and best_bound < self.best.cost * (1 - CLOSE):
            rest = np.flatnonzero(decided == 0)
            open_item = int(rest[np.argmax(costs[rest])]) if len(rest) else None
        return best_split, best_bound, open_item

    def _note(self, ways: list[list[tuple[OneWay, int, int, float]]], used: npt.NDArray[np.bool_]) -> None:
        cost = sum(private for way in ways for *_, private in way) + float(self.paths.item_costs[used.any(0)].sum())
        if cost < self.best.cost * (1 - CLOSE):
            heads = zip(self.paths.conditions.streams, ways, strict=True)
            plan = JoinPlan(tuple(HeadPlan(head, tuple(edge[0] for edge in way)) for head, way in heads))
            self.best = _Found(joint_cost(plan, self.paths.statistics, self.paths.costs), plan)


def _projected(split: Numbers, costs: Numbers) -> Numbers:
    """The nearest shares that are not negative and add up to each item's cost."""
    ordered = -np.sort(-split, axis=0)
    sums = (ordered.cumsum(axis=0) - costs[None, :]) / np.arange(1, len(split) + 1)[:, None]
    count = (ordered > sums).sum(axis=0) - 1
    shift = np.take_along_axis(sums, np.maximum(count, 0)[None, :], axis=0)
    found: Numbers = np.maximum(split - shift, 0.0)
    return found


def exact_plan(conditions: RoutedConditions, statistics: Statistics, costs: Costs) -> JoinPlan:
    """The plan of least joint cost."""
    if len(conditions.streams) > MOST:
        raise QueryError(
            f"no exact search over {len(conditions.streams)} streams",
            hint=f"it takes at most {MOST}; use the greedy plan",
        )
    return _Search(_Paths(conditions, statistics, costs), greedy_plan(conditions, statistics, costs)).run()
