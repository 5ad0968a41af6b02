"""How many tuples flow and stay in the joins of a graph, for each set of its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Protocol

from midstream.algebra.expressions import Expression
from midstream.algebra.plan import Relation
from midstream.algebra.statistics import UNKNOWN, Estimate, Statistics
from midstream.optimizer.cost import ROW_OVERHEAD, Constants, Cost
from midstream.optimizer.exchanges import Meeting, PlacedRows, meeting, single
from midstream.optimizer.join_graph import Inputs, JoinGraph, bits
from midstream.optimizer.sites.topology import Topology, site_of


@dataclass(frozen=True, slots=True)
class Flow:
    """Elements per tick, tuples per snapshot, bytes per tuple; `hop` is how far apart the instants of change are."""

    rate: float
    population: float
    width: float = 40.0
    hop: int | None = None


class QueryEstimates(Protocol):
    """What is known of a query: the flows of its inputs, how selective conditions are, and how keys meet."""

    statistics: Statistics
    constants: Constants
    spread: bool
    topology: Topology | None

    def flow(self, plan: Relation) -> Flow:
        """What a plan gives."""

    def selectivity(self, condition: Expression) -> Estimate:
        """The share of tuples that meet a condition."""

    def batch_ticks(self, below: Flow) -> float:
        """The ticks of a batch of a flow."""

    def equality(self, terms: frozenset[str]) -> float | None:
        """The share of combinations whose terms are equal, if it was measured."""


class GraphEstimator:
    """Flows of the sets of inputs of one join graph."""

    def __init__(self, graph: JoinGraph, estimator: QueryEstimates) -> None:
        self.graph = graph
        self.estimator = estimator
        self.constants = estimator.constants
        self.topology = estimator.topology
        self.homes = [None if self.topology is None else site_of(relation) for relation in graph.inputs]
        self.leaves = [estimator.flow(graph.leaf(i)) for i in range(len(graph.inputs))]
        self._selectivities: dict[Inputs, float] = {}
        classes = graph.term_texts
        self._others = [
            (mask, estimator.selectivity(condition).value)
            for condition, mask in graph.other_conditions
            if mask.bit_count() > 1
        ]
        self._members = [self._owners(terms) for terms in classes]
        # One term per input: the others of the class are equal to it before any join.
        self._terms = [{mask: text for text, mask in reversed(terms)} for terms in classes]
        self._measured = bool(estimator.statistics.keys)
        self._keyed: dict[Inputs, Inputs] = {}
        self._sides: dict[Inputs, float] = {}
        self._within: list[dict[Inputs, float]] = [{} for _ in classes]
        self._flows: dict[Inputs, Flow] = {}

    @property
    def may_probe(self) -> bool:
        """Whether multi-way joins are worth a thought."""
        if self.estimator.statistics is UNKNOWN:
            return False
        return not self.estimator.spread or any(members == self.graph.everyone for members in self._members)

    @property
    def spread(self) -> bool:
        """Whether rows lie in slots."""
        return self.estimator.spread

    @property
    def batch_ticks(self) -> float:
        """How much time a batch spans."""
        return self.estimator.batch_ticks(self.leaves[0])

    @property
    def may_route(self) -> bool:
        """Whether routed joins are worth a thought: in one place they are multi-way joins.

        As long as nothing is known of streams they are where it is known at which sites streams live.
        """
        located = any(home is not None for home in self.homes)
        return self.estimator.spread and (located or self.estimator.statistics is not UNKNOWN)

    @staticmethod
    def _owners(terms: Iterable[tuple[str | None, Inputs]]) -> Inputs:
        members = 0
        for _, mask in terms:
            members |= mask
        return members

    def flow(self, inputs: Inputs) -> Flow:
        """What the join of a set of inputs gives."""
        known = self._flows.get(inputs)
        if known is None:
            known = self._flows[inputs] = self._flow(inputs)
        return known

    def _flow(self, inputs: Inputs) -> Flow:
        if inputs.bit_count() == 1:
            return self.leaves[inputs.bit_length() - 1]
        population, renewal, width = self.selectivity(inputs), 0.0, 0.0
        hops = set()
        for i in bits(inputs):
            f = self.leaves[i]
            population *= f.population
            renewal += f.rate / f.population if f.population > 0 else 0.0
            width += f.width
            hops.add(f.hop)
        return Flow(renewal * population, population, width, hops.pop() if len(hops) == 1 else None)

    def selectivity(self, inputs: Inputs) -> float:
        """The share of combinations of tuples that meet all conditions among a set of inputs."""
        known = self._selectivities.get(inputs)
        if known is None:
            known = 1.0
            for number in range(len(self._terms)):
                known *= self._equal_within(number, inputs)
            for mask, value in self._others:
                if not mask & ~inputs:
                    known *= value
            self._selectivities[inputs] = known
        return known

    def _equal_within(self, number: int, inputs: Inputs) -> float:
        """The share of combinations whose terms of one class are all equal."""
        members = self._members[number] & inputs
        if not members & (members - 1):
            return 1.0
        cache = self._within[number]
        known = cache.get(members)
        if known is None:
            known = cache[members] = self._equal([self._terms[number][1 << i] for i in bits(members)], members)
        return known

    def _equal(self, terms: list[str | None], members: Inputs) -> float:
        if self._measured and None not in terms:
            measured = self.estimator.equality(frozenset(t for t in terms if t is not None))
            if measured is not None:
                return measured
        # Unknown keys: each tuple is taken to find one partner in the larger of two populations.
        sizes = [max(1.0, self.leaves[i].population) for i in bits(members)]
        return min(sizes) / math.prod(sizes)

    def join_cost(self, left: Inputs, right: Inputs) -> float:
        """What one binary join costs per tick, without its inputs."""
        c = self.constants
        given = self.flow(left | right).rate
        matched = given
        if not self.keyed(left, right):
            a, b = self.flow(left), self.flow(right)
            matched = a.rate * b.population + b.rate * a.population
        return self._side(left) + self._side(right) + c.match * matched + c.give * given

    def _side(self, inputs: Inputs) -> float:
        """What a binary join spends on one of its inputs."""
        known = self._sides.get(inputs)
        if known is None:
            c = self.constants
            known = self._sides[inputs] = (c.probe + c.insert) * self.flow(inputs).rate + self.keeping(inputs)
        return known

    def keeping(self, inputs: Inputs) -> float:
        """What it costs per tick to keep the tuples of a set."""
        flow = self.flow(inputs)
        return self.constants.state * flow.population * (flow.width + ROW_OVERHEAD) / 1000

    def keyed(self, left: Inputs, right: Inputs) -> bool:
        """Whether equal keys lead from one set to the other."""
        return bool(self._by_key(left) & right)

    def _by_key(self, inputs: Inputs) -> Inputs:
        known = self._keyed.get(inputs)
        if known is None:
            known = 0
            for members in self._members:
                if members & inputs:
                    known |= members
            self._keyed[inputs] = known
        return known

    def classes_between(self, left: Inputs, right: Inputs) -> tuple[int, ...]:
        """The classes of equal terms of which both sets have some."""
        return tuple(n for n, members in enumerate(self._members) if members & left and members & right)

    def meeting(self, parts: Several[tuple[Inputs, PlacedRows | None]]) -> Meeting:
        """How some sets meet so that they can be joined: what moves, and where the result lies."""
        together = 0
        for inputs, _ in parts:
            together |= inputs
        keys = [n for n, members in enumerate(self._members) if all(members & inputs for inputs, _ in parts)]
        placed = [self._arriving(inputs) if place is None else place for inputs, place in parts]
        given = self.flow(together)
        return meeting(placed, keys, PlacedRows(given.rate, width=given.width), self.topology, self.moving)

    def _arriving(self, inputs: Inputs) -> PlacedRows:
        """Where an input is when it comes in: by any key, or at its site."""
        flow, topology = self.flow(inputs), self.topology
        home = self.homes[inputs.bit_length() - 1] if inputs.bit_count() == 1 else None
        at = () if topology is None else topology.home(home)
        return single(flow.rate, flow.width, at) if home is None else PlacedRows(flow.rate, width=flow.width, at=at)

    def linked(self, found: Meeting) -> float:
        """The seconds per tick that rows take on links so that some sets can meet."""
        if self.topology is None or found.transfers is None:
            return 0.0
        return self.topology.seconds(found.transfers, self.batch_ticks)

    def moving(self, found: Meeting) -> float:
        """What bringing some sets together costs, without further stages."""
        return self.constants.exchange * found.moved + self.constants.second * self.linked(found)

    def route(self, masks: tuple[Inputs, ...], start: int, order: tuple[int, ...]) -> Cost:
        """What the probes of one part's tuples cost; `masks` are the sets of inputs that the parts are."""
        inside = masks[start]
        here = self.flow(inside)
        size, population, probed, matched = here.rate, here.population, 0.0, 0.0
        for target in order:
            reached = inside | masks[target]
            after = self.flow(reached).population
            probed += size
            grown = size * after / population if population > 0 else 0.0
            matched += grown if self.keyed(inside, masks[target]) else size * self.flow(masks[target]).population
            size, inside, population = grown, reached, after
        return Cost(probed=probed, matched=matched, given=size)
