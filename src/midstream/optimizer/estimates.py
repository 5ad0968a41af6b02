"""How many tuples flow and stay at every node of a logical plan.

A flow has a rate, the elements per tick, and a population, the tuples of one snapshot. The snapshot of a join is the
join of snapshots, so populations multiply with selectivities; a result comes into being when the last of its parts
arrives, so rates are sums of products, one for each part to be the last. Neither depends on the order of joins.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypedDict

import pyarrow as pa

from midstream.algebra.emission import Emission
from midstream.algebra.expressions import Call, Expression, conjuncts
from midstream.algebra.physical import longest_validity
from midstream.algebra.plan import (
    Aggregate,
    Difference,
    Distinct,
    Intersect,
    Join,
    MultiJoin,
    Over,
    Project,
    Relation,
    RoutedJoins,
    RowFunctions,
    RowsOverStream,
    Select,
    Sequence,
    Stream,
    ToStream,
    Union,
    Unnested,
    Window,
)
from midstream.algebra.statistics import UNKNOWN, Estimate, KeyProfile, Statistics
from midstream.algebra.windows import Hop, Rows, Unbounded, Until
from midstream.optimizer.cost import ROW_OVERHEAD, Constants, Cost
from midstream.optimizer.exchanges import Meeting, PlacedRows, single
from midstream.optimizer.graph_estimates import Flow, GraphEstimator
from midstream.optimizer.join_graph import Inputs, JoinGraph, join_graph
from midstream.optimizer.origins import origin
from midstream.optimizer.routed.weighing import routed_cost
from midstream.optimizer.sites.topology import Topology

GUESSED_RATE = 1.0
GUESSED_ELEMENTS = 3.0
GUESSED_ENDLESS = 1_000_000.0
"""The ticks for which an endless window is taken to have grown."""

GUESSED_BATCHES = 8
"""Batches per window."""

GUESSES = {
    "=": 0.1,
    "<>": 0.9,
    "<": 1 / 3,
    "<=": 1 / 3,
    ">": 1 / 3,
    ">=": 1 / 3,
    "is_null": 0.1,
    "like": 0.2,
    "in": 0.3,
}


class Estimator:
    """Flows and costs of the plans of one query under one snapshot of statistics."""

    def __init__(
        self,
        statistics: Statistics = UNKNOWN,
        emission: Emission | None = None,
        constants: Constants | None = None,
        spread: bool = False,
        topology: Topology | None = None,
    ) -> None:
        """`spread`: rows lie on many machines by their keys; `topology` says where slots are.

        So a multi-way join needs one key for all its inputs, and rows that are joined by another key than before move.
        """
        self.spread = spread
        self.topology = topology if spread else None
        self.statistics = statistics
        self.emission = emission
        self.constants = constants or Constants()
        self._flows: dict[Relation, Flow] = {}
        self._costs: dict[Relation, float] = {}
        self._equal: dict[frozenset[str], float | None] = {}
        self._graphs: dict[int, GraphEstimator] = {}

    def graph(self, graph: JoinGraph) -> GraphEstimator:
        """The flows of a graph; the joins of some of its inputs are looked up there from now on."""
        known = self._graphs.get(id(graph))
        if known is None:
            known = self._graphs[id(graph)] = GraphEstimator(graph, self)
        return known

    def flow(self, plan: Relation) -> Flow:
        """What a node gives."""
        if plan not in self._flows:
            self._flows[plan] = self._flow(plan)
        return self._flows[plan]

    def cost(self, plan: Relation) -> Cost:
        """What a whole plan costs per tick."""
        total = self.own_cost(plan)
        for child in plan.inputs:
            total += self.cost(child)
        return total

    def per_tick(self, plan: Relation) -> float:
        """A whole plan's cost as one number."""
        if plan not in self._costs:
            self._costs[plan] = self.cost(plan).per_tick(self.constants)
        return self._costs[plan]

    def _flow(self, plan: Relation) -> Flow:
        match plan:
            case Stream():
                return self._stream(plan, None)
            case Window(Stream() as stream):
                return self._stream(stream, plan)
            case Window(inner, spec):
                return self._window_over(self.flow(inner), spec)
            case Select() | MultiJoin() | Join(kind="inner"):
                return self._joined(plan)
            case Join():
                return self._half_or_outer(plan)
            case Project(inner):
                below = self.flow(inner)
                return Flow(below.rate, below.population, _width(plan.schema), below.hop)
            case Unnested(inner):
                below = self.flow(inner)
                rate, population = GUESSED_ELEMENTS * below.rate, GUESSED_ELEMENTS * below.population
                return Flow(rate, population, _width(plan.schema), below.hop)
            case Distinct(inner):
                return self._distinct(self.flow(inner), self._profile(inner))
            case Aggregate():
                return self._aggregate(plan)
            case RowsOverStream(inner):
                below = self.flow(inner)
                return Flow(below.rate, below.rate, _width(plan.schema))
            case Over(inner):
                below = self.flow(inner)
                return Flow(2 * below.rate, below.population, _width(plan.schema), below.hop)
            case Union(united):
                flows = [self.flow(r) for r in united]
                return Flow(sum(f.rate for f in flows), sum(f.population for f in flows), flows[0].width)
            case Difference(left) | Intersect(left):
                below = self.flow(left)
                return Flow(2 * below.rate, below.population / 2, below.width, below.hop)
            case Sequence(second=second):
                return Flow(self.flow(second).rate, self.flow(second).rate, _width(plan.schema))
            case ToStream(inner):
                return Flow(self.flow(inner).rate, self.flow(inner).rate, _width(plan.schema))
        inputs = [self.flow(r) for r in plan.inputs]
        return Flow(sum(f.rate for f in inputs), sum(f.population for f in inputs))

    def _joined(self, plan: Relation) -> Flow:
        graph = join_graph(plan)
        if len(graph.inputs) == 1:
            return self._selected(self.flow(graph.inputs[0]), graph.conditions)
        for known in self._graphs.values():
            part = known.graph.part(plan)
            if part is not None:
                return known.flow(part)
        return self.graph(graph).flow(graph.everyone)

    def _stream(self, stream: Stream, window: Window | None) -> Flow:
        known = self.statistics.streams.get(stream.alias)
        rate = known.rate.value if known else GUESSED_RATE / (1 if stream.domain.is_integer else 1000)
        width = known.width if known else _width(stream.schema)
        spec = None if window is None else window.spec
        if isinstance(spec, Rows):
            return Flow(rate, float(spec.count) * (10 if spec.partition_by else 1), width)
        if isinstance(spec, Unbounded | Until):
            endless = known.population if known and known.population else rate * GUESSED_ENDLESS
            return Flow(rate, endless, width)
        hop = spec.longest_slide if isinstance(spec, Hop) else None
        return Flow(rate, rate * _mean_validity(spec), width, hop)

    def _window_over(self, below: Flow, spec: object) -> Flow:
        if isinstance(spec, Rows):
            return Flow(below.population, float(spec.count), below.width)
        rate = below.population / (below.hop or 1)
        span = longest_validity(spec) or GUESSED_ENDLESS  # type: ignore[arg-type]
        return Flow(rate, rate * span, below.width)

    def _selected(self, below: Flow, conditions: tuple[Expression, ...]) -> Flow:
        kept = 1.0
        for condition in conditions:
            kept *= self.selectivity(condition).value
        return Flow(below.rate * kept, below.population * kept, below.width, below.hop)

    def selectivity(self, condition: Expression) -> Estimate:
        """The share of tuples, or of combinations of tuples, for which a condition is true."""
        known = self.statistics.selectivities.get(str(condition))
        if known is not None:
            return known
        if isinstance(condition, Call) and condition.function == "not":
            return Estimate(1 - self.selectivity(condition.args[0]).value)
        if isinstance(condition, Call) and condition.function == "or":
            missing = 1.0
            for part in condition.args:
                missing *= 1 - self.selectivity(part).value
            return Estimate(1 - missing)
        return Estimate(GUESSES.get(getattr(condition, "function", ""), 0.5))

    def equality(self, terms: frozenset[str]) -> float | None:
        """The measured selectivity of the equality of keys; None if they were never looked at."""
        if terms not in self._equal:
            found = self.statistics.equality(sorted(terms))
            self._equal[terms] = None if found is None else found.value
        return self._equal[terms]

    def _half_or_outer(self, plan: Join) -> Flow:
        left, right = self.flow(plan.left), self.flow(plan.right)
        if plan.kind in ("semi", "anti"):
            return Flow(left.rate, left.population / 2, left.width, left.hop)
        pair = GraphEstimator(JoinGraph((plan.left, plan.right), conjuncts(plan.on)), self).flow(0b11)
        padded = {"left": left, "right": right}.get(plan.kind)
        more = (
            (padded.rate, padded.population) if padded else (left.rate + right.rate, left.population + right.population)
        )
        return Flow(pair.rate + more[0], max(pair.population, more[1]), pair.width)

    def _distinct(self, below: Flow, profile: KeyProfile | None) -> Flow:
        """Repeated tuples prolong what is out already: one element per batch, and one tuple per snapshot."""
        population = _different(profile, below.population)
        span = self.batch_ticks(below)
        per_batch = _different(profile, below.rate * span)
        return Flow(min(below.rate, per_batch / span), population, below.width, below.hop)

    def _aggregate(self, plan: Aggregate) -> Flow:
        """A group has a new value whenever a tuple comes or goes, at boundaries only over hopping windows."""
        below = self.flow(plan.input)
        groups = _different(self._profile(Project(plan.input, plan.keys)), below.population) if plan.keys else 1.0
        width = _width(plan.schema)
        if below.hop is not None:
            return Flow(groups / below.hop, groups, width, below.hop)
        cuts = groups / self.emission.grid.longest_slide if self.emission else 0.0
        return Flow(2 * below.rate + cuts, groups, width)

    def batch_ticks(self, below: Flow) -> float:
        """How much time a batch spans."""
        if self.statistics.batch_ticks:
            return max(1.0, self.statistics.batch_ticks)
        return max(1.0, below.population / max(below.rate, 1e-12) / GUESSED_BATCHES)

    def _profile(self, plan: Relation) -> KeyProfile | None:
        """How the tuples of a relation repeat, if it was looked at: by its columns' origin in one stream."""
        origins = [origin(plan, name) for name in plan.schema.names]
        if not origins or any(o is None for o in origins):
            return None
        return self.statistics.keys.get(", ".join(sorted({str(o) for o in origins})))

    def own_cost(self, plan: Relation) -> Cost:
        """What a node costs, without what is below it."""
        match plan:
            case Stream() | Window(Stream()):
                return Cost()
            case Select(inner) | Project(inner) | Unnested(inner):
                return Cost(rows=self.flow(inner).rate)
            case Join(kind="inner"):
                return self._join_cost(plan) + self._exchange(plan)
            case RoutedJoins():
                return self._multi_join_cost(plan)
            case MultiJoin():
                return self._multi_join_cost(plan) + self._exchange(plan)
            case Distinct(inner):
                below, given = self.flow(inner), self.flow(plan)
                return Cost(probed=below.rate, inserted=given.rate, given=given.rate, **_kept(given))
            case Join(kind="semi"):
                return self._join_cost(plan)
            case Join() | Difference() | Intersect() | Aggregate() | RowFunctions() | ToStream() | Window():
                return self._slice_cost(plan)
            case Sequence(first, second):
                rates = self.flow(first).rate + self.flow(second).rate
                return Cost(probed=rates, inserted=rates, given=self.flow(plan).rate)
        return Cost(rows=sum(self.flow(r).rate for r in plan.inputs))

    def _join_cost(self, plan: Join) -> Cost:
        left, right = self.flow(plan.left), self.flow(plan.right)
        given = self.flow(plan).rate
        matched = given
        if not has_key(plan):
            matched = left.rate * right.population + right.rate * left.population
        rates = left.rate + right.rate
        return Cost(probed=rates, inserted=rates, matched=matched, given=given, **_kept(left, right))

    def _multi_join_cost(self, plan: MultiJoin) -> Cost:
        graph = GraphEstimator(_one_graph(plan), self)
        if isinstance(plan, RoutedJoins):
            return routed_cost(graph, plan.orders, plan.placements)
        masks = tuple(1 << i for i in range(len(plan.joined)))
        total = Cost()
        for i, order in enumerate(plan.orders):
            total += graph.route(masks, i, order)
        for child in plan.joined:
            flow = self.flow(child)
            total += Cost(inserted=flow.rate, **_kept(flow))
        return total

    def _exchange(self, plan: Relation) -> Cost:
        """What moves between stages so that the inputs of a join can meet."""
        if not self.spread:
            return Cost()
        self.flow(plan)
        known = next((g for g in self._graphs.values() if g.graph.part(plan) is not None), None)
        if known is None:
            return Cost()
        found, further = self._meeting(known, plan)
        return Cost(
            moved=found.moved,
            stages=further / self.batch_ticks(known.leaves[0]),
            linked=known.linked(found),
            transfers=found.transfers,
        )

    def _meeting(self, known: GraphEstimator, plan: Relation) -> tuple[Meeting, int]:
        """How the inputs of a join meet, and the further stages that this needs."""
        while len(plan.inputs) == 1:  # a selection lets rows lie where they are
            plan = plan.inputs[0]
        parts: list[tuple[Inputs, PlacedRows | None]] = []
        for child in plan.inputs:
            inputs = known.graph.part(child)
            if inputs is None:
                return Meeting(0.0, self._anywhere(plan)), 0
            parts.append((inputs, self._meeting(known, child)[0].placed if inputs.bit_count() > 1 else None))
        found = known.meeting(parts)
        return found, found.placed.stage - max(0 if place is None else place.stage for _, place in parts)

    def _anywhere(self, plan: Relation) -> PlacedRows:
        flow = self.flow(plan)
        return single(flow.rate, flow.width, () if self.topology is None else self.topology.everywhere)

    def _slice_cost(self, plan: Relation) -> Cost:
        flows = [self.flow(r) for r in plan.inputs]
        rate, population = sum(f.rate for f in flows), sum(f.population for f in flows)
        slide = self.emission.grid.longest_slide if self.emission else 1
        given = self.flow(plan).rate
        return Cost(inserted=rate, given=given, evaluated=rate + population / max(1, slide), **_kept(*flows))


