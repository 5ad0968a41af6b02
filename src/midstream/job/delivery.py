"""What sinks are told of the results they are given.

A plain sink is called with results and the number of their batch. One that several jobs and queries may share has a
method `deliver` instead, and is told whose results they are: checkpoints have identities, made with their first
manifest, because another checkpoint counts its batches from 0 too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.process import this_process

Sink = Callable[[Any, int], None]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Whose results they are; manifests of earlier versions have no identity."""

    query: str
    batch_id: int
    checkpoint: str | None


def identity_after(before: Manifest | None) -> str:
    """The identity of a checkpoint, as its next manifest has it."""
    known = None if before is None else before.settings.identity
    return this_process().token(6) if known is None else known


def deliver(sink: Sink, results: Any, query: str, manifest: Manifest) -> None:
    """Gives a sink the results of a query that a manifest has released."""
    told = getattr(sink, "deliver", None)
    if told is None:
        sink(results, manifest.batch_id)
    else:
        told(results, Delivery(query, manifest.batch_id, manifest.settings.identity))
