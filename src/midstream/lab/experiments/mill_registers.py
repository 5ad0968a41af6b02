"""`mill-registers`: one frontier per query against a register per input of every operator, on the engine's operators.

Results leave in order of their start, and the snapshot of an instant is complete once every input that can still change
it has passed the instant. The root of a plan depends on all of the query's streams, so its register is never beyond the
least of theirs, which is the query's frontier. Registers inside a plan can raise operators further. What these give
starts beyond the frontier and waits at the root, except for results that started before and go on: of these, a join
above an aggregate would know earlier how long they last.

Both ways run the same live operators over the same arrivals. After each arrival they learn the same registers; how far
their results are then, and what they have released, is compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.cluster.local.live_query import Release
from midstream.inputs import catalog_of
from midstream.job.task.ingest import reached, source_elements
from midstream.lab.experiments.report import Report
from midstream.language import parse
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.slices import grid_floor
from midstream.optimizer.plans import Plan, plan_query
from midstream.scheduling.scheduler import Scheduler

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
END = 160
GRID = 10
RATES = {"A": 1.0, "B": 0.4, "C": 0.12, "D": 0.6}
"""Rows per instant of each stream."""
SILENT = {"B": (40, 75), "C": (85, 135)}
"""When streams bring nothing."""

LONG_SILENCE = (20, 150)
"""When C is silent where it is measured what states hold."""
JOIN_AND_SILENCE = "SELECT A.k FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k UNION ALL SELECT k FROM C [RANGE 20]"

WITHOUT_GRID = {
    "a union": "SELECT k FROM A [RANGE 20] UNION ALL SELECT k FROM C [RANGE 20]",
    "a union below a join": "SELECT u.k, C.v FROM"
    " (SELECT k FROM A [RANGE 20] UNION ALL SELECT k FROM B [RANGE 20]) AS u, C [RANGE 20] WHERE u.k = C.k",
    "a join below a union": JOIN_AND_SILENCE,
    "joins of four streams": "SELECT A.k, B.v FROM A [RANGE 9], B [RANGE 9], C [RANGE 9], D [RANGE 9]"
    " WHERE A.k = B.k AND B.k = C.k AND C.k = D.k",
}
WITH_GRID = {
    "a count below a join": "SELECT g.k, g.n, C.v FROM (SELECT k, count(*) AS n FROM A [RANGE 20] GROUP BY k) AS g,"
    " C [RANGE 20] WHERE g.k = C.k",
    "a union of counts": "SELECT k, count(*) AS n FROM A [RANGE 20] GROUP BY k"
    " UNION ALL SELECT k, count(*) AS n FROM C [RANGE 20] GROUP BY k",
    "a difference below a join": "SELECT x.k, C.v FROM"
    " (SELECT k FROM A [RANGE 20] EXCEPT SELECT k FROM B [RANGE 20]) AS x, C [RANGE 20] WHERE x.k = C.k",
    "an outer join": "SELECT A.k, B.v FROM A [RANGE 20] LEFT JOIN B [RANGE 20] ON A.k = B.k",
}

Steps = dict[tuple[object, ...], list[int]]
"""By result and instant, the arrivals after which copies of it were released."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Rows of a stream that come together, and what all streams promise then."""

    stream: str
    rows: pa.RecordBatch
    registers: Mapping[str, int]


@dataclass(slots=True)
class Released:
    """What one way released after which arrivals, how far its results were after each, and what its states held."""

    steps: Steps
    passed: list[int]
    held: list[int]


