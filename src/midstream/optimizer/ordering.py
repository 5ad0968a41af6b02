"""In which order to join: the cheapest shape of a join graph.

Up to ten inputs, dynamic programming over all trees without accidental cross products; beyond, greedily the cheapest
pair first. A multi-way join, which keeps no intermediate results and probes each input's tuples along a greedy order of
its own, competes, and so do mixes: a multi-way join over some results that it pays to keep. Where rows are spread over
slots, a routed join competes too: it needs no common key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from midstream.optimizer.cost import Cost
from midstream.optimizer.exchanges import PlacedRows
from midstream.optimizer.graph_estimates import GraphEstimator
from midstream.optimizer.join_graph import Inputs, JoinGraph, Probing, Routed, Shape, bits
from midstream.optimizer.routed.weighing import best_routed, routed_worth

EXHAUSTIVE = 10
"""Up to how many inputs all trees are weighed."""

NESTED = 6
"""Up to how many inputs multi-way joins of every subset are weighed as parts of trees."""

CLOSE = 1e-9
"""Costs that differ by less are equal: then the shape that was found first stays."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A shape and what it costs per tick, leaves' own cost left out; `placed` is where its rows lie, if in slots."""

    shape: Shape
    inputs: Inputs
    cost: float
    placed: PlacedRows | None = None


def best_shape(estimator: GraphEstimator) -> Ordered:
    """The cheapest shape of a graph; a tree as long as nothing is known, because a wrong tree costs less."""
    count = len(estimator.graph.inputs)
    if count == 1:
        return Ordered(0, 1, 0.0)
    trees_only = not estimator.may_probe
    if count > EXHAUSTIVE:
        tree = greedy_tree(estimator)
        if trees_only:
            return tree
        probing = multiway(estimator)
        # The quick orders come with a cost that is too good to be true: look again before believing it.
        better = probing.cost < tree.cost and shape_cost(estimator, probing.shape) < tree.cost
        return probing if better else tree
    parts = exhaustive_trees(estimator)
    tree = parts[estimator.graph.everyone]
    if count == 2:
        return tree
    found = tree if trees_only else _cheaper(tree, mixture(estimator, parts))
    return _cheaper(found, routed(estimator, found.cost)) if estimator.may_route else found


def _cheaper(known: Ordered, other: Ordered | None) -> Ordered:
    return known if other is None or other.cost >= known.cost * (1 - CLOSE) else other


def routed(estimator: GraphEstimator, below: float = inf) -> Ordered | None:
    """A routed join of low cost, if the inputs are streams and there may be one below a cost."""
    masks = tuple(1 << i for i in range(len(estimator.graph.inputs)))
    found = best_routed(estimator, tuple(_greedy_order(estimator, masks, i) for i in range(len(masks))), below)
    return None if found is None else Ordered(found[0], estimator.graph.everyone, found[1])


def exhaustive_trees(estimator: GraphEstimator) -> dict[Inputs, Ordered]:
    """The cheapest tree of every joinable set of inputs, small sets first."""
    graph = estimator.graph
    best = {1 << i: Ordered(i, 1 << i, 0.0) for i in range(len(graph.inputs))}
    nested = len(graph.inputs) <= NESTED and estimator.may_probe
    for inputs in sorted(range(1, graph.everyone + 1), key=lambda s: (s.bit_count(), s)):
        if inputs.bit_count() < 2 or not graph.joinable(inputs):
            continue
        found: Ordered | None = None
        for left, right in _parts(inputs):
            a, b = best.get(left), best.get(right)
            if a is None or b is None or (found is not None and a.cost + b.cost >= found.cost):
                continue
            if not graph.may_join(left, right):
                continue
            joined = _joined(estimator, a, b)
            if found is None or joined.cost < found.cost * (1 - CLOSE):
                found = joined
        if nested and 2 < inputs.bit_count() < len(graph.inputs):
            probing = _probing(estimator, [best[1 << i] for i in bits(inputs)])
            if found is None or probing.cost < found.cost * (1 - CLOSE):
                found = probing
        if found is not None:
            best[inputs] = found
    return best


