"""The step: what one slot does in one stage of a batch, as a function of Arrow batches.

It depends on the last manifest (through its fields) and on the multiset of the rows it is given, on nothing else. It
writes state and results under names nobody has used, and answers with rows for the next stage and one report; whether
any of it counts is decided when the driver commits the manifest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING
from midstream.distribution.fragments import Route
from midstream.errors import InputError, MidstreamError
from midstream.operators.elements import Elements
from midstream.operators.hashing import hash_columns
from midstream.runtime.checkpoint.files import Files
from midstream.runtime.checkpoint.manifest import DeadLetterFile
from midstream.runtime.checkpoint.names import name_for
from midstream.runtime.spark.fragment_life import FragmentLife, FragmentWork, parquet_bytes
from midstream.runtime.spark.intake import Intake, source_elements
from midstream.runtime.spark.layout import FROM, NOTE, NOTE_PORT, PORT, SLOT, TO, Layout, one_batch
from midstream.runtime.spark.reports import Report
from midstream.runtime.spark.shared_life import Pool, SharedLife, SharedWork
from midstream.runtime.spark.slot_looks import LookRequest, look_at

Life = FragmentLife | SharedLife

GROUP_BITS = 8
GROUPS = 2**GROUP_BITS
"""Into how many partition groups keys are hashed; a slot owns some of them."""


@dataclass(frozen=True, slots=True)
class StageStep:
    """One stage of a batch, for all queries, ready to be shipped."""

    checkpoint: str
    batch_id: int
    stage: int
    last: bool
    streams: Mapping[int, StreamDeclaration]
    registers: Mapping[str, int]
    arriving: Layout
    exchanged: Layout
    routing: tuple[int, ...]
    work: tuple[FragmentWork | SharedWork, ...]
    looks: tuple[LookRequest, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What Spark calls in each slot."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from self.run(context.partitionId(), batches)

    def run(self, slot: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows for the next stage, and a report."""
        report = Report(self.stage, slot)
        started = time.perf_counter()
        rows = one_batch(list(batches))
        report.seconds["transfer"] = time.perf_counter() - started
        parts = {} if rows is None else self.arriving.split(rows)
        if NOTE_PORT in parts:
            yield self._onward(parts.pop(NOTE_PORT))
        try:
            yield from self._process(slot, parts, report)
        except MidstreamError as error:
            report.error = error
        except pa.ArrowException as error:
            report.error = InputError("a batch cannot be processed", detail=f"{type(error).__name__}: {error}")
        yield self._note(report)

    def _process(self, slot: int, parts: Mapping[int, pa.RecordBatch], report: Report) -> Iterator[pa.RecordBatch]:
        files = Files.at(self.checkpoint)
        at = time.perf_counter()
        pool = Pool()
        lives: list[Life] = [
            SharedLife(work, files, slot, pool) if isinstance(work, SharedWork) else FragmentLife(work, files, slot)
            for work in self.work
        ]
        at = _lap(report, "state", at)
        # What is final before this batch is given first where all input is at hand: it frees state before probing.
        early = [life for life in lives if not life.work.received]
        for life in early:
            life.advance()
        dead = self._take_in(parts, lives, report) if self.stage == 0 else []
        forwarded = [] if self.stage == 0 else list(self._receive(parts, lives))
        for life in lives:
            if life.work.received:
                life.advance()
        at = _lap(report, "kernel", at)
        for life in lives:
            report.fragments.update({work.name: told for work, told in life.closed(self.batch_id)})
        if dead:
            report.dead_letters.append(self._bury(files, slot, pa.concat_tables(dead)))
        _lap(report, "write", at)
        yield from forwarded
        for life in lives:
            for work, output in life.sent():
                yield self._sent(work, slot, output)

    def _take_in(self, parts: Mapping[int, pa.RecordBatch], lives: Sequence[Life], report: Report) -> list[pa.Table]:
        """Feeds the rows of streams, in the order of the streams."""
        intake = Intake(self.batch_id, report, [])
        for port, declaration in self.streams.items():
            if port not in parts:
                continue
            rows = self.arriving.payload(port, parts[port])
            rows, ticks = intake.accept(declaration, rows, self.registers.get(declaration.name, BEGINNING))
            if self.looks and len(ticks):
                at = time.perf_counter()
                report.looks |= look_at(self.looks, declaration.name, rows, ticks)
                _lap(report, "watch", at)
            for life in lives:
                for source in life.sources:
                    if source.stream.name == declaration.name and len(ticks):
                        life.take(source, source_elements(source, rows, ticks))
        return intake.dead

    def _receive(self, parts: Mapping[int, pa.RecordBatch], lives: Sequence[Life]) -> Iterator[pa.RecordBatch]:
        """Feeds what earlier stages gave, and passes on what later stages wait for."""
        readers = {port: life for life in lives if isinstance(life, FragmentLife) for port in life.work.received}
        for port in sorted(parts):
            rows = parts[port]
            if port not in readers:
                yield self._onward(rows)
                continue
            life = readers[port]
            payload = self.arriving.payload(port, rows)
            elements = Elements(payload, rows.column(FROM).to_numpy(), rows.column(TO).to_numpy())
            life.feed(life.work.received[port], elements)

    def _sent(self, work: FragmentWork, slot: int, output: Elements) -> pa.RecordBatch:
        length = len(output)
        fixed = [
            pa.array(np.full(length, work.port, np.int32)),
            pa.array(self._slots(work.fragment.route, slot, output)),
            pa.array(output.valid_from),
            pa.array(output.valid_to),
            pa.nulls(length, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(
            [*fixed, *self.exchanged.wide(work.port, output.columns.columns, length)], names=self._names()
        )

    def _slots(self, route: Route, slot: int, output: Elements) -> np.ndarray:
        if not route.key:
            return np.full(len(output), slot if route.key is None else 0, np.int32)
        hashes = hash_columns([output.columns.column(name) for name in route.key])
        return np.asarray(self.routing, np.int32)[(hashes >> np.uint64(64 - GROUP_BITS)).astype(np.intp)]

    def _onward(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select(self._names())

    def _note(self, report: Report) -> pa.RecordBatch:
        fixed = [
            pa.array([NOTE_PORT], pa.int32()),
            pa.array([0], pa.int32()),
            pa.nulls(1, pa.int64()),
            pa.nulls(1, pa.int64()),
            pa.array([report.to_bytes()], pa.binary()),
        ]
        wide = [pa.nulls(1, f.type) for f in self.exchanged.columns]
        return pa.RecordBatch.from_arrays([*fixed, *([] if self.last else wide)], names=self._names())

    def _names(self) -> list[str]:
        fixed = [PORT, SLOT, FROM, TO, NOTE]
        return fixed if self.last else [*fixed, *(f.name for f in self.exchanged.columns)]

    def _bury(self, files: Files, slot: int, table: pa.Table) -> DeadLetterFile:
        path = name_for("dead_letters", self.batch_id, slot, self.stage)
        files.write_atomic(path, parquet_bytes(table), point="dead_letters", sync=False)
        return DeadLetterFile(path, table.num_rows, self.batch_id)


def _lap(report: Report, name: str, since: float) -> float:
    now = time.perf_counter()
    report.seconds[name] = report.seconds.get(name, 0.0) + now - since
    return now
