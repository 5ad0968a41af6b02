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
from midstream.runtime.spark.exchange import Exchange, Slots, slots_of
from midstream.runtime.spark.fragment_life import FragmentLife, FragmentWork, parquet_bytes
from midstream.runtime.spark.intake import Intake, source_elements
from midstream.runtime.spark.layout import NOTE_PORT, Layout, one_batch
from midstream.runtime.spark.reports import Report
from midstream.runtime.spark.shared_life import Pool, SharedLife, SharedWork
from midstream.runtime.spark.slot_looks import LookRequest, look_at

Life = FragmentLife | SharedLife


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

    @property
    def exchange(self) -> Exchange:
        """How rows leave."""
        return Exchange(self.exchanged, self.last)

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
            yield self.exchange.onward(parts.pop(NOTE_PORT))
        try:
            yield from self._process(slot, parts, report)
        except MidstreamError as error:
            report.error = error
        except pa.ArrowException as error:
            report.error = InputError("a batch cannot be processed", detail=f"{type(error).__name__}: {error}")
        yield self.exchange.note(report)

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
                yield self.exchange.onward(rows)
                continue
            life = readers[port]
            life.feed(life.work.received[port], Exchange(self.arriving, self.last).elements(port, rows))

    def _sent(self, work: FragmentWork, slot: int, output: Elements) -> pa.RecordBatch:
        return self.exchange.rows(work.port, self._slots(work.fragment.route, slot, output), output)

    def _slots(self, route: Route, slot: int, output: Elements) -> Slots:
        if not route.key:
            return np.full(len(output), slot if route.key is None else 0, np.int32)
        return slots_of(hash_columns([output.columns.column(name) for name in route.key]), self.routing)

    def _bury(self, files: Files, slot: int, table: pa.Table) -> DeadLetterFile:
        path = name_for("dead_letters", self.batch_id, slot, self.stage)
        files.write_atomic(path, parquet_bytes(table), point="dead_letters", sync=False)
        return DeadLetterFile(path, table.num_rows, self.batch_id)


def _lap(report: Report, name: str, since: float) -> float:
    now = time.perf_counter()
    report.seconds[name] = report.seconds.get(name, 0.0) + now - since
    return now