def _joined(estimator: GraphEstimator, a: Ordered, b: Ordered) -> Ordered:
    cost = a.cost + b.cost + estimator.join_cost(a.inputs, b.inputs)
    moving, placed = _moving(estimator, (a, b))
    return Ordered((a.shape, b.shape), a.inputs | b.inputs, cost + moving, placed)


def _moving(estimator: GraphEstimator, parts: Sequence[Ordered]) -> tuple[float, PlacedRows | None]:
    """What it costs to bring the rows of parts together, and where they lie then."""
    if not estimator.estimator.spread:
        return 0.0, None
    found = estimator.meeting([(part.inputs, part.placed) for part in parts])
    further = found.placed.stage - max(0 if part.placed is None else part.placed.stage for part in parts)
    waiting = further / estimator.batch_ticks
    return estimator.moving(found) + estimator.constants.stage * waiting, found.placed


def _parts(inputs: Inputs) -> Iterator[tuple[Inputs, Inputs]]:
    """All ways to cut a set in two; the part with the first input comes first, large ones before small ones."""
    first = inputs & -inputs
    rest = inputs ^ first
    part = rest & -rest
    while part:
        yield inputs ^ part, part
        part = (part - rest) & rest


def greedy_tree(estimator: GraphEstimator) -> Ordered:
    """Joins the pair whose join costs least, again and again."""
    graph = estimator.graph
    parts = {1 << i: Ordered(i, 1 << i, 0.0) for i in range(len(graph.inputs))}
    costs: dict[tuple[Inputs, Inputs], float] = {}
    while len(parts) > 1:
        keys = list(parts)
        pairs = [(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :] if graph.linked(a, b)]
        # Only components are left: a cross product cannot be helped.
        pairs = pairs or [(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :]]
        for pair in pairs:
            if pair not in costs:
                costs[pair] = _growth(estimator, *pair)
        left, right = min(pairs, key=lambda pair: costs[pair])
        parts[left | right] = _joined(estimator, parts.pop(left), parts.pop(right))
    return next(iter(parts.values()))


def _growth(estimator: GraphEstimator, left: Inputs, right: Inputs) -> float:
    """What a join costs here and what its result will cost above."""
    return estimator.join_cost(left, right) + 2 * estimator.flow(left | right).rate


def multiway(estimator: GraphEstimator) -> Ordered:
    """The multi-way join of all inputs."""
    return _probing(estimator, [Ordered(i, 1 << i, 0.0) for i in range(len(estimator.graph.inputs))])


def mixture(estimator: GraphEstimator, best: dict[Inputs, Ordered]) -> Ordered:
    """A multi-way join over parts: two parts are joined for good as long as that pays."""
    parts = [best[1 << i] for i in range(len(estimator.graph.inputs))]
    found = _probing(estimator, parts)
    while len(parts) > 2:
        candidates = []
        for i, a in enumerate(parts):
            for b in parts[i + 1 :]:
                joined = best.get(a.inputs | b.inputs)
                if joined is not None:
                    rest = [p for p in parts if p is not a and p is not b]
                    candidates.append([*rest, joined])
        options = [(_probing(estimator, c), c) for c in candidates if len(c) > 2]
        if not options:
            break
        cheapest, chosen = min(options, key=lambda option: option[0].cost)
        if cheapest.cost >= found.cost * (1 - CLOSE):
            break
        found, parts = cheapest, chosen
    return found


def _probing(estimator: GraphEstimator, parts: Sequence[Ordered]) -> Ordered:
    """The multi-way join of parts, each with its greedy probe order."""
    parts = sorted(parts, key=lambda p: p.inputs & -p.inputs)
    masks = tuple(p.inputs for p in parts)
    few = len(parts) <= EXHAUSTIVE
    growth = [] if few else _pair_growth(estimator, masks)
    total, orders, inputs = 0.0, [], 0
    for i, mask in enumerate(masks):
        if few:
            order = _greedy_order(estimator, masks, i)
            cost = _cost(estimator, estimator.route(masks, i, order))
        else:
            order, cost = _nearest_order(estimator, masks, i, growth)
        orders.append(order)
        total += cost + _storing(estimator, mask) + parts[i].cost
        inputs |= mask
    moving, placed = _moving(estimator, parts)
    return Ordered(Probing(tuple(p.shape for p in parts), tuple(orders)), inputs, total + moving, placed)


