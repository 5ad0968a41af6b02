"""Merges small files while the next batch runs, beside the driver's own work.

What a round has merged is adopted by the manifest of the next batch that is committed after it. A round that fails or
is never adopted costs nothing but its file, which nobody names and which is collected.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.errors import MidstreamError
from midstream.runtime.checkpoint.files import Files
from midstream.runtime.checkpoint.manifest import Manifest
from midstream.runtime.checkpoint.merging import File, Merge, due
from midstream.runtime.checkpoint.names import DEAD_LETTERS, RESULTS, name_for
from midstream.runtime.spark.slots.spill import ParquetSpool

log = logging.getLogger(__name__)

HELD = 64 * 2**20
"""How many bytes a merge holds before it writes a row group."""


class Compactor:
    """One round of merges at a time, in a thread of its own."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.thread: threading.Thread | None = None
        self.done: list[tuple[Merge, File]] = []

    def begin(self, manifest: Manifest) -> None:
        """Starts a round on what the manifest names, if something is due and no round is under way."""
        if self.thread is not None:
            return
        merges = due(manifest, manifest.batch_id)
        if merges:
            self.thread = threading.Thread(
                target=self._run, args=(merges, manifest.batch_id + 1), name="midstream-merge", daemon=True
            )
            self.thread.start()

    def take(self, wait: bool = False) -> list[tuple[Merge, File]]:
        """What the last round has merged, once it has ended; waits for its end if asked to."""
        if self.thread is None or (self.thread.is_alive() and not wait):
            return []
        self.thread.join()
        self.thread, done, self.done = None, self.done, []
        return done

    def _run(self, merges: Sequence[Merge], batch_id: int) -> None:
        done = []
        try:
            for merge in merges:
                done.append((merge, merge.merged(write_merged(self.files, merge, batch_id))))
        except (MidstreamError, pa.ArrowException, OSError) as error:
            log.warning("small files stay as they are for now: %s", error)
        self.done = done


def write_merged(files: Files, merge: Merge, batch_id: int) -> str:
    """Writes one file with the rows of all; gives its name."""
    spool = ParquetSpool(HELD)
    for file in merge.old:
        spool.add(pq.read_table(pa.BufferReader(files.open_map(file.path)), partitioning=None))
    content = spool.content()
    assert content is not None
    path = name_for(DEAD_LETTERS if merge.query is None else f"{RESULTS}/{merge.query}", batch_id, 0, 0)
    files.write_atomic(path, content, point="merge")
    return path
