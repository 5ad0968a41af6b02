"""Spark under a session: one Structured Streaming query over the union of all streams calls the job for each batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.spark_log import log_after
from midstream.checkpoint.spark_offsets import rows_between
from midstream.cluster.idling import QUIET, IdleTurns, trigger_seconds
from midstream.cluster.spark.cluster import SparkCluster
from midstream.cluster.spark.environment import is_gone, is_one_process, require_classic, ship_package, spark_session
from midstream.cluster.spark.failures import in_words
from midstream.cluster.spark.frames.declaring import stream_input
from midstream.cluster.spark.frames.results import dead_letters_frame, results_frame, spark_path
from midstream.cluster.spark.frames.sources import open_connected, open_source
from midstream.cluster.spark.frames.tagging import StreamInput, tagged_union
from midstream.cluster.spark.plain_files import PlainFiles
from midstream.cluster.spark.push_down import selection_lines
from midstream.cluster.spark.quiet import keep_quiet
from midstream.cluster.spark.small_batches import (
    USUAL,
    USUAL_ON_ONE_MACHINE,
    SmallBatches,
    most_bytes,
    stated_by_files,
)
from midstream.cluster.spark.source_files import SourceFiles, require_order
from midstream.errors import InputError
from midstream.inputs import NamedSource, StreamSettings
from midstream.job.circumstances import Incoming
from midstream.job.job import Job
from midstream.optimizer.plans import Plan

PAUSE = 0.05
"""Seconds between two looks at a run whose query of Spark's is stopped for a restart."""


