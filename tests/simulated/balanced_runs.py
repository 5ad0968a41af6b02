"""A query over simulated machines, with moves, local migrations, faults and crashes, held against the oracle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

import midstream as ms
from midstream.algebra.declarations import ARRIVAL
from midstream.algebra.physical import SourceNode, walk_physical
from midstream.algebra.time import INFINITY
from midstream.api import ask
from midstream.job.task.ingest import source_elements
from midstream.job.task.results import result_table
from midstream.lab.papers.partitioned_load_balancing.group_states import GroupStates, routing_keys
from midstream.lab.papers.partitioned_load_balancing.legality import memory
from midstream.lab.papers.partitioned_load_balancing.managing import Managing
from midstream.lab.papers.partitioned_load_balancing.processing import Processing, Setup
from midstream.lab.papers.partitioned_load_balancing.protocols.manager import ManagerState, MoveRequest
from midstream.lab.papers.partitioned_load_balancing.protocols.processor import ProcessorState
from midstream.lab.papers.partitioned_load_balancing.protocols.registry import protocol_of
from midstream.lab.papers.partitioned_load_balancing.protocols.split import SplitState, split_state
from midstream.lab.papers.partitioned_load_balancing.rows import ChangePlan
from midstream.lab.papers.partitioned_load_balancing.sink import Sink
from midstream.lab.papers.partitioned_load_balancing.splitting import Splitting, Streams, Tick
from midstream.lab.simulated_cluster import Disk, SimulatedLink, Simulation
from midstream.migration.protocol import widened
from midstream.operators.elements import concatenate
from midstream.optimizer.plans import Plan, plan_query

MANAGER, SINK = "manager", "sink"


@dataclass
class Balanced:
    """A query on simulated machines; `shapes` are the plans that processors start with, one each."""

    query: str
    tables: dict[str, pa.Table]
    shapes: Sequence[str | None]
    groups: int = 6
    seed: int = 0
    link: SimulatedLink = field(default_factory=lambda: SimulatedLink(latency=1))
    splits: int = 2
    step: int = 4
    by_intervals: bool = True
    others: Sequence[str | None] = ()
    """Shapes of plans that processors may change to."""

    def __post_init__(self) -> None:
        self.asked = ask(self.query, self.tables)
        self.plans: list[Plan] = [plan_query(self.asked.plan, shape) for shape in self.shapes]
        self.later: list[Plan] = [plan_query(self.asked.plan, shape) for shape in self.others]
        self.processors = [f"p{i}" for i in range(len(self.plans))]
        self.split_names = [f"s{i}" for i in range(self.splits)]
        self.sources = self._sources()
        self.simulation = Simulation(self.seed, self.link)
        self.checks = 0
        self._add_machines()

    def _sources(self) -> dict[str, SourceNode]:
        found: dict[str, SourceNode] = {}
        for plan in [*self.plans, *self.later]:
            for node in walk_physical(plan.physical):
                if isinstance(node, SourceNode):
                    alias = node.stream.alias
                    found[alias] = widened(found[alias], node) if alias in found else node
        return found

    def _add_machines(self) -> None:
        owners = tuple(self.processors[g % len(self.processors)] for g in range(self.groups))
        manager = ManagerState(owners, tuple(self.split_names))
        self.simulation.add(MANAGER, lambda disk: Managing(disk, manager))
        self.simulation.add(SINK, lambda disk: Sink(disk, self.processors))
        routing = routing_keys(self.plans[0].physical)
        keys = {alias: routing[source.stream.name] for alias, source in self.sources.items()}
        reach = max(memory(plan.physical) or 0 for plan in self.plans)
        for i, name in enumerate(self.split_names):
            streams = Streams(self._ticks(i), keys, self.groups, reach)
            start = split_state(name, owners)
            self.simulation.add(name, partial(self._splitting, streams, start))
        for name, plan in zip(self.processors, self.plans, strict=True):
            setup = Setup(name, MANAGER, SINK, self.split_names, plan.physical, keys, self.groups, self.by_intervals)
            self.simulation.add(name, partial(self._processing, setup))

    def _splitting(self, streams: Streams, start: SplitState, disk: Disk) -> Splitting:
        return Splitting(disk, streams, start, self.processors, MANAGER)

    def _processing(self, setup: Setup, disk: Disk) -> Processing:
        return Processing(disk, setup)

    def _ticks(self, number: int) -> list[Tick]:
        """Ticks of the streams of one split machine; rows come a little after their time."""
        mine = [alias for i, alias in enumerate(sorted(self.sources)) if i % self.splits == number]
        end = max([0, *(max(t["ts"].to_pylist(), default=0) for t in self.tables.values())]) + self.step
        ticks = []
        for start in range(0, end + 1, self.step):
            rows = {}
            for alias in mine:
                source = self.sources[alias]
                table = self.tables[source.stream.name].combine_chunks()
                times = table["ts"].to_numpy()
                chosen = table.take(np.flatnonzero((times >= start) & (times < start + self.step)))
                batch = pa.RecordBatch.from_arrays([c.combine_chunks() for c in chosen.columns], schema=table.schema)
                rows[alias] = source_elements(source, batch, batch["ts"].to_numpy())
            ticks.append(Tick(float(start + self.step), rows, start + self.step))
        return [*ticks, Tick(float(end + 2 * self.step), {}, INFINITY)]

    def move(self, at: float, request: MoveRequest) -> None:
        """Asks for a move at a moment, again if the manager is down then."""
        self.simulation.post(MANAGER, request, at)

    def change_plan(self, at: float, processor: str, plan: Plan) -> None:
        """Changes a processor's plan at a moment."""
        self.simulation.post(processor, ChangePlan(plan.physical), at, urgent=True)

    def crash(self, name: str, at: float, down: float) -> None:
        """Crashes a machine and restarts it later."""
        self.simulation.at(at, lambda: self.simulation.crash(name))
        self.simulation.at(at + down, lambda: self.simulation.restart(name))

    @property
    def manager(self) -> ManagerState:
        """What the manager has written."""
        return ManagerState.from_json(json.loads(json.dumps(self.simulation.machines[MANAGER].disk["manager"])))

    @property
    def sink(self) -> Sink:
        program = self.simulation.machines[SINK].program
        assert isinstance(program, Sink)
        return program

    def run(self, most: float = 20_000) -> None:
        """Runs to the end, and holds the invariants after every few units of time."""
        while not self.simulation.run(until=self.simulation.now + 7):
            self.check_owners()
            assert self.simulation.now < most, f"does not end: {self.manager}"
        self.check_owners()
        assert not self.manager.moves
        assert self.sink.frontier == INFINITY

    def check_owners(self) -> None:
        """Every group has an owner; only groups on the move are held back, go to two machines, or lie in two."""
        self.checks += 1
        state = self.manager
        assert set(state.owners) <= set(self.processors)
        under_way = {g: move for move in state.moves for g in move.groups}
        for name in self.split_names:
            written = self.simulation.machines[name].disk.get("split")
            if written is None:
                continue
            assert SplitState.from_json(json.loads(json.dumps(written[0].to_json()))) == written[0]
            for group, entry in enumerate(written[0].table):
                assert entry.owner in self.processors
                if entry.held or entry.second is not None:
                    protocol = protocol_of(under_way[group].protocol)
                    assert bool(protocol.doubled) == (entry.second is not None)
                elif group not in under_way:
                    assert entry.owner == state.owners[group]
        for name in self.processors:
            for group in self._held(name):
                assert group in under_way or state.owners[group] == name, f"{name} holds group {group}"

    def _held(self, name: str) -> set[int]:
        program = self.simulation.machines[name].program
        if program is None:
            return set()
        assert isinstance(program, Processing)
        assert ProcessorState.from_json(json.loads(json.dumps(program.state.to_json()))) == program.state
        found = set(GroupStates(program.main.box, self.groups).rows(program.main.box.frontier))
        return found.union(*(track.groups for track in program.apart.values()))

    def result(self) -> pa.Table:
        """All results, in the order in which they left."""
        parts = self.sink.released
        return result_table(self.plans[0], concatenate(parts) if parts else None)

    def check_result(self) -> pa.Table:
        """The results are the oracle's, and left in order; nobody broke a promise about time."""
        result = self.result()
        assert self.sink.broken == 0
        name = "valid_from" if "valid_from" in result.column_names else "ts"
        times = [t for t in result[name].to_pylist() if t is not None]
        assert times == sorted(times)
        # Machines deal rows without telling in which order they came.
        unordered = {n: t.add_column(0, ARRIVAL, pa.array([0] * len(t), pa.int64())) for n, t in self.tables.items()}
        equal = ms.snapshot_equal(result, ms.reference(self.query, unordered, time="ts"))
        assert equal, str(equal)
        return result
