"""Where a session on a checkpoint runs, by name, and with how many slots its job begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from midstream.adaptation.scaling import SlotRange
from midstream.checkpoint.files import Files
from midstream.cluster.backend import Backend
from midstream.cluster.options import require_positive
from midstream.errors import InputError


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
