"""Results as they are released, for whoever wants to hear of them: each once, in order, from an instant on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.failures import MissingFile, NotRetained
from midstream.checkpoint.lease import is_running
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.retention import kept_from, removed_text
from midstream.checkpoint.stops import newest_manifest
from midstream.checkpoint.store import CheckpointStore
from midstream.checkpoint.stored_results import is_superseded, stored_results

PAUSE = 0.01
"""Seconds between two looks at the checkpoint: what a batch has released is seen that much later."""


@dataclass(frozen=True, slots=True)
class Released:
    """Results of a query that start before `until`, in ticks, and were not among those before."""

    table: pa.Table
    until: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """The results of a query from an instant on, in ticks; it ends when the job does not run any more.

    `for table in subscription`, or `async for`, gives what is released so far, then what each batch releases.
    """

    checkpoint: str
    query: str
    since: int = BEGINNING
    pause: float = PAUSE
    sleep: Callable[[float], None] = time.sleep

    def __iter__(self) -> Iterator[pa.Table]:
        reader = _ResultReader(self)
        while not reader.over:
            released = reader.look()
            if released is not None:
                yield released.table
            elif not reader.over:
                self.sleep(self.pause)

    async def __aiter__(self) -> AsyncIterator[pa.Table]:
        async for released in self.releases():
            yield released.table

    async def releases(self) -> AsyncIterator[Released]:
        """Results with the instants up to which they are known; nobody else is kept waiting meanwhile."""
        reader = _ResultReader(self)
        while not reader.over:
            released = await asyncio.to_thread(reader.look)
            if released is not None:
                yield released
            elif not reader.over:
                await asyncio.sleep(self.pause)


def require_kept(manifest: Manifest, query: str, since: int) -> None:
    """Refuses a subscriber that is to go on at an instant from which on results have been removed."""
    kept = kept_from(manifest, query)
    if BEGINNING < since < kept:
        raise NotRetained(
            f"results of query {query} that start from tick {since} on are no longer all there",
            detail=removed_text(manifest, query),
            hint=f"begin at tick {kept}, or without an instant, and keep results longer (retention)",
        )


class _ResultReader:
    """How far a subscriber is."""

    def __init__(self, subscription: Subscription) -> None:
        self.query, self.since = subscription.query, subscription.since
        self.over = False
        self._store = CheckpointStore(subscription.checkpoint)
        self._seen: int | None = None

    def look(self) -> Released | None:
        """What is new; the first answer may have no rows. Once nothing is new and no job runs, it is over."""
        running = is_running(self._store.files)  # asked first: what a job releases last is still read
        manifest = newest_manifest(self._store)
        if manifest.batch_id == self._seen:
            self.over = not running
            return None
        require_kept(manifest, self.query, self.since)
        try:
            table = stored_results(self._store.files, manifest, self.query, self.since)
        except MissingFile:
            if not is_superseded(self._store, manifest):
                raise
            return None
        first, self._seen = self._seen is None, manifest.batch_id
        self.since = max(self.since, manifest.released.get(self.query, BEGINNING))
        return Released(table, self.since) if first or table.num_rows else None
