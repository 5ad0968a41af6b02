"""Tasks on simulated machines: a coordinator deals a job's steps to workers, which run the very steps of a job.

A worker keeps what its tasks gave and hands it to the tasks of the next stage that ask for it. What is lost with a
worker is made again, and a task that says nothing for too long is started once more elsewhere: several attempts of one
task may then run, and tasks of the next stage may take their input from different ones. Every message may be lost,
come late, twice or out of order.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.checkpoint.process import Process, running_as
from midstream.job.task.exchange import SLOT
from midstream.lab.simulated_cluster.machines import MachineStep

Blocks = tuple[pa.RecordBatch, ...]
Name = tuple[str, int]
"""Whose work it is: the driver, and the number of the work among its own."""

Attempt = tuple[Name, int, int, int]
"""A task's work, stage and slot, and which attempt at it."""

Transfers = tuple[tuple[int, float], ...]
"""How long what a slot of the stage before gave was on its way."""

BASE_COST = 50.0
"""What a task costs besides one unit for each row that it is given or gives."""

PATIENCE = 40.0
"""For how long a task may say nothing until it is started once more."""

FETCHING = 15.0
"""For how long a worker waits for the input of a task."""


@dataclass(frozen=True, slots=True)
class Begin:
    """To a coordinator: steps, pickled, one after the other, over the rows of each slot."""

    name: Name
    steps: tuple[bytes, ...]
    slots: tuple[Blocks, ...]


