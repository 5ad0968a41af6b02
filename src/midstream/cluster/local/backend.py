"""This process under a session: a thread reads streams, and rows can be pushed; each batch is committed.

A batch counts when its manifest is there. One that was interrupted is not repeated as it was: what it read is unread
and is taken with the next one. The rows of the next batch are read while the one before it is under way. They count
only if it has exactly these parts (files of a folder, or spans of a source); else, and where reading failed, the batch
reads its parts itself, and says what is wrong with them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.files import Files, begin
from midstream.checkpoint.lists import dead_letters_of
from midstream.checkpoint.manifest import Manifest, source_batch
from midstream.checkpoint.outputs import DEAD_LETTER_COLUMNS, read_whole
from midstream.checkpoint.retention import warn_of_removed_dead_letters
from midstream.cluster.idling import QUIET, trigger_seconds
from midstream.cluster.local.cluster import LocalCluster
from midstream.cluster.local.readings import FolderSource, PartsByStream, Readings
from midstream.connectors.connected import Connected
from midstream.connectors.files.bad_rows import BAD, FIELD
from midstream.connectors.files.objects import ObjectSource
from midstream.connectors.files.source import FileSource
from midstream.errors import InputError
from midstream.inputs import NamedSource, StreamSettings, table_of
from midstream.job.batch import TICKS
from midstream.job.commits import PutOff
from midstream.job.ending import release_in_turn
from midstream.job.gate import Turn
from midstream.job.job import Job
from midstream.job.outputs.results import results_of_query
from midstream.job.task.exchange import Layout
from midstream.job.task.ingest import checked, warn_of
from midstream.job.task.results import result_table
from midstream.optimizer.plans import Plan

FEW, MOST = 2**18, 64 * 2**20
"""Up to how many bytes files are few, and up to how many they are read ahead.

