"""Small batches run in the driver: it takes their rows with one Spark job that starts no Python worker, and runs the
steps of all slots in its own threads.

The steps are those that executors run, on the same rows in the same slots, so a batch leaves the same behind wherever
it ran, and a repeated one may run elsewhere. A batch is small if its sources state few enough bytes before it is read,
and if the state of all slots together is no more than one slot may work with; so the driver never holds more than a
slot would. Where executors are no other machines, files that the driver reads by itself are small up to that size, too.
What fails in the driver for a reason that is not the data's is run again in executors.

Long batches run where a row takes less time: after one that took the driver long, executors run two. The faster place
runs the next twenty batches, and twice as many each time that the same place is the faster one again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from midstream.checkpoint.manifest import Manifest
from midstream.cluster.slot_threads import Dealt, Owners, SlotThreads
from midstream.distribution.fragments import Route
from midstream.errors import JobError, MidstreamError
from midstream.job.batch import Batch
from midstream.job.circumstances import Incoming
from midstream.job.task.exchange import GROUP, PORT, groups_of, in_slot
from midstream.job.task.memory import LEAST, Memory, bytes_of
from midstream.job.task.reports import Report
from midstream.operators.group_hash import group_hash

LONGEST = 1.0
"""A batch that takes the driver more seconds than this is long."""

TRIED = 2
"""How many batches executors run for the comparison. The last one counts, because the first may start workers."""

STANDS, STANDS_LONGEST = 20, 640
"""How many batches the faster place runs before the next comparison, at first and at most."""


@dataclass(slots=True)
class SparkPace:
    """Whose turn it is, and what is known of both."""

    executors: int = 0
    """How many of the next batches executors run."""
    driver: int = 0
    """How many of the next batches the driver runs, however long they take."""
    _row: float | None = None
    """What a row took the driver, while executors are compared with it."""
    _faster: str = ""
    _stands: int = STANDS

    def is_drivers_turn(self) -> bool:
        """Whether the driver may run the batch that comes; it is asked once for each."""
        if self.executors:
            self.executors -= 1
            return False
        return True

    def driver_failed(self) -> None:
        """Has executors run the next batches."""
        self.executors, self.driver, self._row = STANDS, 0, None

    def driver_took(self, seconds: float, rows: int) -> None:
        """Learns from a batch that the driver ran."""
        if self.driver:
            self.driver -= 1
        elif seconds > LONGEST:
            self.executors, self._row = TRIED, seconds / max(1, rows)

    def executors_took(self, seconds: float, rows: int) -> None:
        """Learns from a batch that executors ran."""
        if self._row is None or self.executors or not rows:
            return
        faster = "executors" if seconds / rows < self._row else "driver"
        self._stands = min(2 * self._stands, STANDS_LONGEST) if faster == self._faster else STANDS
        self._faster, self._row = faster, None
        if faster == "driver":
            self.driver = self._stands
        else:
            self.executors = self._stands


log = logging.getLogger(__name__)

USUAL = "1 MB"
USUAL_ON_ONE_MACHINE = "8 MB"
"""Up to which size batches are small, unless a session says otherwise. Where tasks run in the driver's own JVM, no
other machine would take work off it, and Python workers only add their own cost."""

DRIVER, EXECUTORS = "driver", "executors"
"""Where reports say that slots ran."""

LATELY = 5
"""By how many of the last batches it is told where they usually run."""

UNKNOWN = 2**60
"""From which size on Spark's plan means that it does not know."""


def most_bytes(size: int | str | None, usual: str = USUAL) -> int:
    """The bytes of the largest small batch; None is the usual size."""
    number = bytes_of(usual if size is None else size, "small_batches")
    if number < 0:
        raise JobError(f"small_batches cannot be {size!r}", hint="0 has executors run all batches")
    return number


