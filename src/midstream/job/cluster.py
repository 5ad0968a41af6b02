"""What a job asks of the place where it runs: steps over rows, moves of state, and how far its sources were read.

`Rows` are the rows of one batch in whatever form the cluster has them; the job only hands them on.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from midstream.checkpoint.file_entries import FilesRead
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.store import CheckpointStore
from midstream.job.batch import Batch
from midstream.job.queries.backfill import Rereading
from midstream.job.slots.moving import Move
from midstream.job.task.exchange import Layout
from midstream.job.task.reports import Report
from midstream.optimizer.cost import Constants
from midstream.optimizer.plans import Plan

Rows: TypeAlias = Any


class Cluster(Protocol):
    """Runs steps in slots."""

    @property
    def constants(self) -> Constants:
        """What plans are weighed by here."""

    def run(self, batch: Batch, rows: Rows) -> list[Report]:
        """Runs all steps of a batch over its rows; gives every slot's reports.

        Files that reports name may still be being written.
        """

    def wait_for_files(self) -> None:
        """Waits until the files that reports name are safe but for the names in their folders; fails if one is not.

        Reports then tell what writing them took.
        """

    def move(self, move: Move) -> list[Report]:
        """Runs a move of state; gives every slot's reports."""

    def no_rows(self, arriving: Layout) -> Rows:
        """A batch without rows."""

    def released(self, manifest: Manifest, query: str, plan: Plan, since: int) -> Any:
        """The results that a manifest released, from an instant on, as sinks are given them."""

    def source_id(self) -> str:
        """The identity of what counts the batches; manifests made under another one are not continued."""

    def continues(self, newest: Manifest) -> bool:
        """Whether it can go on from a manifest that was made under another identity."""

    def offsets(self, batch_id: int) -> str:
        """Up to where the sources were read for a batch."""

    def rereading(self, name: str) -> Rereading | None:
        """A stream as it can be read again, if it can."""

    def files_read(self, batch_id: int) -> FilesRead:
        """The files of folders that a batch reads as streams, where the manifest is to account for them."""

    def clock(self, batch_id: int) -> int | None:
        """The wall clock of a batch, in microseconds since 1970, which the batch has again if it is repeated."""

    def require_same(self, manifest: Manifest) -> None:
        """Fails if the source repeats the batch of a manifest with other rows than it was made with."""

    def repair(self, store: CheckpointStore) -> None:
        """Puts back what the source has lost of how far it was read, before it is read again."""
