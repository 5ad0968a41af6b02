"""The news of a job: what the page is sent when a batch is done or the job starts or stops.

Reading a checkpoint is work, so there is one reader however many pages are open, and each new batch is read once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from midstream.checkpoint.failures import NotRetained
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stops import standing
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import MidstreamError
from midstream.interface.dashboard.page_data import job_summary
from midstream.interface.dashboard.series import series_summary

PAUSE, REMOTE_PAUSE = 0.5, 3.0
"""Seconds between two looks at the checkpoint, where it lies on this machine and where each look is a request."""

BEAT = 15.0
"""Seconds after which a page is told that the connection lives, if there is no news."""


@dataclass(slots=True)
class NewsFeed:
    """What is known of the job by now; `number` counts the news."""

    checkpoint: str
    job: StoredJob | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    phase: str | None = None
    """What a job does that cannot be read yet, as far as it is known."""
    number: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    ended: bool = False
    _seen: tuple[Any, ...] = ()
    _loop: asyncio.AbstractEventLoop | None = None

    async def watch(self) -> None:
        """Looks at the checkpoint for ever."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self.look()
            await asyncio.sleep(REMOTE_PAUSE if "://" in self.checkpoint else PAUSE)

    def close(self) -> None:
        """Ends what pages are being sent, so that the server can end; may be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)

    async def _end(self) -> None:
        async with self.changed:
            self.ended = True
            self.changed.notify_all()

    async def look(self) -> None:
        """Looks at the checkpoint once."""
        try:
            news = await asyncio.to_thread(self._read)
        except NotRetained:  # newer batches were done meanwhile: the next look reads as of one of them
            news = False
        except MidstreamError as error:
            trouble = (error.message, await asyncio.to_thread(self._phase))
            news = trouble != (self.error, self.phase)
            self.error, self.phase = trouble
        if news:
            async with self.changed:
                self.number += 1
                self.changed.notify_all()

    def _phase(self) -> str | None:
        try:
            return str(standing(CheckpointStore(self.checkpoint).files, None).phase)
        except MidstreamError:
            return None

    def _read(self) -> bool:
        job = StoredJob.open(self.checkpoint) if self.job is None else self.job.refresh()
        seen = (job.batch, job.standing, [(r.id, r.status) for r in job.requests])
        if seen == self._seen and self.error is None:
            return False
        self.summary = job_summary(job)
        self.job, self._seen, self.error = job, seen, None
        return True

    async def events(self, since: int) -> AsyncIterator[str]:
        """What a page is sent, as server-sent events: all of it at first, then what is new."""
        seen = -1
        while not self.ended:
            if seen != self.number:
                seen = self.number
                if self.error is not None:
                    yield event("trouble", {"message": self.error, "phase": self.phase})
                elif self.job is not None:
                    series = await asyncio.to_thread(series_summary, self.job, since)
                    since = self.job.batch
                    yield event("job", {"job": self.summary, "series": series}, since)
            try:
                async with asyncio.timeout(BEAT), self.changed:
                    while seen == self.number and not self.ended:
                        await self.changed.wait()
            except TimeoutError:
                yield ": still there\n\n"


def event(kind: str, content: Any, number: int | None = None) -> str:
    """One server-sent event.

    >>> event("job", {"batch": 3}, 3)
    'id: 3\\nevent: job\\ndata: {"batch":3}\\n\\n'
    """
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(content, separators=(',', ':'), allow_nan=False)}\n\n"
