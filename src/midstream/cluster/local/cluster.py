"""This process as a cluster: slots run in its threads.

Rows may be dealt in a random order, as a shuffle on a cluster does, so that tests see what depends on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import ARRIVAL
from midstream.checkpoint.file_entries import FilesRead
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.spark_log import LOCAL
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.slot_threads import Dealt, Owners, SlotThreads
from midstream.distribution.fragments import Route
from midstream.job.batch import Batch
from midstream.job.outputs.results import results_of_query
from midstream.job.queries.backfill import Streams
from midstream.job.slots.moving import Move
from midstream.job.task.exchange import GROUP, PORT, Layout, groups_of, in_slot
from midstream.job.task.kept_tasks import Collected, KeptTasks
from midstream.job.task.reports import Report
from midstream.job.task.step import StageStep
from midstream.job.task.task import Task
from midstream.operators.group_hash import group_hash
from midstream.optimizer.cost import Constants
from midstream.optimizer.plans import Plan


@dataclass(frozen=True, slots=True)
class GoingOn:
    """A step whose tasks go on from batch to batch; what it leaves is collected here, unless it runs elsewhere."""

    step: StageStep
    tasks: dict[tuple[int, int], KeptTasks[Task]]
    collected: Collected | None = None

    def run(self, slot: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the step in a slot."""
        kept = self.tasks.setdefault((self.step.stage, slot), KeptTasks())
        return self.step.run(slot, batches, kept, collected=self.collected)


Arriving = Mapping[str, pa.RecordBatch | pa.Table]
"""The rows of a batch by stream."""


class LocalCluster:
    """Runs a job's steps in this process: `threads` slots at once, rows in a random order by `shuffle`."""

    constants = Constants()
    """What plans are weighed by here."""

    def __init__(
        self,
        files: Files,
        source_id: str = LOCAL,
        shuffle: np.random.Generator | None = None,
        threads: int | None = None,
    ) -> None:
        self.files = files
        self.shuffle = shuffle
        self.reading = FilesRead()
        """The files whose rows the batch under way has."""
        self.clocks: dict[int, int] = {}
        """The time of the batch under way."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called once steps have run: the rest of a batch mostly waits for the disk."""
        self.rereading: Streams = lambda name: None
        """The streams as they can be read again."""
        self._source_id = source_id
        self._slots = SlotThreads(threads, shuffle)
        self._collected = Collected(files)
        self._tasks: dict[tuple[int, int], KeptTasks[Task]] = {}
        """Tasks that stay alive between batches, by stage and slot."""

    def run(self, batch: Batch, rows: Arriving) -> list[Report]:
        """Runs all stages of a batch."""
        self._collected.wait()  # for the files of an attempt that was given up
        collected = self._collected = Collected(self.files)
        # Where rows travel in a random order, as between machines, so do reports.
        here = collected if self._slots.shuffle is None else None
        steps = [GoingOn(step, self._tasks, here) for step in batch.steps()]
        noted = self._slots.run(steps, self._dealt(batch, rows), batch.slots.count)
        self.meanwhile()
        return noted or sorted(collected.reports, key=lambda report: (report.stage, report.slot))

    def wait_for_files(self) -> None:
        """Waits until the files of the last steps are safe."""
        self._collected.wait()

    def move(self, move: Move) -> list[Report]:
        """Runs a move of state."""
        self._tasks.clear()
        sending, filling = move.steps()
        slots = max(move.old.slots, move.new.slots)
        return self._slots.run([sending, *filling], [[] for _ in range(slots)], slots)

    def no_rows(self, arriving: Layout) -> Arriving:
        """A batch without rows."""
        return {}

    def released(self, manifest: Manifest, query: str, plan: Plan, since: int) -> pa.Table:
        """The results that a manifest released, as a table."""
        return results_of_query(self.files, manifest, query, plan, since)

    def source_id(self) -> str:
        """The identity of what counts the batches."""
        return self._source_id

    def continues(self, newest: Manifest) -> bool:
        """It goes on from whatever there is: what was read before is known before it starts."""
        return True

    def offsets(self, batch_id: int) -> str:
        """Nothing besides the files that were read."""
        return ""

    def files_read(self, batch_id: int) -> FilesRead:
        """The files whose rows the batch has."""
        return self.reading

    def clock(self, batch_id: int) -> int | None:
        """The time of the batch under way, if there is one: nothing else is repeated as it was."""
        return self.clocks.get(batch_id)

    def require_same(self, manifest: Manifest) -> None:
        """No batch is repeated with rows: those of one that is done are read no more."""

    def repair(self, store: CheckpointStore) -> None:
        """Positions are in manifests alone: there is nothing to put back."""

    def close(self) -> None:
        """Ends the threads, and the tasks that were kept."""
        self._slots.close()
        self._tasks.clear()

    def _dealt(self, batch: Batch, rows: Arriving) -> Dealt:
        """Each slot's rows, tagged with stream and partition group."""
        slots: Dealt = [[] for _ in range(batch.slots.count)]
        for port, declaration in batch.incoming.streams.items():
            delivery = batch.delivery(declaration.name)
            names = batch.incoming.layout.schemas[port].names
            came = batch.batch_id << 32 if ARRIVAL in names else None
            for arrived in _pieces(rows.get(declaration.name), came):
                for to, route in batch.arriving(port):
                    for groups in self._groups(route, arrived, len(delivery.owners), batch.slots.count):
                        sent = _tagged(batch.incoming.layout, port, to, groups, arrived)
                        self._slots.deliver(sent, groups, delivery, slots)
        return slots

    def _groups(self, route: Route, rows: pa.RecordBatch, count: int, slots: int) -> list[Owners]:
        """The groups of rows, once for each time that they are sent."""
        if route.everywhere:
            return [np.full(rows.num_rows, in_slot(slot), np.int32) for slot in route.copied_to(slots)]
        if route.key:
            hashes = group_hash([rows.column(name) for name in route.key])
            return [np.asarray(groups_of(hashes, count), np.int32)]
        if route.is_one_slot:
            return [np.full(rows.num_rows, in_slot(0), np.int32)]
        if route.slots:
            there = np.asarray([in_slot(slot) for slot in route.slots], np.int32)
            return [there[np.arange(rows.num_rows) % len(there)]]
        if self.shuffle is not None:
            return [self.shuffle.integers(0, count, rows.num_rows, dtype=np.int32)]
        return [np.asarray(np.arange(rows.num_rows) * count // rows.num_rows, np.int32)]


def _pieces(rows: pa.RecordBatch | pa.Table | None, came: int | None) -> Iterator[pa.RecordBatch]:
    """Rows as batches, none of them empty; numbered as they `came`, unless nobody asks or they tell it themselves."""
    for piece in [] if rows is None else rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        if piece.num_rows and came is not None and ARRIVAL not in piece.schema.names:
            yield piece.append_column(ARRIVAL, pa.array(np.arange(came, came + piece.num_rows)))
        elif piece.num_rows:
            yield piece
        came = came if came is None else came + piece.num_rows


def _tagged(layout: Layout, port: int, to: int, groups: Owners, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a stream as they travel: with their stream, their group, and the columns that are needed."""
    columns = [rows.column(name) for name in layout.schemas[port].names]
    fixed = [pa.array(np.full(rows.num_rows, to, np.int32)), pa.array(groups)]
    names = [PORT, GROUP, *(f.name for f in layout.columns)]
    return pa.RecordBatch.from_arrays([*fixed, *layout.wide(port, columns, rows.num_rows)], names=names)