def _greedy_order(estimator: GraphEstimator, masks: Sequence[Inputs], start: int) -> tuple[int, ...]:
    """Next the part that leaves the fewest partial results; linked parts before others."""
    graph, inside, order = estimator.graph, masks[start], []
    waiting = [i for i in range(len(masks)) if i != start]
    while waiting:
        linked = [i for i in waiting if graph.linked(inside, masks[i])] or waiting
        best = min(linked, key=lambda i: (not estimator.keyed(inside, masks[i]), _after(estimator, inside, masks[i])))
        waiting.remove(best)
        order.append(best)
        inside |= masks[best]
    return tuple(order)


def _after(estimator: GraphEstimator, inside: Inputs, mask: Inputs) -> float:
    return estimator.flow(inside | mask).population


def _pair_growth(estimator: GraphEstimator, masks: Sequence[Inputs]) -> list[list[float]]:
    """By how much a probe of one part multiplies another's tuples, for linked pairs."""
    far = float("inf")
    growth = [[far] * len(masks) for _ in masks]
    for i, a in enumerate(masks):
        for j, b in enumerate(masks):
            if i != j and estimator.graph.linked(a, b):
                growth[i][j] = estimator.flow(a | b).population / max(estimator.flow(a).population, 1e-300)
    return growth


def _nearest_order(
    estimator: GraphEstimator, masks: Sequence[Inputs], start: int, growth: list[list[float]]
) -> tuple[tuple[int, ...], float]:
    """Next the part whose probe multiplies least by any single link from what is reached: quick for many parts."""
    c = estimator.constants
    reach = list(growth[start])
    waiting, order = [i for i in range(len(masks)) if i != start], []
    size, cost = estimator.flow(masks[start]).rate, 0.0
    while waiting:
        best = min(waiting, key=reach.__getitem__)
        grown = size * min(reach[best], estimator.flow(masks[best]).population)
        cost += c.probe * size + c.match * grown
        size = grown
        waiting.remove(best)
        order.append(best)
        reach = list(map(min, reach, growth[best]))
    return tuple(order), cost + c.give * size


def shape_cost(estimator: GraphEstimator, shape: Shape) -> float:
    """What a given shape costs per tick, leaves' own cost left out."""
    return _weighed(estimator, shape).cost


def _weighed(estimator: GraphEstimator, shape: Shape) -> Ordered:
    if isinstance(shape, int):
        return Ordered(shape, 1 << shape, 0.0)
    if isinstance(shape, Routed):
        cost = routed_worth(estimator, shape.orders, shape.placements)
        return Ordered(shape, estimator.graph.everyone, cost)
    if isinstance(shape, Probing):
        return _weighed_probing(estimator, shape)
    a, b = (_weighed(estimator, part) for part in shape)
    return _joined(estimator, a, b)


def _weighed_probing(estimator: GraphEstimator, shape: Probing) -> Ordered:
    parts = [_weighed(estimator, part) for part in shape.parts]
    masks = tuple(part.inputs for part in parts)
    total, inputs = sum(part.cost for part in parts), 0
    for i, order in enumerate(shape.orders):
        total += _cost(estimator, estimator.route(masks, i, order)) + _storing(estimator, masks[i])
        inputs |= masks[i]
    moving, placed = _moving(estimator, parts)
    return Ordered(shape, inputs, total + moving, placed)


def _storing(estimator: GraphEstimator, inputs: Inputs) -> float:
    return estimator.constants.insert * estimator.flow(inputs).rate + estimator.keeping(inputs)


def _cost(estimator: GraphEstimator, cost: Cost) -> float:
    return cost.per_tick(estimator.constants)


def all_trees(graph: JoinGraph, inputs: Inputs) -> Iterator[Shape]:
    """All unordered binary trees without accidental cross products."""
    if inputs.bit_count() == 1:
        yield inputs.bit_length() - 1
        return
    for left, right in _parts(inputs):
        if graph.joinable(left) and graph.joinable(right) and graph.may_join(left, right):
            for a in all_trees(graph, left):
                for b in all_trees(graph, right):
                    yield (a, b)
