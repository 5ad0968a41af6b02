"""Merges small files while the next batch runs, beside the driver's own work.

What a round has merged is adopted by the manifest of the next batch that is committed after it. A round that fails or
is never adopted costs nothing but its file, which nobody names and which is collected.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.merging import AnyMerge, Made, SharedMerge, due
from midstream.checkpoint.names import DEAD_LETTERS, RESULTS, name_for
from midstream.checkpoint.outputs import checksum_of
from midstream.checkpoint.parallel_writes import wait_for
from midstream.checkpoint.process import this_process
from midstream.checkpoint.result_files import QUERY, read_whole
from midstream.errors import MidstreamError
from midstream.job.task.results_files import shared_parquet
from midstream.job.task.spill import ParquetSpool

log = logging.getLogger(__name__)

HELD = 64 * 2**20
"""How many bytes a merge holds before it writes a row group."""


class Compactor:
    """One round of merges at a time, in a thread of its own."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.round: Future[None] | None = None
        self.done: list[tuple[AnyMerge, Made]] = []

    def begin(self, manifest: Manifest) -> None:
        """Starts a round on what the manifest names, if something is due and no round is under way."""
        if self.round is not None:
            return
        merges = due(manifest, manifest.batch_id)
        if merges:
            self.round = this_process().aside(partial(self._run, merges, manifest.batch_id + 1), "midstream-merge")

    def take(self, wait: bool = False) -> list[tuple[AnyMerge, Made]]:
        """What the last round has merged, once it has ended; waits for its end if asked to."""
        if self.round is None or not (wait or self.round.done()):
            return []
        wait_for([self.round])
        self.round, done, self.done = None, self.done, []
        return done

    def _run(self, merges: Sequence[AnyMerge], batch_id: int) -> None:
        done: list[tuple[AnyMerge, Made]] = []
        _let_others_first()
        try:
            for merge in merges:
                done.append((merge, merge.merged(*write_merged(self.files, merge, batch_id))))
        except (MidstreamError, pa.ArrowException, OSError) as error:
            log.warning("small files stay as they are for now: %s", error)
        self.done = done


def _let_others_first() -> None:
    """Lowers this thread's priority below that of batches; only Linux has priorities of single threads."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # some containers forbid it, and merging matters more
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def write_merged(files: Files, merge: AnyMerge, batch_id: int) -> tuple[str, int, int]:
    """Writes one file with the rows of all; gives its name, its checksum and its size."""
    if isinstance(merge, SharedMerge):
        return _write_shared(files, merge, batch_id)
    spool = ParquetSpool(HELD)
    for file in merge.old:
        spool.add(read_whole(files, file))
    content = spool.content()
    assert content is not None
    path = name_for(DEAD_LETTERS if merge.query is None else f"{RESULTS}/{merge.query}", batch_id, 0, 0)
    files.write_atomic(path, content, point="merge")
    return path, checksum_of(content), content.size


def _write_shared(files: Files, merge: SharedMerge, batch_id: int) -> tuple[str, int, int]:
    owners: dict[str, dict[str, str]] = {}
    shared = {file.path: file for old in merge.old.values() for file in old}
    for query, old in merge.old.items():
        for file in old:
            owners.setdefault(file.path, {})[file.part] = query
    rows = pa.concat_tables([_owned(read_whole(files, shared[path]), whose) for path, whose in owners.items()])
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(QUERY, "ascending")]))
    path = name_for(merge.folder, batch_id, 0, 0)
    content = shared_parquet(rows.drop_columns([QUERY]), rows.column(QUERY))
    files.write_atomic(path, content, point="merge")
    return path, checksum_of(content), content.size


def _owned(rows: pa.Table, whose: Mapping[str, str]) -> pa.Table:
    """The rows of some parts, under the names of their queries."""
    place = rows.column_names.index(QUERY)
    number = pc.index_in(rows.column(QUERY), value_set=pa.array(list(whose)))
    names = pa.array(list(whose.values())).take(number)
    return rows.set_column(place, QUERY, names).filter(pc.is_valid(number))