@dataclass(slots=True)
class SmallBatches:
    """Which batches are small, and how they run."""

    most: int
    rows_of_others: Callable[[], int | None] = lambda: None
    """The rows of the batch under way that come from sources of which Spark's plan does not state the size."""
    bytes_of_files: Callable[[], int | None] = lambda: None
    """The bytes of its rows that come from the other sources."""
    plain: Callable[[Incoming, int], pa.Table | None] = lambda incoming, most: None
    """The rows of the batch under way without asking Spark, if they are in files that can be read so."""
    all_plain: bool = False
    """Whether such files are small as far as a slot's memory goes."""
    slots: SlotThreads = field(default_factory=SlotThreads)
    pace: SparkPace = field(default_factory=SparkPace)
    _growth: float = 1.0
    """How many bytes in memory a byte that sources stated has become in the last batch."""
    _known: int | None = None
    """The bytes that the sources of the batch under way state."""
    _taken: tuple[DataFrame, pa.Table] | None = None
    """The rows of the batch under way, which may run several times."""
    _lately: deque[str] = field(default_factory=lambda: deque(maxlen=LATELY))
    """Where the last batches with rows ran."""

    @property
    def usual(self) -> bool:
        """Whether most of the last batches ran in the driver; before the first one, whether they are likely to."""
        if not self._lately:
            return bool(self.most) and self.all_plain
        return 2 * self._lately.count(DRIVER) > len(self._lately)

    def run(self, batch: Batch, rows: DataFrame) -> list[Report] | None:
        """The reports of a small batch; None for one that executors are to run."""
        if not self.most or not self._fits(batch.before, batch.options.memory):
            return None
        started = time.perf_counter()
        dealt = self._dealt(batch, rows)
        if dealt is None:
            return None
        try:
            reports = self.slots.run(_steps(batch), dealt, batch.slots.count)
        except MidstreamError:
            raise
        except Exception as error:
            log.warning("batch %d failed in the driver and runs in executors: %s", batch.batch_id, error)
            self.pace.driver_failed()
            return None
        self.pace.driver_took(time.perf_counter() - started, _rows(reports))
        self._ran(batch, DRIVER)
        for report in reports:
            report.ran_on.place = DRIVER
        return reports

    def ran_elsewhere(self, batch: Batch, reports: Sequence[Report], seconds: float) -> None:
        """Learns from a batch that executors ran how many bytes its rows were, and how long it took."""
        rows = _rows(reports)
        self._ran(batch, EXECUTORS)
        self._grown(rows * batch.incoming.layout.row_bytes)
        self.pace.executors_took(seconds, rows)

    def _ran(self, batch: Batch, place: str) -> None:
        if batch.incoming.has_rows:
            self._lately.append(place)

    def _grown(self, real: int) -> None:
        if self._known is not None:
            self._growth = max(1.0, real / max(self._known, 1024))

    def _fits(self, before: Manifest | None, memory: Memory) -> bool:
        return before is None or sum(entry.bytes for entry in before.entries()) <= memory.state

    def _dealt(self, batch: Batch, rows: DataFrame) -> Dealt | None:
        """Each slot's rows, if they are few."""
        slots: Dealt = [[] for _ in range(batch.slots.count)]
        if not batch.incoming.has_rows:
            return slots
        table = self._table(batch, rows)
        if table is None:
            return None
        for piece in table.to_batches():
            for port, part in batch.incoming.layout.split([piece]).items():
                stream = batch.incoming.streams[port].name
                delivery = batch.delivery(stream)
                for to, route in batch.arriving(port):
                    for groups in _groups(batch, port, route, part):
                        grouped = _sent_to(to, part).append_column(GROUP, pa.array(groups, pa.int32()))
                        self.slots.deliver(grouped, groups, delivery, slots)
        return slots

    def _table(self, batch: Batch, rows: DataFrame) -> pa.Table | None:
        if self._taken is not None and self._taken[0] is rows:
            return self._taken[1]
        self._taken = None
        if not self.pace.is_drivers_turn():
            return None
        table = self.plain(batch.incoming, max(self.most, batch.options.memory.input if self.all_plain else 0))
        if table is not None:
            self._taken = rows, table
            return table
        stated = self._known = self._stated(rows, batch.incoming.layout.row_bytes)
        if stated is None or stated * self._growth > self.most:
            return None
        try:
            table = rows.toArrow()
        except (Py4JError, PySparkException):  # executors read the same rows, and fail in words that are known
            return None
        self._grown(table.nbytes)
        self._taken = rows, table
        return table

    def _stated(self, rows: DataFrame, row_bytes: int) -> int | None:
        """The bytes of a batch as its sources state them before it is read; None if one does not."""
        try:
            whole = int(rows._jdf.queryExecution().analyzed().stats().sizeInBytes())
            if whole <= self.most:
                return whole
            others = self.rows_of_others()
            files = None if others is None else self.bytes_of_files()
        except (Py4JError, PySparkException):  # a version of Spark that has these elsewhere
            return None
        return None if others is None or files is None else files + others * row_bytes


def _groups(batch: Batch, port: int, route: Route, rows: pa.RecordBatch) -> list[Owners]:
    """The partition groups of a stream's rows, as Spark would compute them, once for each time that they are sent."""
    payload = batch.incoming.layout.payload(port, rows)
    if route.everywhere:
        return [np.full(rows.num_rows, in_slot(slot), np.int32) for slot in route.copied_to(batch.slots.count)]
    if route.is_one_slot:
        return [np.full(rows.num_rows, in_slot(0), np.int32)]
    key = batch.incoming.spread_by(port) if route.key is None else route.key
    hashes = group_hash([payload.column(name) for name in key])
    if route.slots:
        there = np.asarray([in_slot(slot) for slot in route.slots], np.int32)
        return [there[hashes.view(np.int64) % len(there)]]
    return [np.asarray(groups_of(hashes, len(batch.slots.routing)), np.int32)]


def _sent_to(port: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a stream on another port."""
    ports = pa.array(np.full(rows.num_rows, port, np.int32))
    return rows.set_column(rows.schema.get_field_index(PORT), pa.field(PORT, pa.int32()), ports)


def stated_by_files(execution: Any) -> int:
    """The bytes that those leaves of a batch's plan state that state any."""
    leaves = execution.optimizedPlan().collectLeaves()
    sizes = [int(leaves.apply(i).stats().sizeInBytes()) for i in range(leaves.size())]
    return sum(size for size in sizes if size < UNKNOWN)


def _rows(reports: Sequence[Report]) -> int:
    return sum(sum(report.streams.rows.values()) for report in reports)


def _steps(batch: Batch) -> list[Any]:
    """The steps, all slots of which share the memory of one."""
    whole = batch.options.memory
    return list(batch.steps(Memory(max(LEAST, whole.bytes // batch.slots.count), whole.fragments)))