@dataclass(frozen=True, slots=True)
class TaskRun:
    """To a worker: one task. Its rows come with it, or from other tasks' workers."""

    attempt: Attempt
    step: bytes
    slots: int
    last: bool
    rows: Blocks = ()
    sources: tuple[tuple[str, Attempt], ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """To the coordinator: a task is done; of the last stage with what it gave. Its input took so long to come."""

    attempt: Attempt
    given: Blocks = ()
    transfers: Transfers = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """To the coordinator: a task cannot be run, because what some others gave cannot be had."""

    attempt: Attempt
    missing: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """From worker to worker: what a task gave for a slot, for another task."""

    attempt: Attempt
    wanted_by: Attempt


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer, sent at a time; no rows if they are not there."""

    attempt: Attempt
    wanted_by: Attempt
    rows: Blocks | None
    at: float


@dataclass(slots=True)
class SimulatedWork:
    """What a coordinator knows of the steps under way."""

    begun: Begin
    attempts: int = 0
    running: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    """Attempts from which something may still be heard, by stage and slot."""
    done: dict[tuple[int, int], tuple[str, Attempt]] = field(default_factory=dict)
    given: dict[int, Blocks] = field(default_factory=dict)
    transfers: dict[tuple[int, int], Transfers] = field(default_factory=dict)

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(self.begun.steps)

    def open_stage(self) -> int | None:
        """The first stage of which something is to be done; none if all is done."""
        slots = range(len(self.begun.slots))
        return next((s for s in range(self.stages) if any((s, slot) not in self.done for slot in slots)), None)


class Coordinator:
    """Runs on a driver's machine, and is lost with it; slots run on any worker unless they are `pinned`."""

    def __init__(self, workers: Sequence[str], random: Random, pinned: bool = False) -> None:
        self.workers = list(workers)
        self.random = random
        self.pinned = pinned
        self.transfers: dict[tuple[int, int], Transfers] = {}
        """How long the input of each task of the last work was on its way, by stage and slot."""
        self.work: SimulatedWork | None = None
        self.finished: dict[Name, list[Blocks]] = {}

    def start(self, step: MachineStep) -> None:
        """Nothing is under way."""

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes work, or news of a task."""
        if isinstance(message, Begin):
            self.work = SimulatedWork(message)
            self._launch(step)
        elif self.work is not None and message.attempt[0] == self.work.begun.name:
            if isinstance(message, Done):
                self._note_done(step, sender, message)
            elif isinstance(message, Lost):
                self._note_lost(step, message)

    def wake(self, step: MachineStep, timer: str) -> None:
        """Starts a task once more of which nothing was heard."""
        work = self.work
        stage, slot, attempt = map(int, timer.rpartition(" ")[2].split("/"))
        if work is not None and timer.startswith(f"{work.begun.name} "):
            work.running.get((stage, slot), set()).discard(attempt)
            self._launch(step)

    def _note_done(self, step: MachineStep, sender: str, message: Done) -> None:
        work = self.work
        assert work is not None
        _, stage, slot, number = message.attempt
        work.running.get((stage, slot), set()).discard(number)
        if (stage, slot) in work.done and self.random.random() < 0.5:
            return  # of several attempts any may count, a later one too
        if stage == work.stages - 1:
            work.given[slot] = message.given
        work.done[stage, slot] = sender, message.attempt
        work.transfers[stage, slot] = message.transfers
        self._launch(step)

    def _note_lost(self, step: MachineStep, message: Lost) -> None:
        work = self.work
        assert work is not None
        for lost in message.missing:
            known = work.done.get(lost[1:3])
            if known is not None and known[1] == lost:
                del work.done[lost[1:3]]
        _, stage, slot, number = message.attempt
        work.running.get((stage, slot), set()).discard(number)
        self._launch(step)

    def _launch(self, step: MachineStep) -> None:
        """Starts what can be started, or ends the work."""
        work = self.work
        assert work is not None
        stage = work.open_stage()
        if stage is None:
            self.finished = {work.begun.name: [work.given[slot] for slot in sorted(work.given)]}
            self.transfers = work.transfers
            self.work = None
            return
        slots = range(len(work.begun.slots))
        for slot in slots:
            if (stage, slot) not in work.done and not work.running.get((stage, slot)):
                self._start(step, work, stage, slot)

    def _start(self, step: MachineStep, work: SimulatedWork, stage: int, slot: int) -> None:
        work.attempts += 1
        attempt = (work.begun.name, stage, slot, work.attempts)
        slots = len(work.begun.slots)
        rows = work.begun.slots[slot] if stage == 0 else ()
        sources = tuple(work.done[stage - 1, other] for other in range(slots)) if stage else ()
        run = TaskRun(attempt, work.begun.steps[stage], slots, stage == work.stages - 1, rows, sources)
        work.running.setdefault((stage, slot), set()).add(work.attempts)
        worker = self.workers[slot % len(self.workers)] if self.pinned else self.random.choice(self.workers)
        step.send(worker, run, size=_rows(rows))
        step.set_timer(f"{work.begun.name} {stage}/{slot}/{work.attempts}", PATIENCE)


@dataclass(slots=True)
class Gathering:
    """A task that waits for its input."""

    run: TaskRun
    coordinator: str
    rows: dict[Attempt, Blocks] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


class TaskKilled(BaseException):
    """A machine stops in the middle of a task."""


class Worker:
    """Runs tasks, and keeps what they gave until a driver begins something else."""

    def __init__(self, name: str, process: Process, random: Random, crash: Callable[[str], None]) -> None:
        self.name = name
        self.process = process
        self.random = random
        self.crash = crash
        self.kept: dict[Attempt, list[Blocks]] = {}
        self.gathering: dict[Attempt, Gathering] = {}

    def start(self, step: MachineStep) -> None:
        """There is nothing yet."""

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes a task, a request for what one gave, or an answer to one."""
        if isinstance(message, TaskRun):
            self._take(step, sender, message)
        elif isinstance(message, Fetch):
            kept = self.kept.get(message.attempt)
            rows = None if kept is None else kept[message.wanted_by[2]]
            step.send(sender, Fetched(message.attempt, message.wanted_by, rows, step.now), size=_rows(rows or ()))
        elif isinstance(message, Fetched):
            self._note_fetched(step, message)

    def wake(self, step: MachineStep, timer: str) -> None:
        """Gives up a task whose input did not come."""
        for attempt, gathering in list(self.gathering.items()):
            if str(attempt) == timer:
                missing = [a for _, a in gathering.run.sources if a not in gathering.rows]
                self._give_up(step, attempt, missing)

    def _take(self, step: MachineStep, sender: str, run: TaskRun) -> None:
        job, number = run.attempt[0]
        old = [a for a in self.kept if a[0][0] == job and a[0][1] < number]
        for attempt in old:
            del self.kept[attempt]
        if not run.sources:
            self._run(step, sender, run, run.rows)
            return
        self.gathering[run.attempt] = Gathering(run, sender)
        step.set_timer(str(run.attempt), FETCHING)
        for worker, attempt in run.sources:
            step.send(worker, Fetch(attempt, run.attempt))

    def _note_fetched(self, step: MachineStep, message: Fetched) -> None:
        gathering = self.gathering.get(message.wanted_by)
        if gathering is None:
            return
        if message.rows is None:
            self._give_up(step, message.wanted_by, [message.attempt])
            return
        gathering.rows[message.attempt] = message.rows
        gathering.seconds[message.attempt[2]] = step.now - message.at
        if len(gathering.rows) == len(gathering.run.sources):
            del self.gathering[message.wanted_by]
            step.cancel_timer(str(message.wanted_by))
            rows = [row for _, attempt in gathering.run.sources for row in gathering.rows[attempt]]
            self.random.shuffle(rows)
            took = tuple(sorted(gathering.seconds.items()))
            self._run(step, gathering.coordinator, gathering.run, tuple(rows), took)

    def _give_up(self, step: MachineStep, attempt: Attempt, missing: Sequence[Attempt]) -> None:
        gathering = self.gathering.pop(attempt)
        step.cancel_timer(str(attempt))
        step.send(gathering.coordinator, Lost(attempt, tuple(missing)))

    def _run(self, step: MachineStep, coordinator: str, run: TaskRun, rows: Blocks, took: Transfers = ()) -> None:
        try:
            with running_as(self.process):
                task = pickle.loads(run.step)
                given = [r for r in task.run(run.attempt[2], iter(rows)) if r.num_rows]
        except TaskKilled:
            self.crash(self.name)
            return
        step.work(BASE_COST + _rows(rows) + _rows(given))
        if run.last:
            step.send(coordinator, Done(run.attempt, tuple(given), took), size=_rows(given))
            return
        self.kept[run.attempt] = _dealt(given, run.slots, self.random)
        step.hold(sum(_rows(blocks) for dealt in self.kept.values() for blocks in dealt))
        step.send(coordinator, Done(run.attempt, (), took))


def _rows(blocks: Sequence[pa.RecordBatch]) -> float:
    return float(sum(block.num_rows for block in blocks))


def _dealt(given: Sequence[pa.RecordBatch], slots: int, random: Random) -> list[Blocks]:
    """What goes to each slot of the next stage, in any order."""
    dealt: list[list[pa.RecordBatch]] = [[] for _ in range(slots)]
    for rows in given:
        owners = rows.column(SLOT).to_numpy()
        for slot in np.unique(owners).tolist():
            chosen = np.flatnonzero(owners == slot).tolist()
            random.shuffle(chosen)
            dealt[slot].append(rows.take(pa.array(chosen, pa.int64())))
    return [tuple(blocks) for blocks in dealt]
