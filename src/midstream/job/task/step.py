"""The step: what one slot does in one stage of a batch, as a function of Arrow batches.

It depends on the last manifest (through its fields) and on the multiset of the rows it is given, on nothing else. It
writes state and results under names nobody has used, and answers with rows for the next stage and one report; whether
any of it counts is decided when the driver commits the manifest.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.physical import Source
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.file_entries import DeadLetterFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.names import name_for
from midstream.checkpoint.outputs import checksum_of
from midstream.checkpoint.parallel_writes import SideBySide
from midstream.errors import InputError, MidstreamError
from midstream.job.arriving.reach import Reach
from midstream.job.in_place import Copy
from midstream.job.task.exchange import Delivery, Exchange, Slots, at_site, groups_of, to_every_slot
from midstream.job.task.fragment_task import FragmentTask
from midstream.job.task.hot_keys import hot_key
from midstream.job.task.intake import Intake, in_order, source_elements
from midstream.job.task.kept_tasks import KeptTasks
from midstream.job.task.layout import FROM, GROUP, Layout, portions
from midstream.job.task.marked_task import MarkedTask
from midstream.job.task.memory import Memory
from midstream.job.task.output_buffer import ResultsBuffer
from midstream.job.task.pool import Pool
from midstream.job.task.reports import Report
from midstream.job.task.results_files import Place, write_results
from midstream.job.task.samples import SampleRequest, add_samples, sampled
from midstream.job.task.shared_task import SharedTask
from midstream.job.task.sides import base_name
from midstream.job.task.sifting import Sieve
from midstream.job.task.sorted_runs import Accepted, Runs
from midstream.job.task.spill import ParquetSpool
from midstream.job.task.works import FragmentWork, SharedWork
from midstream.operators.arrival_hash import arrival_hash
from midstream.operators.elements import Elements
from midstream.operators.hashing import hash_columns
from midstream.operators.vectors import gather_rows, numbers_of

Task = FragmentTask | SharedTask


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
    samples: tuple[SampleRequest, ...] = ()
    memory: Memory = field(default_factory=Memory)
    reaches: Mapping[str, Reach] = field(default_factory=dict)
    slots: int = 1
    copied: bool = False
    """Whether copies of rows come that other slots account for."""
    keys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The columns by which rows of each port arrive, where they do by a key."""
    deliveries: Mapping[int, Delivery] = field(default_factory=dict)
    """How rows of each port go to slots that share groups; copies of these count for all queries then."""
    again: Mapping[int, Copy] = field(default_factory=dict)
    """Rows of streams that arrive once more, by port, for fragments that read them in place."""

    @property
    def exchange(self) -> Exchange:
        """How rows leave."""
        return Exchange(self.exchanged, self.last)

    def run(
        self,
        slot: int,
        batches: Iterator[pa.RecordBatch],
        kept: KeptTasks[Task] | None = None,
        executor: str = "",
    ) -> Iterator[pa.RecordBatch]:
        """The rows for the next stage, and a report, which names the `executor`.

        `kept` are tasks of the last batch that may go on.
        """
        report = Report(self.stage, slot, executor=executor)
        try:
            intake = Intake(self.batch_id, report, ParquetSpool(self.memory.given))
            chunks = yield from self._gather(slot, batches, intake)
            yield from self._process(slot, chunks, intake, kept or KeptTasks())
        except MidstreamError as error:
            report.error = error
        except pa.ArrowException as error:
            report.error = InputError("a batch cannot be processed", detail=f"{type(error).__name__}: {error}")
        yield self.exchange.note(report, slot, range(self.slots) if self.copied else self.routing)

    def _gather(
        self, slot: int, batches: Iterator[pa.RecordBatch], intake: Intake
    ) -> Generator[pa.RecordBatch, None, Iterable[Mapping[int, Accepted]]]:
        """Takes all rows in and passes on at once what is not for this stage; gives what there is to feed.

        That is everything in one piece where it fits, else chunks in order of time.
        """
        mine = (
            {*self.streams, *self.again} if self.stage == 0 else {port for work in self.work for port in work.received}
        )
        runs: Runs | None = None
        at = time.perf_counter()
        for rows, more in portions(batches, self.memory.input):
            _lap(intake.report, "transfer", at)
            parts = {} if rows is None else self.arriving.split(rows)
            for port in sorted(set(parts) - mine):
                yield self.exchange.onward(parts[port])
            accepted = self._all_accepted(slot, {port: parts[port] for port in sorted(set(parts) & mine)}, intake)
            if runs is None and not more:
                return [accepted]
            runs = runs or Runs(self.memory.chunk, in_order if self.stage == 0 else None)
            for port, (some, ticks) in accepted.items():
                runs.add(port, some, ticks)
            at = time.perf_counter()
        return [] if runs is None else runs.chunks()

    def _all_accepted(self, slot: int, parts: Mapping[int, pa.RecordBatch], intake: Intake) -> dict[int, Accepted]:
        """What counts of each port's rows; copies of rows that other slots account for are under `~port`."""
        if self.stage > 0:
            return {port: self._accepted(port, rows, intake) for port, rows in parts.items()}
        if not self.copied:
            return {
                port: self._accepted(self._stream(port), rows, intake.unaccounted() if port in self.again else intake)
                for port, rows in parts.items()
            }
        found: dict[int, Accepted] = {}
        for port, rows in parts.items():
            owned = self.deliveries.get(port, Delivery(self.routing)).owned(rows.column(GROUP).to_numpy(), slot)
            found[port] = self._accepted(port, gather_rows(rows, np.flatnonzero(owned)), intake)
            if not owned.all():
                found[~port] = self._accepted(port, gather_rows(rows, np.flatnonzero(~owned)), intake.unaccounted())
        return found

    def _stream(self, port: int) -> int:
        """The port of the stream whose rows arrive by a port."""
        return self.again[port].stream if port in self.again else port

    def _accepted(self, port: int, rows: pa.RecordBatch, intake: Intake) -> Accepted:
        if self.stage > 0:
            return rows, numbers_of(rows.column(FROM))
        declaration = self.streams[port]
        groups = rows.column(GROUP).to_numpy()
        intake.report.count_groups(groups, declaration.name)
        register = self.registers.get(declaration.name, BEGINNING)
        reach = self.reaches.get(declaration.name, Reach())
        payload = self.arriving.payload(port, rows)
        intake.report.hot_keys.update(hot_key(groups, payload, self.keys.get(port, ())))
        accepted = intake.accept(declaration, payload, register, reach)
        if self.samples and len(accepted[1]) and not intake.discards:
            at = time.perf_counter()
            add_samples(intake.report.samples, sampled(self.samples, declaration.name, *accepted))
            _lap(intake.report, "watch", at)
        return accepted

    def _process(
        self, slot: int, chunks: Iterable[Mapping[int, Accepted]], intake: Intake, kept: KeptTasks[Task]
    ) -> Iterator[pa.RecordBatch]:
        report = intake.report
        files = SideBySide(files_at(self.checkpoint))
        at = time.perf_counter()
        tasks = self._opened(slot, files, kept.take())
        at = _lap(report, "state", at)
        # What is final before this batch is given first where all input is at hand: it frees state before probing.
        early = [task for task in tasks if not task.work.received]
        for task in early:
            with _blaming(report, task):
                task.advance()
        for number, chunk in enumerate(chunks):
            if number:
                for task in tasks:
                    task.spill()
                yield from self._outputs(tasks, slot, report)
            if self.stage == 0:
                self._take_in(slot, chunk, tasks, intake)
                self._hand_on(tasks, report)
            else:
                self._receive(chunk, tasks, report)
        for task in tasks:
            if task.work.received:
                with _blaming(report, task):
                    task.advance()
        at = _lap(report, "kernel", at)
        for task in tasks:
            report.fragments.update({work.name: noted for work, noted in task.closed()})
        report.results = write_results(Place(files, self.batch_id, slot, self.stage), _results_of(tasks))
        if (dead := intake.dead.content()) is not None:
            report.dead_letters.append(self._bury(files, slot, dead, intake.dead.rows))
        files.wait()
        _lap(report, "write", at)
        yield from self._outputs(tasks, slot, report)
        kept.keep(tasks)

    def _opened(self, slot: int, files: Files, kept: Mapping[tuple[tuple[str, int], ...], Task]) -> list[Task]:
        """The tasks of the batch: those that were kept and can go on, and others opened from segments."""
        pool = Pool()
        memory = self.memory.among(sum(len(w.members) if isinstance(w, SharedWork) else 1 for w in self.work))
        tasks: list[Task] = []
        for work in self.work:
            if isinstance(work, SharedWork):
                shared = kept.get(work.key)
                if isinstance(shared, SharedTask) and shared.goes_on(work, memory):
                    shared.go_on(work, files, pool, self.batch_id, memory)
                    tasks.append(shared)
                else:
                    tasks.append(SharedTask(work, files, slot, pool, self.batch_id, memory))
            elif work.track is None or not work.track.rests(slot):
                mine = work.in_slot(slot)
                alone = kept.get((mine.name,))
                if isinstance(alone, FragmentTask) and alone.goes_on(mine, memory):
                    alone.go_on(mine, files, self.batch_id, memory)
                    tasks.append(alone)
                else:
                    tasks.append(_task(work)(mine, files, slot, self.batch_id, memory))
        return tasks

    def _outputs(self, tasks: Sequence[Task], slot: int, report: Report) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            if not _in_place(task):
                for work, output in task.sent():
                    yield self._sent(work, slot, output, report)

    def _take_in(self, slot: int, parts: Mapping[int, Accepted], tasks: Sequence[Task], intake: Intake) -> None:
        """Feeds the rows of streams, in the order of the streams."""
        noted: set[tuple[str, str]] = set()
        for port in (*self.streams, *self.again):
            name = self.streams[self._stream(port)].name
            for place, copied in ((port, False), (~port, True)):
                if place in parts and len(parts[place][1]):
                    for task in tasks:
                        if self._reads(task, port):
                            self._feed(slot, name, task, parts[place], intake, noted, copied)

    def _reads(self, task: Task, port: int) -> bool:
        """Whether a fragment reads rows by the port by which they arrive."""
        arrives = task.work.arrives if isinstance(task, FragmentTask) else None
        return port not in self.again if arrives is None else port == arrives

    def _hand_on(self, tasks: Sequence[Task], report: Report) -> None:
        """Feeds what fragments give that read their rows in place to their readers, which run here too."""
        for task in filter(_in_place, tasks):
            for work, output in task.sent():
                for reader in tasks:
                    if work.port in reader.work.received:
                        with _blaming(report, reader):
                            reader.receive(work.port, output)

    def _feed(
        self,
        slot: int,
        stream: str,
        task: Task,
        accepted: Accepted,
        intake: Intake,
        noted: set[tuple[str, str]],
        copied: bool,
    ) -> None:
        """Feeds a stream's rows to the sources that read it; copies only to tracks, which take rows of their groups.

        Where slots share groups, copies are for all that read the spread stream too.
        """
        track = task.work.track if isinstance(task, FragmentTask) else None
        if copied and track is None and not self._takes_copies(task):
            return
        account = intake.unaccounted() if copied else intake
        for source in task.sources:
            if source.stream.name == stream:
                rows, ticks = self._sifted(task, source, accepted, account, noted)
                if track is not None:
                    mine = np.flatnonzero(track.takes(stream, rows, slot, copied))
                    rows, ticks = gather_rows(rows, mine), ticks[mine]
                with _blaming(intake.report, task):
                    task.take(source, source_elements(source, rows, ticks))

    def _takes_copies(self, task: Task) -> bool:
        """Whether a task reads a stream that is spread: then it needs the copies of those that it is joined with."""
        spread = {self.streams[port].name for port, delivery in self.deliveries.items() if delivery.spread}
        return any(source.stream.name in spread for source in task.sources)

    def _sifted(
        self, task: Task, source: Source, accepted: Accepted, intake: Intake, noted: set[tuple[str, str]]
    ) -> Accepted:
        """The rows for a query, without those that make its expressions fail if these are to be set aside.

        Several fragments of a plan may read one source, and all leave out the same; `noted` are queries and sources of
        which that is known.
        """
        if not isinstance(task, FragmentTask) or not task.work.sifts:
            return accepted
        rows, ticks = accepted
        good, bad = Sieve.above(source, task.work.fragment.plan, task.work.functions).split(rows, ticks)
        if not bad:
            return accepted
        if (place := (base_name(task.work.query), source.stream.alias)) not in noted:
            noted.add(place)
            intake.set_aside(source.stream.name, base_name(task.work.query), rows, bad)
        return gather_rows(rows, good), ticks[good]

    def _receive(self, parts: Mapping[int, Accepted], tasks: Sequence[Task], report: Report) -> None:
        """Feeds what earlier stages gave."""
        for port, (rows, _) in parts.items():
            elements = Exchange(self.arriving, self.last).elements(port, rows)
            for task in tasks:
                if port in task.work.received:
                    with _blaming(report, task):
                        task.receive(port, elements)

    def _sent(self, work: FragmentWork, slot: int, output: Elements, report: Report) -> pa.RecordBatch:
        route = work.fragment.route
        if route.everywhere:
            output, slots = to_every_slot(output, self.slots)
        else:
            slots = self._slots(work, slot, output, report)
        report.count_sent(slots, output.columns.nbytes + 2 * output.valid_from.nbytes)
        return self.exchange.rows(work.port, slots, output)

    def _slots(self, work: FragmentWork, slot: int, output: Elements, report: Report) -> Slots:
        route, track = work.fragment.route, work.track
        if not route.key:
            return np.full(len(output), slot if route.key is None else 0, np.int32)
        hashed = arrival_hash if route.arrival else hash_columns
        groups = groups_of(hashed([output.columns.column(name) for name in route.key]), len(self.routing))
        if track is None or not track.coming:
            report.count_groups(groups)
        routing = self.routing if track is None else track.routing
        return np.asarray(at_site(route.slots, len(routing)) or routing, np.int32)[groups]

    def _bury(self, files: Files, slot: int, content: pa.Buffer, rows: int) -> DeadLetterFile:
        path = name_for("dead_letters", self.batch_id, slot, self.stage)
        files.write_atomic(path, content, point="dead_letters", sync=False)
        return DeadLetterFile(path, rows, self.batch_id, checksum_of(content), content.size)


def _task(work: FragmentWork) -> type[FragmentTask]:
    return MarkedTask if work.track is not None and work.track.marked else FragmentTask


def _results_of(tasks: Sequence[Task]) -> dict[str, ResultsBuffer]:
    """What queries gave, by their names or those of their sides."""
    return {name: given for task in tasks for name, given in task.results.items()}


def _in_place(task: Task) -> bool:
    """Whether a fragment reads rows that arrive where its readers are."""
    return isinstance(task, FragmentTask) and task.work.arrives is not None


@contextmanager
def _blaming(report: Report, task: Task) -> Iterator[None]:
    """Notes which queries are at work, for as long as they are; what fails inside leaves it noted."""
    report.blamed = task.names
    yield
    report.blamed = ()


def _lap(report: Report, name: str, since: float) -> float:
    now = time.perf_counter()
    report.seconds[name] = report.seconds.get(name, 0.0) + now - since
    return now