@dataclass(slots=True)
class Compared:
    """How one frontier compares with registers, over some runs.

    `behind` counts arrivals after which its complete snapshots ended earlier, `most` is by how many instants at most;
    `later` counts results it released later.
    """

    arrivals: int = 0
    behind: int = 0
    most: int = 0
    results: int = 0
    later: int = 0

    def add(self, frontier: Released, registers: Released) -> None:
        """Compares what two ways released, which must be the same in the end."""
        assert frontier.steps.keys() == registers.steps.keys()
        for mine, its in zip(frontier.passed, registers.passed, strict=True):
            self.arrivals += 1
            self.behind += mine < its
            self.most = max(self.most, its - mine if mine > BEGINNING else 0)
        for result, steps in frontier.steps.items():
            for one, other in zip(sorted(steps), sorted(registers.steps[result]), strict=True):
                self.results += 1
                self.later += one > other


class RegisterPerInput(Scheduler):
    """Advances each operator as far as the registers of its own inputs allow."""

    def advance_by(self, registers: Mapping[str, int]) -> int:
        """Learns what streams promise; gives the register of the results."""
        box = self.box
        sources = [reached([source], registers) for source, _ in box.sources]
        given: list[int] = []
        for i, operator in enumerate(box.operators):
            incoming = min(given[place] if place >= 0 else sources[~place] for place in box.inputs[i])
            if incoming > operator.frontier:
                self.send(box.wires[i], operator.advance(incoming))
            given.append(operator.passed)
        root = box.members[0].root
        return given[root] if root >= 0 else sources[~root]


def mill_registers(seed: int = 0) -> Report:
    """Whether a register per input would let the engine's operators answer earlier."""
    arrivals = [drawn(seed, on_demand) for on_demand in (False, True)]
    plain = _compared(WITHOUT_GRID, arrivals, GRID, on_grid=False)
    finest = _compared(WITH_GRID, arrivals, 1, on_grid=False)
    on_grid = _compared(WITH_GRID, arrivals, GRID, on_grid=True)
    off_grid = _compared(WITH_GRID, arrivals, GRID, on_grid=False)
    report = Report("mill-registers", "One frontier per query against a register per input", _settings(len(arrivals)))
    report.verdict(
        "one frontier per query releases no result of unions and joins later than a register per input",
        "a union or join waits for the registers of its inputs",
        f"{plain.later:,} of {plain.results:,} results later",
        plain.later == 0,
        kind="check",
    )
    for name, found in (("answers at every instant", finest), (f"answers every {GRID} instants", on_grid)):
        report.verdict(
            f"with operators that wait deep in a plan that {name}, no snapshot is complete later",
            "a union or join waits for the registers of its inputs",
            f"behind after {found.behind:,} of {found.arrivals:,} arrivals",
            found.behind == 0,
            kind="check",
        )
    report.verdict(
        "if operators answered off the query's grid, snapshots would be complete by less than a step of it earlier",
        "not discussed",
        f"up to {off_grid.most} of {GRID} instants, after {off_grid.behind:,} of {off_grid.arrivals:,} arrivals",
        off_grid.most < GRID,
        kind="own",
    )
    report.verdict(
        "no part of a snapshot that is not complete yet comes later either",
        "not discussed",
        f"{finest.later:,} of {finest.results:,} results later where the query answers at every instant",
        finest.later == 0,
        "a result that has started is known to go on once the inputs below an aggregate or difference have passed, "
        "before a silent stream elsewhere in the plan has. One frontier leaves that out: what a query has given would "
        "depend on its plan, and states purged at different instants could not become those of another plan",
        kind="own",
    )
    _state(report, seed)
    report.notes.append(
        "A result counts once for each instant at which it is valid. Registers come from rows alone in half of the "
        "runs; in the other half silent streams promise on demand."
    )
    return report


def _state(report: Report, seed: int) -> None:
    """What registers buy besides delay: states below a union are purged while a stream elsewhere is silent."""
    held = {}
    for on_demand in (False, True):
        arrivals = drawn(seed, on_demand, {"C": LONG_SILENCE})
        for per_input in (False, True):
            held[on_demand, per_input] = max(released(_plan(JOIN_AND_SILENCE, 1), arrivals, per_input, False).held)
    most, least = held[False, False], held[False, True]
    report.verdict(
        "while C is silent, one frontier keeps no more rows for A joined with B UNION ALL C than a register per input",
        "not discussed",
        f"{most} rows against {least}",
        most <= least,
        "a join below the union is purged by the frontier, which C holds back. Where C promises on demand (`skew`), "
        f"one frontier keeps {held[True, False]} rows and registers {held[True, True]}",
        kind="own",
        value=most / least,
    )


