"""The step: what one slot does in one stage of a batch, as a function of Arrow batches.

It depends on the last manifest (through its fields) and on the multiset of the rows it is given, on nothing else. It
writes state and results under names nobody has used, and answers with rows for the next stage and one report; whether
any of it counts is decided when the driver commits the manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.physical import SourceNode
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.file_entries import DeadLetterFile
from midstream.checkpoint.files import Files, SideBySide, begin, wait_for
from midstream.checkpoint.names import name_for, query_of
from midstream.checkpoint.outputs import checksum_of
from midstream.checkpoint.process import this_process
from midstream.checkpoint.records import grouped
from midstream.errors import InputError, MidstreamError
from midstream.job.task.exchange import (
    FROM,
    Addressing,
    Exchange,
    Layout,
    at_site,
    groups_of,
    hash_of_content,
    in_slot,
    portions,
    to_every_slot,
)
from midstream.job.task.ingest import source_elements
from midstream.job.task.intake import Intake, StreamReading, in_order
from midstream.job.task.kept_tasks import Collected, KeptTasks, Pool
from midstream.job.task.memory import Memory, ParquetSpool
from midstream.job.task.reports import RanOn, Report
from midstream.job.task.results import ResultPlace, ResultsBuffer, write_results
from midstream.job.task.sifting import Sieve
from midstream.job.task.sorted_runs import Accepted, Runs
from midstream.job.task.task import Task, closed
from midstream.job.task.works import FragmentWork, TaskWork
from midstream.operators.elements import Elements
from midstream.operators.group_hash import group_hash
from midstream.operators.vectors import gather_rows, numbers_of

MANY_RESULTS = 20_000
"""From how many rows on results are written by a thread of their own: for fewer it would take longer to begin."""


@dataclass(frozen=True, slots=True)
class StageStep:
    """One stage of a batch, for all queries, ready to be shipped."""

    checkpoint: str
    batch_id: int
    stage: int
    last: bool
    slots: int
    arriving: Layout
    exchanged: Layout
    routing: tuple[int, ...]
    work: tuple[TaskWork, ...]
    reading: StreamReading | None = None
    """How rows of streams are read, in the first stage."""
    copied: bool = False
    """Whether copies of rows come that other slots account for."""
    memory: Memory = field(default_factory=Memory)
    apart: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The slots of groups of key classes that are not dealt as rows arrive."""
    shared: Mapping[tuple[str, str], Addressing] = field(default_factory=dict)
    """Where rows go of key classes of which several slots share groups, by class and the key that they travel by."""

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
        collected: Collected | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows for the next stage, and a report, which names the `executor`.

        `kept` are tasks of the last batch that may go on. With `collected`, the report is added there, and whoever runs
        the step waits for its files; else the report is among the rows, and the files are there before it.
        """
        report, began = Report(self.stage, slot, ran_on=RanOn(executor=executor)), this_process().processor()
        try:
            sifts = any(work.first.apart.sifts for work in self.work)
            intake = Intake(self.batch_id, report, ParquetSpool(self.memory.output), keeps_whole=sifts)
            chunks = yield from self._gather(slot, batches, intake)
            yield from self._process(slot, chunks, intake, kept or KeptTasks(), collected)
        except MidstreamError as error:
            report.error = error
        except pa.ArrowException as error:
            report.error = InputError("a batch cannot be processed", detail=f"{type(error).__name__}: {error}")
        report.processor += this_process().processor() - began
        if collected is None:
            yield self.exchange.note(report, slot, range(self.slots) if self.copied or self.apart else self.routing)
        else:
            collected.reports.append(report)

    def _gather(
        self, slot: int, batches: Iterator[pa.RecordBatch], intake: Intake
    ) -> Generator[pa.RecordBatch, None, Iterable[Mapping[int, Accepted]]]:
        """Takes all rows in and passes on at once what is not for this stage; gives what there is to feed.

        That is everything in one piece where it fits, else chunks in order of time.
        """
        mine = {port for work in self.work for port in work.received} if self.reading is None else {*self.reading.ports}
        runs: Runs | None = None
        at = this_process().monotonic()
        for rows, more in portions(batches, self.memory.input):
            intake.report.lap("transfer", at)
            parts = self.arriving.split(rows)
            for port in sorted(set(parts) - mine):
                yield self.exchange.onward(parts[port], self.slots)
            accepted = self._all_accepted(slot, {port: parts[port] for port in sorted(set(parts) & mine)}, intake)
            if runs is None and not more:
                return [accepted]
            runs = runs or Runs(self.memory.chunk, None if self.reading is None else in_order)
            intake.whole.clear()
            for port, (some, ticks) in accepted.items():
                runs.add(port, some, ticks)
            at = this_process().monotonic()
        return [] if runs is None else runs.chunks()

    def _all_accepted(self, slot: int, parts: Mapping[int, pa.RecordBatch], intake: Intake) -> dict[int, Accepted]:
        """What counts of each port's rows; copies of rows that other slots account for are under `~port`."""
        if self.reading is None:
            return {port: (rows, numbers_of(rows.column(FROM))) for port, rows in parts.items()}
        if not self.copied:
            return self.reading.accepted(self.arriving, parts, intake)
        return self.reading.accepted_with_copies(self.arriving, parts, intake, slot, self.routing)

    def _process(
        self,
        slot: int,
        chunks: Iterable[Mapping[int, Accepted]],
        intake: Intake,
        kept: KeptTasks[Task],
        collected: Collected | None,
    ) -> Iterator[pa.RecordBatch]:
        report = intake.report
        files = SideBySide(files_at(self.checkpoint) if collected is None else collected.files)
        if collected is not None:
            collected.begin(report, files)
        at = this_process().monotonic()
        pool = Pool()
        tasks = self._opened(slot, files, kept.take(), pool)
        at = report.lap("state", at)
        # What is final before this batch is given first where all input is at hand: it frees state before probing.
        early = [task for task in tasks if not task.work.received]
        for task in early:
            with _blaming(report, task):
                task.advance()
        for number, chunk in enumerate(chunks):
            pool.allowance.refill(len(tasks) * sum(len(ticks) for _, ticks in chunk.values()))
            if number:
                for task in tasks:
                    task.spill()
                yield from self._outputs(tasks, slot, report)
            if self.reading is not None:
                self._take_in(self.reading, slot, chunk, tasks, intake)
                self._hand_on(tasks, report)
            else:
                self._receive(chunk, tasks, report)
        for task in tasks:
            if task.work.received:
                with _blaming(report, task):
                    task.advance()
        at = report.lap("kernel", at)
        if collected is not None:
            report.starts = {name: given.starts for name, given in _results_of(tasks).items() if given.has_few}
        self._close(tasks, ResultPlace(files, self.batch_id, slot, self.stage), report)
        if (dead := intake.dead.content()) is not None:
            report.dead_letters.append(self._bury(files, slot, dead, intake.dead.rows))
        if collected is None:
            files.wait()
            report.processor += files.processor
        report.lap("write", at)
        yield from self._outputs(tasks, slot, report)
        kept.keep(tasks)

    def _close(self, tasks: Sequence[Task], place: ResultPlace, report: Report) -> None:
        """Writes state, and results; beside each other where there are many results."""
        results = _results_of(tasks)

        def write() -> None:
            report.results = write_results(place, results)

        def write_aside() -> None:
            began = this_process().processor()
            write()
            report.processor += this_process().processor() - began

        many = sum(given.rows for given in results.values()) >= MANY_RESULTS
        writing = [begin(write_aside)] if many else []
        try:
            report.fragments.update({work.name: noted for work, noted in closed(tasks)})
        finally:
            wait_for(writing)
        if not many:
            write()

    def _opened(
        self, slot: int, files: Files, kept: Mapping[tuple[tuple[str, int], ...], Task], pool: Pool
    ) -> list[Task]:
        """The tasks of the batch: those that were kept and can go on, and others opened from segments."""
        for before in kept.values():  # what it holds is what another task would open
            pool.hold(before.store.held)
        memory = self.memory.among(sum(len(work.members) for work in self.work))
        tasks: list[Task] = []
        for work in self.work:
            lane = work.apart.lane
            if lane is not None and lane.rests(slot):
                continue
            mine = work.in_slot(slot)
            task = kept.get(mine.key)
            if task is not None and task.goes_on(mine, memory):
                task.go_on(mine, files, pool, self.batch_id, memory)
            else:
                task = Task(mine, files, slot, pool, self.batch_id, memory)
            tasks.append(task)
        return tasks

    def _outputs(self, tasks: Sequence[Task], slot: int, report: Report) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            if task.work.apart.arrives is None:
                for work, output in task.sent():
                    yield self._sent(work, slot, output, report)

    def _take_in(
        self,
        reading: StreamReading,
        slot: int,
        parts: Mapping[int, Accepted],
        tasks: Sequence[Task],
        intake: Intake,
    ) -> None:
        """Feeds the rows of streams, in the order of the streams."""
        noted: set[tuple[str, str]] = set()
        readers = grouped((source.stream.name, (task, source)) for task in tasks for source in task.sources)
        several = sum(map(len, readers.values())) > len(reading.ports)
        intake.common = {} if several else None
        for port in reading.ports:
            name = reading.name_of(port)
            for place, copied in ((port, False), (~port, True)):
                if place in parts and len(parts[place][1]):
                    for task, source in readers.get(name, ()):
                        if _reads(task, port, port in reading.again) and (
                            not copied or _takes_copies(task, reading.spread)
                        ):
                            self._feed(slot, source, task, parts[place], intake, noted, copied)

    def _hand_on(self, tasks: Sequence[Task], report: Report) -> None:
        """Feeds what fragments give that read their rows in place to their readers, which run here too."""
        for task in tasks:
            for work, output in task.sent() if task.work.apart.arrives is not None else ():
                for reader in tasks:
                    if work.port in reader.work.received:
                        with _blaming(report, reader):
                            reader.receive(work.port, output)

    def _feed(
        self,
        slot: int,
        source: SourceNode,
        task: Task,
        accepted: Accepted,
        intake: Intake,
        noted: set[tuple[str, str]],
        copied: bool,
    ) -> None:
        """Feeds a stream's rows to a source that reads it; lanes take rows of their groups."""
        lane = task.work.apart.lane
        rows, ticks = self._sifted(task, source, accepted, intake.unaccounted() if copied else intake, noted)
        if lane is not None and lane.routing is not None:
            mine = np.flatnonzero(lane.takes(source.stream.name, rows, slot, copied))
            rows, ticks = gather_rows(rows, mine), ticks[mine]
        with _blaming(intake.report, task):
            task.take(source, source_elements(source, rows, ticks, intake.common))

    def _sifted(
        self, task: Task, source: SourceNode, accepted: Accepted, intake: Intake, noted: set[tuple[str, str]]
    ) -> Accepted:
        """The rows for a query, without those that make its expressions fail if these are to be set aside.

        Several fragments of a plan may read one source, and all leave out the same; `noted` are queries and sources of
        which that is known.
        """
        work = task.work.first
        if not work.apart.sifts:
            return accepted
        rows, ticks = accepted
        good, bad = Sieve.above(source, work.fragment.plan, work.functions).split(rows, ticks)
        if not bad:
            return accepted
        if (place := (query_of(work.query), source.stream.alias)) not in noted:
            noted.add(place)
            intake.set_aside(source.stream.name, query_of(work.query), rows, bad)
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
            output, slots = to_every_slot(output, route.copied_to(self.slots))
        else:
            groups, addressing = self._groups(work, slot, output, report), self._addressing(work)
            order, slots = addressing.dealt(groups, lambda some: hash_of_content(output.take(some)))
            output = output.take(order) if addressing.copies else output
        report.traffic.count_sent(query_of(work.query), slots, output.columns.nbytes + 2 * output.valid_from.nbytes)
        return self.exchange.rows(work.port, slots, output)

    def _groups(self, work: FragmentWork, slot: int, output: Elements, report: Report) -> npt.NDArray[np.intp]:
        """The partition groups of rows; those that travel by no key stay, or go to the first slot."""
        route, lane = work.fragment.route, work.apart.lane
        if not route.key:
            return np.full(len(output), in_slot(slot if route.key is None else 0), np.intp)
        groups = groups_of(group_hash([output.columns.column(name) for name in route.key]), len(self.routing))
        if lane is None or not lane.second:
            report.traffic.count_exchanged(groups, route.key_class, route.key_text)
        return groups

    def _addressing(self, work: FragmentWork) -> Addressing:
        """Where rows of a fragment go by their groups."""
        route, lane = work.fragment.route, work.apart.lane
        if (shared := self.shared.get((route.key_class, route.key_text))) is not None:
            return shared
        table = self.apart.get(route.key_class, (lane and lane.routing) or self.routing)
        return Addressing(tuple(at_site(route.slots, len(table))) or table)

    def _bury(self, files: Files, slot: int, content: pa.Buffer, rows: int) -> DeadLetterFile:
        path = name_for("dead_letters", self.batch_id, slot, self.stage)
        files.write_atomic(path, content, point="dead_letters", sync=False)
        return DeadLetterFile(path, rows, self.batch_id, checksum_of(content), content.size)


def _reads(task: Task, port: int, again: bool) -> bool:
    """Whether a fragment reads rows by the port by which they arrive."""
    arrives = task.work.apart.arrives
    return not again if arrives is None else port == arrives


def _takes_copies(task: Task, spread: Collection[str]) -> bool:
    """Whether a task takes rows that other slots account for.

    Lanes of groups that move do, and where slots share groups all that read a stream that is spread: they need the
    copies of those that it is joined with.
    """
    lane = task.work.apart.lane
    if lane is not None and lane.routing is not None:
        return True
    return any(source.stream.name in spread for source in task.sources)


def _results_of(tasks: Sequence[Task]) -> dict[str, ResultsBuffer]:
    """What queries gave, by the names of their lanes."""
    return {name: given for task in tasks for name, given in task.results.items()}


@contextmanager
def _blaming(report: Report, task: Task) -> Iterator[None]:
    """Notes which queries are at work, for as long as they are; what fails inside leaves it noted."""
    report.blamed = task.names
    yield
    report.blamed = ()