@lru_cache(maxsize=1024)
def _one_graph(plan: MultiJoin) -> JoinGraph:
    """The graph of one node, whose inputs may be joins."""
    return JoinGraph(plan.joined, conjuncts(plan.on))


@lru_cache(maxsize=1024)
def has_key(plan: Join) -> bool:
    """Whether a join has an equality between its sides."""
    graph = JoinGraph((plan.left, plan.right), conjuncts(plan.on))
    return any({m for _, m in terms} == {1, 2} for terms in graph.equal_terms) or any(
        isinstance(c, Call) and c.function == "is_not_distinct_from" for c in conjuncts(plan.on)
    )


def _different(profile: KeyProfile | None, rows: float) -> float:
    if profile is None:
        return rows / 2
    return max(profile.distinct(rows), min(rows, 1.0))


def _mean_validity(spec: object) -> float:
    if isinstance(spec, Hop):
        return float(spec.longest_size)
    return float(longest_validity(spec) or 1)  # type: ignore[arg-type]


class _Kept(TypedDict):
    state_rows: float
    state_bytes: float


def _kept(*flows: Flow) -> _Kept:
    rows = sum(flow.population for flow in flows)
    return _Kept(state_rows=rows, state_bytes=sum(f.population * (f.width + ROW_OVERHEAD) for f in flows))


def _width(schema: pa.Schema) -> float:
    """Bytes per tuple, roughly."""
    total = 0.0
    for f in schema:
        try:
            total += f.type.bit_width / 8
        except ValueError:
            total += 24.0
    return total
