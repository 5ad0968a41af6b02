"""What sinks know of the results they receive.

A plain sink is called with results and the number of their batch. One that several jobs and queries may share has a
method `deliver` instead, and is told whose results they are: checkpoints have identities, made with their first
manifest, because another checkpoint counts its batches from 0 too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.process import this_process

Sink = Callable[[Any, int], None]
Released = Callable[[Manifest, str, int], Any]
"""Reads the results of a query that a manifest has released since an instant; None if nobody knows the query."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Whose results they are; manifests of earlier versions have no identity."""

    query: str
    batch_id: int
    checkpoint: str | None


@dataclass(slots=True)
class Deliveries:
    """The sinks of a job's queries, and what they have been given.

    `called` is the newest batch whose sinks were all called, as far as this process knows. Sinks that are `owed`
    results, because one of them failed, are called again before another batch.
    """

    sinks: dict[str, list[Sink]] = field(default_factory=dict)
    called: int | None = None
    owed: bool = False

    def call(self, before: Manifest | None, manifest: Manifest, released: Released) -> None:
        """Gives sinks what a manifest has released since the one before it; `released` reads it."""
        self.owed = True
        for name, sinks in self.sinks.items():
            since = BEGINNING if before is None else before.released.get(name, BEGINNING)
            if manifest.released.get(name, BEGINNING) <= since:
                continue
            results = released(manifest, name, since)
            for sink in sinks if results is not None else ():
                deliver(sink, results, name, manifest)
        self.called, self.owed = manifest.batch_id, False


def identity_after(before: Manifest | None) -> str:
    """The identity of a checkpoint, as its next manifest has it."""
    known = None if before is None else before.settings.identity
    return this_process().token(6) if known is None else known


def deliver(sink: Sink, results: Any, query: str, manifest: Manifest) -> None:
    """Gives a sink the results of a query that a manifest has released."""
    deliver = getattr(sink, "deliver", None)
    if deliver is None:
        sink(results, manifest.batch_id)
    else:
        deliver(results, Delivery(query, manifest.batch_id, manifest.settings.identity))