def drawn(seed: int, on_demand: bool, silent: Mapping[str, tuple[int, int]] | None = None) -> list[Arrival]:
    """Arrivals of streams of different rates, of which some are silent for a while."""
    random = np.random.default_rng(seed)
    registers = dict.fromkeys(RATES, BEGINNING)
    found = []
    for instant in range(END):
        for name in random.permutation(list(RATES)).tolist():
            start, end = (SILENT if silent is None else silent).get(name, (0, 0))
            count = 0 if start <= instant < end else int(random.poisson(RATES[name]))
            if on_demand:
                registers = {**registers, name: max(registers[name], instant)}
            if count:
                ticks = np.full(count, instant)
                columns = {"ts": ticks, "k": random.integers(0, 5, count), "v": random.integers(0, 3, count)}
                registers = {**registers, name: instant}
                found.append(Arrival(name, pa.RecordBatch.from_pydict(columns), registers))
    return found


def released(plan: Plan, arrivals: Sequence[Arrival], per_input: bool, on_grid: bool) -> Released:
    """After which arrivals results are released, by a register per input or by one frontier."""
    box, release, found = Box(plan.physical), Release(), Released(defaultdict(list), [], [])
    running = RegisterPerInput(box, release)
    sources = [source for source, _ in box.sources]

    def learn(registers: Mapping[str, int]) -> int:
        if not per_input:
            running.advance(reached(sources, registers))
            return box.passed
        register = running.advance_by(registers)
        return grid_floor(register, box.grid) if on_grid else register

    for step, arrival in enumerate(arrivals):
        ticks = arrival.rows.column("ts").to_numpy()
        for number, source in enumerate(sources):
            if source.stream.name == arrival.stream:
                running.feed(number, source_elements(source, arrival.rows, ticks))
        found.passed.append(learn(arrival.registers))
        found.held.append(sum(state.rows for state in box.states()))
        _note(found.steps, release.release(found.passed[-1]), step)
    _note(found.steps, release.release(learn(dict.fromkeys(RATES, INFINITY))), len(arrivals))
    return found


def _note(found: Steps, results: Elements | None, step: int) -> None:
    if results is not None:
        values = zip(*(column.to_pylist() for column in results.columns.columns), strict=True)
        for row, start, end in zip(values, results.valid_from.tolist(), results.valid_to.tolist(), strict=True):
            for instant in range(start, end):
                found[(*row, instant)].append(step)


def _compared(queries: Mapping[str, str], traffic: Sequence[Sequence[Arrival]], every: int, on_grid: bool) -> Compared:
    compared = Compared()
    for cql in queries.values():
        plan = _plan(cql, every)
        for arrivals in traffic:
            frontier, registers = (released(plan, arrivals, way, on_grid) for way in (False, True))
            compared.add(frontier, registers)
    return compared


def _plan(cql: str, every: int) -> Plan:
    return plan_query(parse(cql, catalog_of(dict.fromkeys(RATES, SCHEMA), "ts")), None, every)


def _settings(runs: int) -> dict[str, object]:
    return {
        "plans without a grid": ", ".join(WITHOUT_GRID),
        "plans with a grid": ", ".join(WITH_GRID),
        "grid": f"{GRID} instants",
        "rows per instant": ", ".join(f"{name}: {rate:g}" for name, rate in RATES.items()),
        "silent": ", ".join(f"{name} in [{start}, {end})" for name, (start, end) in SILENT.items()),
        "runs of each plan": runs,
    }
