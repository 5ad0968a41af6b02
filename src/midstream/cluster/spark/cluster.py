"""Spark as a cluster: a batch's steps are one Spark job, a slot is a task, and an exchange is a shuffle."""

from __future__ import annotations

import json
import time
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.file_entries import FilesRead
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest, source_batch
from midstream.checkpoint.spark_log import LOCAL, SparkLog, log_after
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.spark.environment import BATCH_SETTINGS, ROWS_AT_ONCE
from midstream.cluster.spark.frames.results import batch_frame
from midstream.cluster.spark.frames.tagging import exchange_type, grouped, slot_of, slots_of_copies
from midstream.cluster.spark.in_task import in_task
from midstream.cluster.spark.push_down import PushDown, push_down
from midstream.cluster.spark.small_batches import EXECUTORS, SmallBatches
from midstream.cluster.spark.source_files import SourceFiles
from midstream.cluster.spark.versions import repartition_by_id
from midstream.job.batch import Batch
from midstream.job.circumstances import Incoming
from midstream.job.queries.backfill import Rereading
from midstream.job.slots.moving import Move
from midstream.job.task.exchange import NOTE, PORT, SLOT, Layout, bits_of
from midstream.job.task.memory import Memory
from midstream.job.task.reports import Report
from midstream.optimizer.cost import SPARK, Constants
from midstream.optimizer.plans import Plan


