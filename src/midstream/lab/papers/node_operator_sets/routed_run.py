"""A run of a routed join on simulated machines: rows in batches, changes of plans at moments, faults by a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from midstream.algebra import physical as p
from midstream.job.task.ingest import source_elements, ticks_of
from midstream.job.task.results import result_table
from midstream.lab.papers.node_operator_sets.calls import MemberEvent
from midstream.lab.papers.node_operator_sets.cost import Costs
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan, checked
from midstream.lab.papers.node_operator_sets.member import centralized_members, distributed_members
from midstream.lab.papers.node_operator_sets.membership import Member
from midstream.lab.papers.node_operator_sets.modification import Setting
from midstream.lab.papers.node_operator_sets.network import RESULTS
from midstream.lab.papers.node_operator_sets.probing import Prober
from midstream.lab.papers.node_operator_sets.query import RoutedQuery
from midstream.lab.papers.node_operator_sets.routed_join import Arrive, Meter, ResultsNode, RoutedNode, Setup
from midstream.lab.papers.node_operator_sets.statistics import Statistics
from midstream.lab.simulated_cluster.kernel import Simulation
from midstream.lab.simulated_cluster.links import SimulatedLink
from midstream.operators.build import build
from midstream.operators.elements import Elements, concatenate, empty_elements

Batches = Sequence[Mapping[str, Elements]]


def local_rows(query: RoutedQuery, stream: str, rows: pa.Table, time: str) -> Elements:
    """Rows of a stream as the elements that are joined: windowed, filtered and with computed columns."""
    source = query.source(stream)
    batch = pa.RecordBatch.from_arrays([rows.column(n).combine_chunks() for n in rows.schema.names], schema=rows.schema)
    elements = source_elements(source, batch, ticks_of(rows.column(time), stream)[0])
    for node in reversed(list(p.walk_physical(query.input(stream)))):
        if not isinstance(node, p.SourceNode):
            found = build(node, query.functions).process(0, elements)
            elements = empty_elements(node.schema) if found is None else found
    return elements


@dataclass
class RoutedRun:
    """Machines for a plan of a query; `mode` is how plans are modified."""

    query: RoutedQuery
    plan: JoinPlan
    statistics: Statistics
    costs: Costs
    mode: str = "centralized"
    seed: int = 0
    link: SimulatedLink = field(default_factory=SimulatedLink)
    patience: float | None = None
    tick: float = 10.0
    nested_loops: bool = False
    durable: bool = True
    row_bytes: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked(self.plan, self.query.conditions)
        setting, network = Setting(self.query.conditions, self.costs), self.costs.network
        making = centralized_members if self.mode == "centralized" else distributed_members
        # Repair passes a token along every way, again and again: it takes time with the square of their length.
        least = 20 + (3 * len(self.query.streams) ** 2 if self.mode == "distributed" else 0)
        patience = self.patience or least * self.tick
        members = making(self.plan, self.statistics, setting, self.leader, patience)
        self.setup = Setup(
            setting, Prober(self.query), members, self.tick, self.nested_loops, self.durable, self.row_bytes
        )
        self.simulation = Simulation(self.seed, self.link)
        for node in network.nodes:
            self.simulation.add(node, partial(RoutedNode, node, self.setup))
        self.simulation.add(RESULTS, partial(ResultsNode, self.setup))
        self.last_batch = -1

    @property
    def leader(self) -> str:
        """The node that lets changes happen one after another."""
        return self.costs.network.nodes[0]

    @property
    def meter(self) -> Meter:
        """What the run has cost."""
        return self.setup.meter

    def feed(self, batches: Batches, interval: float, start: float = 0.0) -> None:
        """Lets batches arrive, each at its moment at all homes."""
        frontiers = _frontiers(batches)
        for number, batch in enumerate(batches):
            for stream, rows in batch.items():
                arrival = Arrive(number, rows, frontiers[number])
                self.simulation.post(self.costs.network.home(stream), arrival, start + number * interval)
        self.last_batch = len(batches) - 1

    def event(self, node: str, event: MemberEvent, at: float) -> None:
        """Lets something happen to a node's member."""
        self.simulation.post(node, event, at)

    @property
    def results(self) -> ResultsNode:
        """The machine that takes results."""
        program = self.simulation.machines[RESULTS].program
        assert isinstance(program, ResultsNode)
        return program

    def node(self, name: str) -> RoutedNode:
        """A stream's machine, which must be up."""
        program = self.simulation.machines[name].program
        assert isinstance(program, RoutedNode)
        return program

    def members(self) -> dict[str, Member]:
        """All members as they are."""
        return {node: self.node(node).member for node in self.costs.network.nodes}

    @property
    def finished(self) -> bool:
        """Whether all results of all batches are there."""
        up = self.simulation.machines[RESULTS].up
        return up and min(self.results.through.values()) >= self.last_batch

    def run(self, step: float, most: float) -> bool:
        """Runs until all results are there, looking now and then; whether they are before a moment."""
        while self.simulation.now < most:
            self.simulation.run(until=self.simulation.now + step)
            if self.finished:
                return True
        return self.finished

    def table(self) -> pa.Table:
        """All results, after what is above the join."""
        schema = self.query.default.schema
        # Ways gather columns in the order of their probes.
        found = [rows.with_columns(rows.columns.select(schema.names)) for _, rows in self.results.found]
        elements = concatenate(found) if found else empty_elements(schema)
        for node in self.query.above:
            given = build(node, self.query.functions).process(0, elements)
            elements = empty_elements(node.schema) if given is None else given
        return result_table(self.query.plan, elements)


def _frontiers(batches: Batches) -> list[int]:
    """For each batch the earliest start of validity in it or later."""
    least = [min([2**62, *(int(r.valid_from.min()) for r in batch.values() if len(r))]) for batch in batches]
    return list(np.minimum.accumulate(np.array(least)[::-1])[::-1].tolist())
