"""The batches of a source, and those of our own.

A source counts the batches of rows that it hands over; manifests count all batches. A batch of our own takes in no
rows: it releases what waited, declares that streams have ended, or leaves a query out. It has the offsets and the
number of the source's batch before it, so that a process that repeats that batch knows how much of it was processed.
"""

from __future__ import annotations

from dataclasses import replace

from midstream.checkpoint.manifest import Manifest


def source_batch(manifest: Manifest | None) -> int:
    """The batch of the source whose rows were taken in last; -1 if there was none."""
    if manifest is None:
        return -1
    number = manifest.streams.source_batch
    return manifest.batch_id if number is None else number


def own_batches(manifest: Manifest | None) -> int:
    """How many batches of our own came after that of the source."""
    return 0 if manifest is None else manifest.streams.own_batches


def counted(before: Manifest | None, number: int) -> dict[str, int]:
    """What the manifest after another says of batches, if it takes in a batch of the source, or is one of our own."""
    return {"source_batch": number, "own_batches": own_batches(before) + 1 if number == source_batch(before) else 0}


def of_our_own(before: Manifest, content: Manifest) -> Manifest:
    """A manifest of our own that comes after another, with some content."""
    numbered = content.with_streams(**counted(before, source_batch(before)))
    return replace(numbered, batch_id=before.batch_id + 1, offsets=before.offsets)