class SparkCluster:
    """Runs a job's steps on Spark."""

    def __init__(self, spark: SparkSession, files: Files, small: SmallBatches) -> None:
        self.spark = spark
        self.files = files
        self.small = small
        self.log = SparkLog(files)
        self.sources = SourceFiles()
        """The folders of the streams, once they are read."""
        self._batch_session = spark
        """The copy of the session that Spark made for the streaming query, once there is a batch."""
        self._identity: str | None = None
        self._set: dict[str, str] = {}
        """What is known of Spark's query since it was started: its identity, and the settings made in its session."""
        self._entry: tuple[int, str] | None = None
        """The newest batch in Spark's log, once it was read."""

    @property
    def constants(self) -> Constants:
        """What plans are weighed by: in the driver stages and exchanges cost what they do in any process."""
        return Constants() if self.small.usual else SPARK

    def rereading(self, name: str) -> Rereading | None:
        """A stream as this process can read it again, if it can."""
        return self.sources.readings.get(name) or self.sources.connected.get(name)

    def begin(self, log: SparkLog) -> None:
        """Goes on with a query of Spark's that is about to start on a log."""
        self.log, self._identity, self._set, self._entry = log, None, {}, None

    @property
    def newest(self) -> int | None:
        """The batch that was last looked for in Spark's log."""
        return None if self._entry is None else self._entry[0]

    def entry(self, batch_id: int) -> str:
        """Spark's entry for a batch, read once."""
        if self._entry is None or self._entry[0] != batch_id:
            self._entry = batch_id, self.log.entry(batch_id)
        return self._entry[1]

    def run(self, batch: Batch, rows: DataFrame) -> list[Report]:
        """Runs all stages of a batch: in the driver if it is small, else as one Spark job."""
        self._batch_session = rows.sparkSession
        reports = self.small.run(batch, rows)
        if reports is None:
            started = time.perf_counter()
            reports = self._in_executors(batch, rows)
            self.small.ran_elsewhere(batch, reports, time.perf_counter() - started)
        return reports

    def _in_executors(self, batch: Batch, rows: DataFrame) -> list[Report]:
        self._configure(batch.incoming, batch.options.memory)
        incoming, slots = batch.incoming, batch.slots.count
        pushed = self._pushed(batch)
        until = {name: reach.until for name, reach in incoming.reaches.by_stream.items()}
        selected = pushed.select(rows, batch.registers, until)
        bits = bits_of(len(batch.slots.routing))
        flow = _delivered(grouped(selected, incoming, batch.arrivals, bits, slots), batch)
        for step in batch.steps():
            flow = flow.mapInArrow(in_task(step), exchange_type(step.exchanged, step.last))
            if not step.last:
                flow = repartition_by_id(flow, slots, F.col(SLOT))
        reports = [Report.from_bytes(bytes(row[0])) for row in flow.collect()]
        for report in reports:
            report.ran_on.place = EXECUTORS
        failed = any(report.error is not None for report in reports)
        return reports if failed else [*reports, *pushed.account(reports)]

    def _configure(self, incoming: Incoming, memory: Memory) -> None:
        most = memory.rows_at_once(incoming.layout.row_bytes)
        wanted = {**BATCH_SETTINGS, ROWS_AT_ONCE: str(most)}
        # Batches without rows run in the session itself, not in the copy for the streaming query.
        own = not incoming.has_rows
        if own or wanted != self._set:
            for key, value in wanted.items():
                self._batch_session.conf.set(key, value)
            self._set = {} if own else wanted

    def _pushed(self, batch: Batch) -> PushDown:
        """What Spark selects; nothing where there are no rows, because the streams have ended."""
        if not batch.incoming.has_rows:
            return PushDown({}, {}, {})
        zone = self._batch_session.conf
        # What a query sets aside is known only when it fails; so that it can be buried whole, all rows come whole.
        read = {} if batch.options.sifted else batch.incoming.read
        streams, layout = batch.incoming.streams, batch.incoming.layout
        return push_down(
            batch.queries.values(), streams, layout, read, lambda: zone.get("spark.sql.session.timeZone") or ""
        )

    def wait_for_files(self) -> None:
        """Steps end once their files are safe."""

    def move(self, move: Move) -> list[Report]:
        """Runs a move of state as one Spark job."""
        sending, filling = move.steps()
        slots = move.old.slots
        tasks = self._batch_session.range(0, slots, 1, slots)
        flow = tasks.mapInArrow(in_task(sending), exchange_type(sending.layout, False))
        for step in filling:
            flow = repartition_by_id(flow, move.new.slots, F.col(SLOT))
            flow = flow.mapInArrow(in_task(step), exchange_type(step.layout, step.last))
        return [Report.from_bytes(bytes(row[0])) for row in flow.select(NOTE).collect() if row[0] is not None]

    def no_rows(self, arriving: Layout) -> DataFrame:
        """A batch without rows."""
        port = F.lit(0).cast("int").alias(PORT)
        payload = [F.lit(None).cast(from_arrow_type(f.type)).alias(f.name) for f in arriving.columns]
        return self.spark.range(0, 0, 1, 1).select(port, *payload)

    def released(self, manifest: Manifest, query: str, plan: Plan, since: int) -> DataFrame:
        """The results that a manifest released, as a DataFrame."""
        return batch_frame(self.spark, self.files, manifest, query, plan, since)

    def source_id(self) -> str:
        """The identity of Spark's checkpoint."""
        if self._identity is None:
            self._identity = self.log.query_id()
        return self._identity

    def continues(self, newest: Manifest) -> bool:
        """Whether this Spark query goes on with what ran in a process, in a log of its own."""
        return newest.query_id == LOCAL and self.log.base == source_batch(newest) + 1

    def offsets(self, batch_id: int) -> str:
        """Spark's own entry for a batch, made safe from a crash of the machine."""
        return self.log.safe_entry(batch_id, self.entry(batch_id))

    def require_same(self, manifest: Manifest) -> None:
        """Fails if Spark repeats the batch of a manifest with other offsets."""
        self.log.require_same(manifest)

    def repair(self, store: CheckpointStore) -> None:
        """Puts back what Spark's logs have lost of batches that are done."""
        self.begin(log_after(self.files, store.latest()))
        self.log.repair(store)

    def files_read(self, batch_id: int) -> FilesRead:
        """The files of folders that Spark has listed for a batch."""
        if not (self.sources.folders or self.sources.connected):
            return FilesRead()
        before = "" if batch_id == self.log.base else self.log.entry(batch_id - 1)
        entry = self.entry(batch_id)
        return self.sources.of_batch(self.log.files_between(before, entry), before, entry)

    def clock(self, batch_id: int) -> int | None:
        """The time that Spark logs with a batch; None of one that is not Spark's."""
        try:
            return batch_clock(self.entry(batch_id))
        except MissingFile:
            return None


def _delivered(rows: DataFrame, batch: Batch) -> DataFrame:
    """Rows in their slots; where groups have several slots, once in each."""
    deliveries = {port: batch.delivery(stream.name) for port, stream in batch.incoming.streams.items()}
    slots = batch.slots
    owner = slot_of(slots.routing, slots.count, deliveries)
    if not any(delivery.copies for delivery in deliveries.values()):
        return repartition_by_id(rows, slots.count, owner)
    copies = slots_of_copies(deliveries, len(slots.routing), owner)
    copied = rows.select("*", F.explode(copies).alias(SLOT))
    return repartition_by_id(copied, slots.count, F.col(SLOT)).drop(SLOT)


def batch_clock(offsets: str) -> int | None:
    """The time of a batch in Spark's entry for it, in microseconds.

    >>> batch_clock('v1\\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000123,"conf":{}}\\n{"x":1}')
    1700000000123000
    """
    for line in offsets.splitlines()[1:2]:
        with suppress(ValueError, TypeError, KeyError):
            return int(json.loads(line)["batchTimestampMs"]) * 1000
    return None