Few would only take turns with the steps of a batch; they are read while the batch waits for its disk.
"""

Found = dict[str, tuple[pa.Table, Sequence[Any]]]
"""Rows by stream, and the parts that have them as they were when they were read."""


class ReadAhead:
    """Reads parts by stream, some of them ahead."""

    def __init__(self, read: Callable[[str, Sequence[Any]], tuple[pa.Table, Sequence[Any]]]) -> None:
        self._read = read
        self._files: PartsByStream = {}
        self._few: PartsByStream | None = None
        self._found: Found = {}
        self._begun: Future[None] | None = None

    def begin(self, files: PartsByStream) -> None:
        """Starts to read files ahead, unless they are few or too large."""
        self._files, self._found, self._few, self._begun = files, {}, None, None
        size = sum(file.size for some in files.values() for file in some)
        if 0 < size < FEW:
            self._few = files
        elif FEW <= size <= MOST:
            self._begun = begin(self._read_into, files, self._found)

    def begin_few(self) -> None:
        """Starts to read files ahead that are few."""
        files, self._few = self._few, None
        if files is not None:
            self._begun = begin(self._read_into, files, self._found)

    def take(self, files: PartsByStream) -> Found:
        """What files hold."""
        found: Found = {}
        begun, self._begun, self._few = self._begun, None, None
        if begun is not None and self._files == files and begun.exception() is None:
            return self._found
        self._read_into(files, found)
        return found

    def _read_into(self, files: PartsByStream, found: Found) -> None:
        for name, some in files.items():
            found[name] = self._read(name, some)


IDLE = 0.05
"""How many seconds to wait before looking again where there was nothing new."""


@dataclass(frozen=True, slots=True)
class LocalInput:
    """A stream: what is declared of it, and where it is read from, unless its rows are pushed."""

    declaration: StreamDeclaration
    source: FolderSource | Connected | None = None
    has_bad_rows: bool = False
    """Whether rows may come that cannot be read."""

    @property
    def arriving(self) -> pa.Schema:
        """The columns that arrive."""
        columns = self.declaration.columns
        return columns.append(FIELD) if self.has_bad_rows else columns


class LocalBackend:
    """Runs a session in this process."""

    slots = 1

    def __init__(self, files: Files) -> None:
        self.files = files
        self.cluster = LocalCluster(files)
        self._turn = Turn()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        """Set when reading has come to its end by itself or has failed; not when it is halted."""
        self._inputs: dict[str, LocalInput] = {}
        self._readings = Readings()
        self._ahead = ReadAhead(lambda name, parts: self._readings[name].read(parts))
        self.cluster.meanwhile, self.cluster.rereading = self._ahead.begin_few, self._readings.rereading

    def stream(self, name: str, source: Any, columns: pa.Schema | None, settings: StreamSettings) -> LocalInput:
        """A stream whose rows are pushed; the source is its schema, or a table that has it."""
        schema = columns if columns is not None else _schema(name, source)
        return LocalInput(settings.declaration(name, _stamped(schema, settings)))

    def open_stream(self, source: NamedSource, settings: StreamSettings) -> LocalInput:
        """A stream from a source, or from a growing folder of files."""
        if source.connected is not None:
            connected = Connected.opened(source)
            declared = settings.declaration(source.name, _stamped(connected.columns, settings))
            return LocalInput(declared, connected, True)
        remote = source.path is not None and "://" in source.path and not source.path.startswith("file:/")
        folder = ObjectSource.below(source) if remote else FileSource.opened(source)
        declaration = settings.declaration(source.name, _stamped(folder.produced, settings))
        return LocalInput(declaration, folder, folder.contents.is_own)

    def ticks(self, name: str) -> LocalInput:
        """A clock that has a row in every batch; while no rows come, it has batches of its own."""
        return LocalInput(StreamSettings().declaration(name, pa.schema([("ts", pa.timestamp("us", "UTC"))])))

    def begin(self, job: Job, inputs: Sequence[LocalInput], trigger: str | None) -> None:
        """Starts to read streams, if there are any."""
        self.prepare(job, inputs)
        pause = trigger_seconds(trigger)
        self._stop.clear()
        self._done.clear()
        loop = self._work_through if trigger == "available" else self._follow
        self._thread = threading.Thread(target=self._guarded, args=(loop, job, pause), name="midstream-local")
        self._thread.daemon = True
        self._thread.start()

    def prepare(self, job: Job, inputs: Sequence[LocalInput]) -> None:
        """Settles how rows arrive, and where reading goes on."""
        self._inputs = {stream.declaration.name: stream for stream in inputs}
        job.arriving = Layout.of({port: stream.arriving for port, stream in enumerate(inputs)})
        read = [(stream.declaration, stream.source) for stream in inputs if stream.source is not None]
        self._readings.begin(self.files, job.manifest, read)

    @property
    def _reads(self) -> bool:
        """Whether some stream is read, and not all rows are pushed."""
        return any(stream.source is not None for stream in self._inputs.values())

    @property
    def active(self) -> bool:
        """Whether streams are being read."""
        return self._thread is not None and self._thread.is_alive()

    def halt(self) -> None:
        """Stops between two batches."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def ended(self, job: Job) -> bool:
        """Waits a moment for the end; what made a batch fail is raised. What is halted has not ended."""
        ended = self._done.wait(0.2)
        if job.turns.failure is not None:
            raise job.turns.failure
        return ended

    def push(self, job: Job, rows: Mapping[str, object]) -> None:
        """One batch of the given rows, committed when this returns."""
        for name in rows:
            known = self._inputs.get(name)
            if known is None or known.source is not None:
                raise InputError(f"rows cannot be pushed into {name}: it is not a stream that takes them")
        with self._turn.taken("push"):
            self._batch(job, {n: self._pushed(n, value) for n, value in rows.items()}, {})
            event = job.announcements.last or {}
        counts = {name: {kind: event.get(kind, {}).get(name, 0) for kind in ("late", "unusable")} for name in rows}
        with _noted_if_done(job, source_batch(job.manifest)):
            warn_of(counts)

    def _pushed(self, name: str, rows: object) -> pa.Table:
        declaration = self._inputs[name].declaration
        if declaration.timestamps == "external":
            return checked(declaration, table_of(name, rows, declaration.visible), None)
        plain = pa.schema([f for f in declaration.visible if f.name != declaration.time])
        return table_of(name, rows, plain)

    def results(self, manifest: Manifest | None, query: str, plan: Plan) -> pa.Table:
        """All released results of a query, in order."""
        if manifest is None:
            return result_table(plan, None)
        return results_of_query(self.files, manifest, query, plan)

    def dead_letters(self, manifest: Manifest | None) -> pa.Table:
        """All rows that could not be used, with the reasons."""
        named = [] if manifest is None else dead_letters_of(self.files, manifest)
        if manifest is not None:
            warn_of_removed_dead_letters(manifest)
        tables = (read_whole(self.files, file).cast(DEAD_LETTER_COLUMNS) for file in named)
        return pa.concat_tables([DEAD_LETTER_COLUMNS.empty_table(), *tables])

    def explanation(self, job: Job, streams: Sequence[StreamDeclaration]) -> list[str]:
        """Nothing is selected before rows reach the plan."""
        return []

    def _guarded(self, loop: Any, job: Job, pause: float) -> None:
        try:
            loop(job, pause)
            if not self._stop.is_set():
                self._done.set()
        except PutOff:
            return
        except BaseException as error:
            if job.turns.failure is None:
                job.turns.failure = error
            self._done.set()
        finally:
            self._readings.close()

    def _follow(self, job: Job, pause: float) -> None:
        """Takes new rows as they come, until it is stopped."""
        last = time.monotonic()
        while not self._stop.is_set():
            began = time.monotonic()
            taken = self._take(job, self._readings.waiting()) is not None
            if not taken and began - last >= QUIET:
                taken = self._take_turn(lambda: self._idle(job, bool(pause)))
            last = time.monotonic() if taken else last
            self._stop.wait(max(0.0, pause - (time.monotonic() - began)) if pause else 0.0 if taken else IDLE)

    def _idle(self, job: Job, triggered: bool) -> None:
        """What happens without rows: a clock has a row, or what waited only for another batch is released.

        Where all rows are pushed and no trigger is declared, batches are the pushes and nothing else.
        """
        if TICKS in self._inputs:
            self._batch(job, {}, {})
        elif triggered or self._reads:
            release_in_turn(job)

    def _work_through(self, job: Job, pause: float) -> None:
        """Takes what is there now, and ends."""
        waiting: PartsByStream | None = self._readings.waiting()
        while waiting is not None and not self._stop.is_set():
            waiting = self._take(job, waiting)

    def _take(self, job: Job, waiting: PartsByStream) -> PartsByStream | None:
        """One batch of what waits, and what it leaves; None if there is nothing or it is stopped."""
        taken, left = self._readings.divided(waiting)
        if not taken:
            return None
        coming, _ = self._readings.divided(left)

        def work() -> None:
            read = self._ahead.take(taken)
            self._ahead.begin(coming)
            rows, found = {n: rows for n, (rows, _) in read.items()}, {n: parts for n, (_, parts) in read.items()}
            self._batch(job, rows, found, self._readings.earliest(left, found))

        return left if self._take_turn(work) else None

    def _take_turn(self, work: Callable[[], None]) -> bool:
        """Works while nobody else does; False if it is stopped before that."""
        while not self._turn.take(0.1):
            if self._stop.is_set():  # whoever has the turn may be the one that waits for our end
                return False
        try:
            work()
        finally:
            self._turn.give_back()
        return True

    def _batch(
        self,
        job: Job,
        rows: Mapping[str, pa.Table],
        parts: PartsByStream,
        left: Mapping[str, int] | None = None,
    ) -> None:
        manifest = job.manifest
        number, now = source_batch(manifest) + 1, int(job.commits.time.now() * 1e6)
        if self._reads:
            self.cluster.reading = self._readings.noted(parts, left or {})
        self.cluster.clocks = {number: now}
        arriving = dict(self._arriving(rows, {} if manifest is None else manifest.streams.latest, now))
        with _noted_if_done(job, number):
            job.on_batch(arriving, number)
            if self._reads:
                self._readings.done(parts)

    def _arriving(
        self, rows: Mapping[str, pa.Table], latest: Mapping[str, int], now: int
    ) -> Iterator[tuple[str, pa.Table]]:
        """The rows of a batch, stamped where they are to be; a clock that is set back does not set time back."""
        for name, table in rows.items():
            declaration = self._inputs[name].declaration
            if declaration.timestamps != "external":
                stamp = _moment(max(now, latest.get(name, now)), table.num_rows)
                if declaration.time in table.column_names:
                    table = table.drop_columns([declaration.time])
                table = table.append_column(declaration.time, stamp)
            yield name, table.select([n for n in (*declaration.columns.names, BAD) if n in table.column_names])
        if TICKS in self._inputs:
            yield TICKS, pa.table({"ts": _moment(max(now, latest.get(TICKS, now)), 1)})


