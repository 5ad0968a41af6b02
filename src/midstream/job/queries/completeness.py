"""From which instant on the results of a query that came while the job ran are complete.

A new query, and one that took another's place, sees the rows since it began, and those of windows that others had kept
for it. A result is complete if all rows that its windows hold came since: from the instant on at which the last row
that came before has left every window.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.algebra.physical import SourceNode, walk_physical
from midstream.algebra.plan import Relation, ToStream
from midstream.algebra.time import BEGINNING, INFINITY, TimeDomain, instant
from midstream.algebra.windows import Hop
from midstream.checkpoint.manifest import Manifest
from midstream.job.queries.running_query import RunningQuery
from midstream.operators.hops import boundary_after, last_boundary_reaching

log = logging.getLogger(__name__)


COMPLETE = "all results are complete"
"""What is said of a query that lacks nothing."""

ALWAYS = -1
"""The beginning of a window that holds all there is to hold."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a manifest remembers of a query's sharing.

    `since` says with which batch each of its windows began; `start` from which instant on its results are whole;
    `whole_at` when all that came before its windows began has ended (None: never). `own`: others hold something else.
    """

    since: Mapping[str, int]
    start: int = BEGINNING
    whole_at: int | None = None
    own: bool = False
    inherited: Mapping[str, int] = field(default_factory=dict)
    shares: tuple[str, ...] = ()
    filling: Mapping[str, Any] | None = None
    """How its windows are filled over several batches, if they are; without content once they are full."""

    @property
    def lacks_rows(self) -> bool:
        """Whether some window began after rows that it would hold."""
        return any(batch != ALWAYS for batch in self.since.values())

    @property
    def whole_from_start(self) -> bool:
        """Whether nothing is lacking that its results need."""
        return is_whole(self.start, self.lacks_rows, self.whole_at)

    def to_json(self) -> dict[str, Any]:
        """What the manifest says."""
        known = {"since": dict(self.since), "start": self.start, "whole_at": self.whole_at, "own": self.own}
        return known if self.filling is None else {**known, "filling": self.filling}

    def begun(self, batch_id: int, plan: str) -> dict[str, Any]:
        """What a query's history says of its beginning with a batch."""
        return {
            "event": "started",
            "status": "started",
            "trigger": "added",
            "old_plan": "",
            "new_plan": plan,
            "strategy": "",
            "start_batch": batch_id,
            "end_batch": batch_id,
            "at": None if self.start == BEGINNING else self.start,
            "inherited": {alias: max(0, batch) for alias, batch in self.inherited.items()},
            "shares": list(self.shares),
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Record:
        """What a manifest said."""
        known = (stored["since"], stored["start"], stored["whole_at"], stored["own"])
        return Record(*known, filling=stored.get("filling"))


def is_whole(start: int, lacks_rows: bool, whole_at: int | None) -> bool:
    """Whether the results of a query that answers from an instant on lack nothing."""
    return not lacks_rows or (whole_at is not None and whole_at <= start)


def complete(start: int, lacks_rows: bool, whole_at: int | None, domain: TimeDomain) -> dict[str, Any]:
    """What a query's history says of it: the instant, None if there is none, and the same in words.

    >>> from midstream.algebra.time import INTEGER_TIME
    >>> complete(40, True, 61, INTEGER_TIME)
    {'complete_from': 61, 'complete': 'results are complete from 61 on; until then windows lack rows that came before'}
    >>> complete(40, False, 61, INTEGER_TIME)["complete"], complete(40, True, None, INTEGER_TIME)["complete_from"]
    ('all results are complete', None)
    """
    if is_whole(start, lacks_rows, whole_at):
        return {"complete_from": None if start == BEGINNING else start, "complete": COMPLETE}
    if whole_at is None:
        text = "results lack the rows that came before: a window of the query has no end"
        return {"complete_from": None, "complete": text}
    text = f"results are complete from {instant(whole_at, domain)} on; until then windows lack rows that came before"
    return {"complete_from": whole_at, "complete": text}


def changes_from(whole_at: int, query: Relation) -> int:
    """From which instant on the results of a query are right whose snapshots are: changes one instant later."""
    return whole_at + isinstance(query, ToStream) if whole_at > BEGINNING else whole_at


def end_of(source: SourceNode, tick: int) -> int:
    """When a row of this tick, and all before it, have ended; its window has an end."""
    if isinstance(source.window, Hop):
        return boundary_after(last_boundary_reaching(tick, source.window), source.window)
    assert source.longest is not None
    return tick + source.longest


def whole_at(query: RunningQuery, before: Manifest | None, kept: Sequence[Record] = ()) -> int | None:
    """When everything that has come before the next batch has ended for a query; None: never.

    What windows lack that were all taken over, those lack for at least as long that had been `kept`.
    """
    if any(n.outlives_windows for f in query.staged.fragments for n in walk_physical(f.plan)):
        return None
    latest = {} if before is None else before.streams.latest
    ends = [BEGINNING]
    for source in query.sources_read:
        if source.longest is None:
            return None
        if source.stream.name in latest:
            ends.append(end_of(source, latest[source.stream.name]))
    known = [INFINITY if one.whole_at is None else one.whole_at for one in kept if one.lacks_rows]
    return min(max(ends), max(known, default=INFINITY))


def lacking_rows(
    before: Manifest | None, queries: Mapping[str, RunningQuery], changing: Collection[str]
) -> Iterator[RunningQuery]:
    """The queries that have begun and lack rows that came before; without those that are changing."""
    for name, query in queries.items():
        sharing = None if before is None or name in changing else before.account(name).sharing
        if sharing is not None and Record.from_json(sharing).lacks_rows:
            yield query


def tell_of_started(manifest: Manifest) -> None:
    """Logs from when on the results of queries that began with a manifest's batch are complete."""
    for name, account in manifest.accounts.items():
        for place, record in enumerate(account.history):
            if record.get("event") == "started" and record["start_batch"] == manifest.batch_id:
                _tell(name, record, account.history[place - 1] if place else {})


def _tell(name: str, record: Mapping[str, Any], earlier: Mapping[str, Any]) -> None:
    replaced = earlier.get("strategy") == "replace" and earlier["start_batch"] == record["start_batch"]
    begun = "was replaced" if replaced else "started"
    log.warning("query %s %s with batch %d: %s", name, begun, record["start_batch"], record["complete"] + record["gap"])
