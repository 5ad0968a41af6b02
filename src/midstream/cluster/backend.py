"""What a session asks of where it runs: how streams are opened, who calls the job for each batch, and results.

A session declares streams and queries; its backend, which has a name, brings the rows of each batch to the job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from midstream.adaptation.scaling import SlotRange
from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.cluster.options import require_positive
from midstream.errors import InputError
from midstream.inputs import NamedSource, StreamSettings
from midstream.job.cluster import Cluster
from midstream.job.job import Job
from midstream.optimizer.plans import Plan


class Input(Protocol):
    """A stream as a backend knows it."""

    @property
    def declaration(self) -> StreamDeclaration:
        """What is declared of it."""


class Backend(Protocol):
    """Where a session runs."""

    @property
    def slots(self) -> int:
        """How many slots a job has unless it says otherwise."""

    @property
    def cluster(self) -> Cluster:
        """Where the job's steps run."""

    def stream(self, name: str, source: Any, columns: pa.Schema | None, settings: StreamSettings) -> Input:
        """A stream from a source of the backend's own kind; `columns` if they are not to be taken from it."""

    def open_stream(self, source: NamedSource, settings: StreamSettings) -> Input:
        """A stream from a source that has a name."""

    def ticks(self, name: str) -> Input:
        """A stream that has a row every second."""

    def begin(self, job: Job, inputs: Sequence[Any], trigger: str | None) -> None:
        """Starts to call the job for each batch, with the streams' columns as they are declared."""

    @property
    def active(self) -> bool:
        """Whether batches may still come."""

    def halt(self) -> None:
        """Stops between two batches; the job's gate is held."""

    def ended(self, job: Job) -> bool:
        """Waits a moment for the end; what made a batch fail is raised.

        Only what comes to its end by itself or fails has ended. What is halted may begin again: that its run is over
        is for the run to say.
        """

    def results(self, manifest: Manifest | None, query: str, plan: Plan) -> Any:
        """All released results of a query."""

    def dead_letters(self, manifest: Manifest | None) -> Any:
        """All rows that could not be used, with the reasons."""

    def explanation(self, job: Job, streams: Sequence[StreamDeclaration]) -> list[str]:
        """What explain says of how rows are read."""


def opened_backend(
    on: str | Callable[[Files], Backend], spark: Any, files: Files, small_batches: int | str | None
) -> Backend:
    """The backend of a name, or the one that is made by what was given instead."""
    if callable(on):
        return on(files)
    if on == "local":
        if spark is not None:
            raise InputError('a session with on="local" runs without Spark', hint="leave the SparkSession out")
        from midstream.cluster.local.backend import LocalBackend

        return LocalBackend(files)
    if on == "spark":
        from midstream.cluster.spark.backend import SparkBackend

        return SparkBackend(spark, files, small_batches)
    raise InputError(f"a session cannot run on {on!r}", hint="use on='spark' or on='local'")


def first_slots(wanted: int | str | None, usual: int) -> int:
    """With how many slots a job begins."""
    if isinstance(wanted, str):
        return SlotRange.of(wanted).least
    return usual if wanted is None else require_positive("slots", wanted)