@dataclass(slots=True)
class BatchCallback:
    """What Spark calls with each batch: Spark keeps it longer than its query, and so it lets go of the job."""

    job: Job | None
    first: int

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Runs a batch."""
        assert self.job is not None, "Spark's query has ended"
        self.job.on_batch(rows, self.first + number)


class SparkBackend:
    """Runs a session on a SparkSession; without one a local one is opened."""

    def __init__(self, spark: object, files: Files, small_batches: int | str | None = None) -> None:
        self.spark: SparkSession = require_classic(spark if spark is not None else spark_session())
        self.files = files
        one = is_one_process(self.spark)
        most = most_bytes(small_batches, USUAL_ON_ONE_MACHINE if one else USUAL)
        all_plain = one and small_batches is None
        small = SmallBatches(most, self._rows_of_others, self._bytes_of_files, self._plain_rows, all_plain)
        self.cluster = SparkCluster(self.spark, files, small)
        self.slots = max(1, self.spark.sparkContext.defaultParallelism)
        self.streaming_query: StreamingQuery | None = None
        """Spark's query, once the session has been started."""
        self._halted = threading.Event()
        """Set while Spark's query is stopped between two batches: what is halted has not ended."""
        self._rates: dict[str, int] = {}
        self._plain: PlainFiles | None = None
        self._callback: BatchCallback | None = None
        self._idle: IdleTurns | None = None

    def stream(self, name: str, source: DataFrame, columns: pa.Schema | None, settings: StreamSettings) -> StreamInput:
        """A stream from any streaming DataFrame."""
        return stream_input(name, source, columns, settings)

    def open_stream(self, source: NamedSource, settings: StreamSettings) -> StreamInput:
        """A stream from one of Spark's sources, by name, so that others can be added to the session later."""
        return replace(stream_input(source.name, open_source(source, self.spark), None, settings), source=source)

    def ticks(self, name: str) -> StreamInput:
        """Spark's own clock."""
        source = NamedSource("ticks", "rate", options={"rowsPerSecond": "1"}, columns=("timestamp AS ts",))
        return replace(stream_input(name, open_source(source, self.spark), None, StreamSettings()), source=source)

    def begin(self, job: Job, inputs: Sequence[StreamInput], trigger: str | None) -> None:
        """Starts Spark's query."""
        keep_quiet(self.spark)
        ship_package(self.spark)
        log = log_after(self.files, job.manifest)
        log.sweep()
        self.cluster.begin(log)
        newest = job.manifest
        self._rates = _rates(inputs)
        require_order(newest, inputs)
        found = self.cluster.sources = SourceFiles.of(self.files, newest, log, inputs)
        self._plain = PlainFiles.of(log, inputs, found.left_out)
        unread = [self._unread(stream, found, trigger == "available") for stream in inputs]
        union, job.arriving = tagged_union(unread)
        self._let_go()
        self._callback = BatchCallback(job, log.base)
        writer = union.writeStream.foreachBatch(self._callback).option(
            "checkpointLocation", spark_path(self.files.full(log.folder))
        )
        if trigger == "available":
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        try:
            self.streaming_query = writer.start()
            self._halted.clear()
        except Exception as error:
            raise in_words(error, self.spark, self.files.uri) from error
        if trigger != "available":
            self._idle = IdleTurns(job, max(QUIET, trigger_seconds(trigger)), self.streaming_query.stop)
            self._idle.start()

    def _plain_rows(self, incoming: Incoming, most: int) -> pa.Table | None:
        """The rows of the batch under way, if this process can read them as Spark would."""
        number = self.cluster.newest
        if self._plain is None or number is None:
            return None
        return self._plain.table(incoming, number, self.cluster.entry(number), most)

    def _rows_of_others(self) -> int | None:
        """The rows of the batch under way that are not of files, if their sources count them."""
        newest = self.cluster.newest
        if newest is None or newest == self.cluster.log.base:
            return None
        return rows_between(self.cluster.log.entry(newest - 1), self.cluster.entry(newest), self._rates)

    def _bytes_of_files(self) -> int | None:
        """The bytes of the files of the batch under way."""
        if self.streaming_query is None:
            return None
        return stated_by_files(self.streaming_query._jsq.streamingQuery().lastExecution())

    def _unread(self, stream: StreamInput, found: SourceFiles, available: bool) -> StreamInput:
        """The stream without what was read already and Spark's log does not have: files, or rows up to positions."""
        if stream.source is not None and stream.source.connected is not None:
            reading = found.connected[stream.source.name]
            frame = open_connected(reading.source, stream.source, self.spark, reading.positions, available)
            return replace(stream, frame=frame)
        read = found.unread(stream.declaration.name)
        if not read or stream.source is None:
            return stream
        return replace(stream, frame=open_source(stream.source, self.spark, read))

    @property
    def active(self) -> bool:
        """Whether Spark's query runs."""
        return self.streaming_query is not None and self.streaming_query.isActive

    def halt(self) -> None:
        """Stops Spark's query."""
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.stop()
        self._halted.set()
        try:
            if self.streaming_query is not None and self.streaming_query.isActive:
                self.streaming_query.stop()
        except (OSError, Py4JError):
            # A signal to all processes ends Spark as well; the batch that this interrupts is repeated later.
            if not is_gone(self.spark):
                raise
        self._let_go()

    def _let_go(self) -> None:
        """Takes the job from what Spark called with the batches of a query that has ended."""
        if self._callback is not None:
            self._callback.job = None

    def ended(self, job: Job) -> bool:
        """Waits a moment for the end of Spark's query; what made it fail is raised. What is halted has not ended."""
        stream = self.streaming_query
        if stream is None or self._halted.is_set():
            time.sleep(PAUSE)
            return False
        self._require_folders(job)
        try:
            return bool(stream.awaitTermination(1)) and self._is_current(stream)
        except Exception as error:
            if not self._is_current(stream):
                return False
            failure = job.turns.failure or error
            raise in_words(failure, self.spark, self.files.uri) from None

    def _require_folders(self, job: Job) -> None:
        """Ends Spark's query if a folder is gone: Spark would take it for an empty one."""
        try:
            self.cluster.sources.require_present()
        except InputError as error:
            job.turns.failure = job.turns.failure or error
            self.halt()
            raise

    def _is_current(self, stream: StreamingQuery) -> bool:
        """Whether a query of Spark's is the one that runs: a restart between batches ends one and starts another."""
        return stream is self.streaming_query and not self._halted.is_set()

    def results(self, manifest: Manifest | None, query: str, plan: Plan) -> DataFrame:
        """All released results of a query."""
        return results_frame(self.spark, self.files, manifest, query, plan)

    def dead_letters(self, manifest: Manifest | None) -> DataFrame:
        """All rows that could not be used, with the reasons."""
        return dead_letters_frame(self.spark, self.files, manifest)

    def explanation(self, job: Job, streams: Sequence[StreamDeclaration]) -> list[str]:
        """What Spark selects before rows cross into Python."""
        settings = self.spark.conf
        return selection_lines(job.queries.values(), streams, lambda: settings.get("spark.sql.session.timeZone") or "")


def _rates(inputs: Sequence[StreamInput]) -> dict[str, int]:
    """The rows a second of `rate` sources, by name and by place; places are known where each stream has one source."""
    found: dict[str, int] = {}
    for place, stream in enumerate(inputs):
        if stream.source is None:
            return {}
        if stream.source.format == "rate":
            found[str(place)] = found[stream.source.name] = int(stream.source.options.get("rowsPerSecond", 1))
    return found
