"""A job's cluster and backend on simulated machines: real steps and real manifests, in virtual time.

Rows come from files of a source that outlives everything; a session on this backend takes one batch whenever its
program asks for it. Everything else is what runs in this process and on Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.checkpoint.file_entries import SourceFile
from midstream.checkpoint.files import Files
from midstream.cluster.local.backend import LocalBackend, LocalInput
from midstream.cluster.local.cluster import LocalCluster
from midstream.cluster.slot_threads import Dealt, SlotThreads, Step
from midstream.inputs import StreamSettings
from midstream.job.job import Job
from midstream.job.task.exchange import NOTE
from midstream.job.task.reports import Report
from midstream.lab.simulated_cluster.processes import SimulatedProcess
from midstream.lab.simulated_cluster.tasks import Begin, Coordinator


@dataclass(slots=True)
class SimulatedSource:
    """Files of rows that nobody ever loses, each of them read once; `most` is how many a batch takes."""

    schema: pa.Schema
    most: int | None = 1
    files: dict[str, pa.Table] = field(default_factory=dict)

    def portion(self, files: Sequence[SourceFile]) -> Sequence[SourceFile]:
        """The files that a batch takes of some that wait."""
        return files[: self.most]

    def present(self, but: Collection[str] = ()) -> list[SourceFile]:
        """The files that are there, oldest first, without some that are known."""
        return [SourceFile(name, rows.num_rows, 0) for name, rows in self.files.items() if name not in but]

    @property
    def place(self) -> str:
        """They are in no folder."""
        return ""

    def known(self, folder: str, read: Sequence[SourceFile]) -> Sequence[SourceFile]:
        """They are never moved."""
        return read

    def check_unchanged(self, read: Collection[SourceFile]) -> None:
        """They never change."""

    def times(self, file: SourceFile, column: str) -> pa.ChunkedArray | None:
        """They are known when they are read."""
        return None

    def read(self, files: Sequence[SourceFile]) -> tuple[pa.Table, list[SourceFile]]:
        """The rows of files, in order, and the files."""
        tables = [self.files[file.path] for file in files]
        return pa.concat_tables(tables) if tables else self.schema.empty_table(), list(files)


class SimulatedSlots(SlotThreads):
    """Has a driver's steps run by the machines of a simulation; `pinned`: each slot on one of them."""

    def __init__(self, job: SimulatedProcess, workers: Sequence[str], random: Random, pinned: bool = False) -> None:
        super().__init__(threads=1, shuffle=np.random.default_rng(random.getrandbits(32)))
        self.job = job
        self.coordinator = Coordinator(workers, random, pinned)
        self.job.simulation.add(job.name, lambda disk: self.coordinator, speed=1000.0)
        self._numbers = count()

    def run(self, steps: Sequence[Step], slots: Dealt, count: int) -> list[Report]:
        """Runs steps one after the other over the rows of each slot; gives every slot's reports."""
        name = (self.job.name, next(self._numbers))
        begun = Begin(name, tuple(map(pickle.dumps, steps)), tuple(tuple(rows) for rows in slots))
        self.job.simulation.post(self.job.name, begun)
        self.job.wait_until(lambda: name in self.coordinator.finished)
        given = [rows for blocks in self.coordinator.finished[name] for rows in blocks]
        reports = [Report.from_bytes(note) for rows in given for note in rows.column(NOTE).to_pylist()]
        if self.coordinator.pinned:  # else it was between any two machines
            for report in reports:
                report.traffic.received.update(self.coordinator.transfers.get((report.stage, report.slot), ()))
        return reports


class SimulatedCluster(LocalCluster):
    """A job's cluster whose slots are tasks on simulated machines."""

    def __init__(
        self, files: Files, job: SimulatedProcess, workers: Sequence[str], random: Random, pinned: bool = False
    ) -> None:
        slots = SimulatedSlots(job, workers, random, pinned)
        super().__init__(files, shuffle=slots.shuffle)
        self._slots = slots


class OnDemandBackend(LocalBackend):
    """Brings batches to a session on demand."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._begun = False

    def stream(self, name: str, source: Any, columns: pa.Schema | None, settings: StreamSettings) -> LocalInput:
        """A stream from a source of files, or one into which rows are pushed."""
        if not isinstance(source, SimulatedSource):
            return super().stream(name, source, columns, settings)
        declared = super().stream(name, source.schema, columns, settings)
        return LocalInput(declared.declaration, source)

    def begin(self, job: Job, inputs: Sequence[LocalInput], trigger: str | None) -> None:
        """Gets ready for the first batch; works through what there is if that is all it is to do."""
        self.prepare(job, inputs)
        self._begun = True
        if trigger == "available":
            while self.take(job):
                pass
            self._begun = False

    def take(self, job: Job) -> bool:
        """One batch of files that were not read yet; False if there are none."""
        return self._take(job, self._readings.waiting()) is not None

    @property
    def active(self) -> bool:
        """Whether batches may still come."""
        return self._begun

    def halt(self) -> None:
        """No batch is taken any more."""
        self._begun = False

    def ended(self, job: Job) -> bool:
        """Whether it has been halted; what made a batch fail is raised."""
        if job.turns.failure is not None:
            raise job.turns.failure
        return not self._begun


class SimulatedBackend(OnDemandBackend):
    """Runs a session on simulated machines; slots that are `pinned` to workers tell how long rows took to come."""

    def __init__(
        self, files: Files, job: SimulatedProcess, workers: Sequence[str], random: Random, pinned: bool = False
    ) -> None:
        super().__init__(files)
        self.cluster = SimulatedCluster(files, job, workers, random, pinned)
        self.cluster.rereading = self._readings.rereading