@contextmanager
def _noted_if_done(job: Job, number: int) -> Iterator[None]:
    """Adds to what is raised that the rows of a batch count all the same, if they do."""
    try:
        yield
    except BaseException as error:
        newest = job.store.latest() if job.commits.torn else job.manifest
        if newest is not None and source_batch(newest) == number:
            batch = newest.batch_id
            error.add_note(f"the rows were taken in all the same, with batch {batch}: they must not come again")
        raise


def _moment(ticks: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, ticks), pa.int64()).cast(pa.timestamp("us", "UTC"))


def _schema(name: str, source: Any) -> pa.Schema:
    if isinstance(source, pa.Schema):
        return source
    if type(source).__module__.startswith("pyspark"):
        raise InputError(
            f"stream {name} is a DataFrame of Spark's, which cannot be read in this process",
            hint='give the schema of the rows to be pushed, use open_stream, or open the session with on="spark"',
        )
    return table_of(name, source).schema


def _stamped(schema: pa.Schema, settings: StreamSettings) -> pa.Schema:
    """The columns of a stream, with a time of its own where rows are stamped as they arrive."""
    if not settings.stamped:
        return schema
    rest = [f for f in schema if f.name != settings.time]
    return pa.schema([*rest, pa.field(settings.time, pa.timestamp("us", "UTC"))])
