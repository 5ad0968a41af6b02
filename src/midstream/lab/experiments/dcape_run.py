"""D-CAPE's cluster in virtual time: seven processors, a machine for the streams, one for the manager, one for results.

Every machine runs the engine's own boxes and the protocols' own machines. Adaptation is decided as the paper has it:
local optimisation changes the plan of each processor when the rates have changed, load balancing moves groups from the
machine with most rows in memory to the one with least, one move at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from midstream.algebra.physical import SourceNode, walk_physical
from midstream.algebra.time import INFINITY
from midstream.api import ask
from midstream.job.task.ingest import source_elements
from midstream.lab.experiments.arrivals import poisson
from midstream.lab.experiments.dcape_meter import PartitionedLoops
from midstream.lab.experiments.dcape_policy import MachineLook, measured_balance, paper_request
from midstream.lab.experiments.virtual_processor import Costs
from midstream.lab.papers.partitioned_load_balancing.group_states import GroupStates, routing_keys
from midstream.lab.papers.partitioned_load_balancing.managing import Managing
from midstream.lab.papers.partitioned_load_balancing.processing import Processing, Setup
from midstream.lab.papers.partitioned_load_balancing.protocols.manager import ManagerState, MoveRequest
from midstream.lab.papers.partitioned_load_balancing.protocols.split import split_state
from midstream.lab.papers.partitioned_load_balancing.rows import Batch, ChangePlan
from midstream.lab.papers.partitioned_load_balancing.sink import Sink
from midstream.lab.papers.partitioned_load_balancing.splitting import Splitting, Streams, Tick
from midstream.lab.simulated_cluster import Disk, SimulatedLink, Simulation
from midstream.migration.protocol import widened
from midstream.operators.elements import concatenate
from midstream.optimizer.plans import Plan, plan_query

MANAGER, SINK, GENERATOR = "manager", "application", "generator"
FIRST, SECOND = "((A B) C)", "(A (B C))"
GROUPS, MACHINES = 100, 7
LEAST_SHARE = 0.5
"""What share of the mean a move must at least be worth."""

NETWORK = SimulatedLink(latency=1.0, bandwidth=100.0)
"""A millisecond, and 100 rows in a millisecond: about 100 Mbit/s for rows of a hundred bytes."""

QUERY = (
    "SELECT A.n AS a, B.n AS b, C.n AS c FROM A [RANGE {w}], B [RANGE {w}], C [RANGE {w}] WHERE A.k = B.k AND B.k = C.k"
)


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows per second of each stream, and what those of B and C fall to at a second, if they do."""

    each: float
    fallen: float | None = None
    at: float = 30.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What an experiment fixes, in seconds; `keys` are the sizes of the streams' key domains, small ones in large ones.

    Groups may move from `ready` on; the manager looks every `look` seconds. Local plans change at `optimised_at`, on
    all machines or on the `fullest` alone. `by_intervals` says that PTLB's sender keeps rows as Midstream does, and not
    for a window after their latest part; `even`, that every machine has as many groups from the start.
    """

    rates: Rates
    window: float
    end: float
    keys: Mapping[str, int]
    costs: Costs
    ready: float = 10.0
    look: float = 5.0
    tick: float = 1.0
    seed: int = 1
    groups: int = GROUPS
    machines: int = MACHINES
    optimised_at: float = 31.0
    optimised: Literal["all", "fullest"] = "all"
    by_intervals: bool = False
    even: bool = False

    def describe(self) -> dict[str, str]:
        """The setting in words."""
        falls = "" if self.rates.fallen is None else f", B and C {self.rates.fallen:g} from {self.rates.at:g} s on"
        domains = ", ".join(f"{name} {size}" for name, size in self.keys.items())
        return {
            "cluster": f"{self.machines} processors, one of them with half the groups and its share of the other half; "
            "links of 1 ms and 100 rows/ms; virtual time",
            "processors": f"{self.costs.compare:g} ms per compared pair, {self.costs.insert:g} ms per inserted row, "
            "nested loops within partitions",
            "streams": f"Poisson, {self.rates.each:g} rows/s each{falls}; {self.groups} partitions; seed {self.seed}",
            "keys": f"uniform, distinct keys {domains} (not published)",
            "window": f"{self.window:g} s",
            "plans": f"{FIRST}, local optimisation to {SECOND}",
            "balancing": f"from the machine with most rows in memory to that with least, one move at a time, decided "
            f"every {self.look:g} s from {self.ready:g} s on",
        }


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What adapts: local plans (`local`), groups by a protocol, both or nothing.

    The protocol `auto` stands for decisions of our own, which also choose the protocol.
    """

    local: bool = False
    protocol: str | None = None

    @property
    def name(self) -> str:
        """As the paper calls it."""
        balancing = "" if self.protocol is None else self.protocol.upper()
        if self.local:
            return f"LM-{balancing}" if balancing else "LM-only"
        return f"{balancing}-only" if balancing else "No-Adapt"


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at a second: results so far, rows in states, and rows that wait."""

    second: float
    results: int
    stored: int
    waiting: int

    @property
    def tuples(self) -> int:
        """All rows in the system."""
        return self.stored + self.waiting


@dataclass(frozen=True, slots=True)
class MoveLength:
    """A move: when it began and ended, in seconds, how many groups it took, and how many rows were shipped."""

    begun: float
    ended: float
    groups: int
    shipped: int

    @property
    def length(self) -> float:
        """In seconds."""
        return self.ended - self.begun


@dataclass(slots=True)
class Observed:
    """All that a run showed."""

    adaptation: Adaptation
    samples: list[Sample] = field(default_factory=list)
    moves: list[MoveLength] = field(default_factory=list)
    unfinished: list[MoveLength] = field(default_factory=list)
    """Moves under way when the run ended, so far."""
    finished: bool = False
    answer: list[tuple[object, ...]] = field(default_factory=list)

    @property
    def results(self) -> int:
        """How many results there were at the end of the run."""
        return self.samples[-1].results

    def at(self, second: float) -> Sample:
        """The last sample up to a second."""
        return next(sample for sample in reversed(self.samples) if sample.second <= second)

    @property
    def most_tuples(self) -> int:
        """The largest build-up."""
        return max(sample.tuples for sample in self.samples)


class Run:
    """One run of a setting under an adaptation."""

    def __init__(self, setting: Setting, adaptation: Adaptation) -> None:
        self.setting, self.adaptation = setting, adaptation
        self.tables = streams(setting)
        self.names = [f"m{i + 1}" for i in range(setting.machines)]
        self.simulation = Simulation(setting.seed, NETWORK)
        self.observed = Observed(adaptation)
        self.meters = {name: PartitionedLoops(setting.costs, setting.groups) for name in self.names}
        self.begun: dict[int, float] = {}
        self.shipped: dict[int, int] = {}
        costs = setting.costs
        self.own = measured_balance(self.tables, setting.groups, 2 * setting.window, costs.insert, 10 * costs.compare)
        self._add()

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """The plan to start with and the one for other rates."""
        asked = ask(QUERY.format(w=round(1000 * self.setting.window)), self.tables)
        return {shape: plan_query(asked.plan, shape) for shape in (FIRST, SECOND)}

    @cached_property
    def sources(self) -> dict[str, SourceNode]:
        """The streams as both plans read them."""
        found: dict[str, SourceNode] = {}
        for plan in self.plans.values():
            for node in walk_physical(plan.physical):
                if isinstance(node, SourceNode):
                    alias = node.stream.alias
                    found[alias] = widened(found[alias], node) if alias in found else node
        return found

    def _add(self) -> None:
        setting = self.setting
        owners = (even_owners if setting.even else skewed_owners)(setting.groups, self.names)
        manager = ManagerState(owners, (GENERATOR,))
        physical = self.plans[FIRST].physical
        keys = dict(routing_keys(physical))
        feed = Streams(self._ticks(), keys, setting.groups)
        start = split_state(GENERATOR, owners)
        self.simulation.add(MANAGER, lambda disk: Managing(disk, manager, again=None))
        self.simulation.add(SINK, lambda disk: Sink(disk, self.names, sure=True))
        self.simulation.add(GENERATOR, lambda disk: Splitting(disk, feed, start, self.names, MANAGER, sure=True))
        for name in self.names:
            made = Setup(
                name, MANAGER, SINK, (GENERATOR,), physical, keys, setting.groups, setting.by_intervals, sure=True
            )
            self.simulation.add(name, partial(self._processing, made))
        self.simulation.on_send = self._note

    def _processing(self, setup: Setup, disk: Disk) -> Processing:
        return Processing(disk, setup, self.meters[setup.name])

    def _ticks(self) -> list[Tick]:
        setting = self.setting
        tick, end = round(1000 * setting.tick), round(1000 * setting.end)
        batches = {name: table.combine_chunks().to_batches()[0] for name, table in self.tables.items()}
        times = {name: batch.column("ts").to_numpy() for name, batch in batches.items()}
        ticks = []
        for start in range(0, end, tick):
            rows = {}
            for alias, source in self.sources.items():
                low, high = np.searchsorted(times[alias], [start, start + tick])
                rows[alias] = source_elements(source, batches[alias].slice(low, high - low), times[alias][low:high])
            ticks.append(Tick(float(start + tick), rows, start + tick))
        return [*ticks, Tick(float(end), {}, INFINITY)]

    def run(self, drain: bool = False, moves: int | None = None) -> Observed:
        """Runs to the end of the setting, or until so many moves have ended; `drain`: until all rows are processed."""
        setting, step = self.setting, 1000 * self.setting.tick
        if self.adaptation.local:
            change, at = ChangePlan(self.plans[SECOND].physical), 1000 * setting.optimised_at
            for name in self.names if setting.optimised == "all" else self.names[:1]:
                self.simulation.post(name, change, at, urgent=True)
        moment = step
        while moment <= 1000 * setting.end and (moves is None or len(self.observed.moves) < moves):
            self.simulation.run(until=moment)
            self._sample()
            if self.adaptation.protocol and moment >= 1000 * setting.ready and moment % (1000 * setting.look) == 0:
                self._look(self.adaptation.protocol)
            moment += step
        for number, begun in self.begun.items():
            so_far = MoveLength(begun, self.simulation.now / 1000, self._moving(number), self.shipped.get(number, 0))
            self.observed.unfinished.append(so_far)
        if drain:
            self.observed.finished = self.simulation.run()
            self.observed.answer = self._answer()
        return self.observed

    def _look(self, protocol: str) -> None:
        """The manager's look: one move at a time, by rows in memory; or all at once, by measured time."""
        state = self._manager.state
        if protocol == "auto":
            self._look_by_time(state)
            return
        if state.moves:
            return
        memory = {name: float(self._stored(name) + self._waiting(name)) for name in self.names}
        request = paper_request(memory, protocol, LEAST_SHARE)
        if request is not None:
            self.simulation.post(MANAGER, self._bounded(request), urgent=True)

    def _look_by_time(self, state: ManagerState) -> None:
        looks = {
            name: MachineLook(self.simulation.machines[name].used.busy, self._waiting(name), self._rows(name))
            for name in self.names
        }
        for request in self.own.look(self.simulation.now, looks, state.owners, state.moving):
            self.simulation.post(MANAGER, request, urgent=True)

    def _rows(self, name: str) -> dict[int, int]:
        box = self._program(name).main.box
        return GroupStates(box, self.setting.groups).rows(box.frontier)

    def _bounded(self, request: MoveRequest) -> MoveRequest:
        """Rows that wait cannot be chosen, so the amount is what the sender holds of it in states."""
        stored, waiting = self._stored(request.sender), self._waiting(request.sender)
        share = stored / max(1, stored + waiting)
        return MoveRequest(request.protocol, request.sender, request.receiver, request.amount * share)

    @property
    def _manager(self) -> Managing:
        program = self.simulation.machines[MANAGER].program
        assert isinstance(program, Managing)
        return program

    def _program(self, name: str) -> Processing:
        program = self.simulation.machines[name].program
        assert isinstance(program, Processing)
        return program

    def _stored(self, name: str) -> int:
        """Rows in a machine's states that still count."""
        program, meter = self._program(name), self.meters[name]
        boxes = [program.main.box, *(track.execution.box for track in program.apart.values())]
        return sum(int(meter.histogram(state, box.frontier).sum()) for box in boxes for state in box.states())

    def _waiting(self, name: str) -> int:
        """Rows in a machine's queue."""
        inbox = self.simulation.machines[name].inbox
        payloads = (getattr(message, "payload", None) for _, message in inbox)
        return sum(payload.size for payload in payloads if isinstance(payload, Batch))

    def _held(self) -> int:
        program = self.simulation.machines[GENERATOR].program
        assert isinstance(program, Splitting)
        return sum(len(part.elements) for part in program.held)

    def _sample(self) -> None:
        program = self.simulation.machines[SINK].program
        assert isinstance(program, Sink)
        results = sum(map(len, program.released)) + sum(map(len, program.release.waiting))
        stored = sum(self._stored(name) for name in self.names)
        waiting = sum(self._waiting(name) for name in self.names) + self._held()
        self.observed.samples.append(Sample(self.simulation.now / 1000, results, stored, waiting))

    def _note(self, now: float, sender: str, to: str, message: Any) -> None:
        kind = type(message).__name__
        if kind in ("DuplicatePartitions", "DeactivatePartitions"):
            self.begun.setdefault(message.move, now / 1000)
        if kind == "ReceivePartitions":
            self.shipped[message.move] = self.shipped.get(message.move, 0) + message.contents.rows
        if kind in ("AllOldPurged", "ReactivatePartitions") and message.move in self.begun:
            groups = len(getattr(message, "groups", ())) or self._moving(message.move)
            begun = self.begun.pop(message.move)
            shipped = self.shipped.get(message.move, 0)
            self.observed.moves.append(MoveLength(begun, now / 1000, groups, shipped))

    def _moving(self, number: int) -> int:
        return next((len(move.groups) for move in self._manager.state.moves if move.number == number), 0)

    def _answer(self) -> list[tuple[object, ...]]:
        program = self.simulation.machines[SINK].program
        assert isinstance(program, Sink)
        if not program.released:
            return []
        together = concatenate(program.released)
        columns = [column.to_pylist() for column in together.columns.columns]
        return sorted(zip(*columns, together.valid_from.tolist(), together.valid_to.tolist(), strict=True))


def streams(setting: Setting) -> dict[str, pa.Table]:
    """Poisson arrivals in milliseconds, the same for every adaptation."""
    rng = np.random.default_rng(setting.seed)
    tables = {}
    for name in "ABC":
        times = poisson(rng, 1000 / setting.rates.each, round(1000 * setting.end))
        fallen, at = setting.rates.fallen, 1000 * setting.rates.at
        if fallen is not None and name != "A":
            later = poisson(rng, 1000 / fallen, round(1000 * setting.end))
            times = np.concatenate([times[times < at], later[later >= at]])
        keys = rng.integers(0, setting.keys[name], len(times))
        tables[name] = pa.table({"ts": times, "n": np.arange(len(times)), "k": keys})
    return tables


def even_owners(groups: int, machines: Sequence[str]) -> tuple[str, ...]:
    """As many groups to each machine."""
    return tuple(machines[g % len(machines)] for g in range(groups))


def skewed_owners(groups: int, machines: Sequence[str]) -> tuple[str, ...]:
    """Half of the groups to the first machine, the others evenly to all."""
    half = groups // 2
    return tuple(machines[0] if g < half else machines[(g - half) % len(machines)] for g in range(groups))
