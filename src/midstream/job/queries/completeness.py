"""From which instant on the results of a query that came while the job ran are complete.

A new query, and one that took another's place, sees the rows since it began, and those of windows that others had kept
for it. A result is complete if all rows that its windows hold came since: from the instant on at which the last row
that came before has left every window.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from midstream.algebra.physical import AssignWindow, SourceNode, walk_physical
from midstream.algebra.plan import Relation, ToStream
from midstream.algebra.time import BEGINNING, INFINITY, instant
from midstream.algebra.windows import Hop
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import is_rehearsal, query_of_copy
from midstream.checkpoint.query_windows import SharingRecord
from midstream.checkpoint.records import happened
from midstream.job.queries.running_query import RunningQuery
from midstream.operators.hops import boundary_after, last_boundary_reaching
from midstream.optimizer.plans import Plan

log = logging.getLogger(__name__)


COMPLETE = "all results are complete"
"""What is said of a query that lacks nothing."""


def complete(record: SharingRecord, query: Relation) -> dict[str, Any]:
    """From which instant on a query's results are complete, None if there is none, and the same in words.

    Changes are, once the instant before was.
    """
    whole_at = None if record.whole_at is None else changes_from(record.whole_at, query)
    if replace(record, whole_at=whole_at).whole_from_start:
        return {"complete_from": None if record.start == BEGINNING else record.start, "complete": COMPLETE}
    if whole_at is None:
        text = "results lack the rows that came before: a window of the query has no end"
        return {"complete_from": None, "complete": text}
    since = instant(whole_at, query.domain)
    text = f"results are complete from {since} on; until then windows lack rows that came before"
    return {"complete_from": whole_at, "complete": text}


def started(record: SharingRecord, batch_id: int, plan: Plan) -> dict[str, Any]:
    """What a query's history says of its beginning with a batch."""
    return {
        **happened("started", batch_id, "added"),
        "new_plan": plan.text,
        "at": None if record.start == BEGINNING else record.start,
        "inherited": {alias: max(0, batch) for alias, batch in record.inherited.items()},
        "shares": list(record.shares),
        **complete(record, plan.query),
    }


def changes_from(whole_at: int, query: Relation) -> int:
    """From which instant on the results of a query are right whose snapshots are: changes one instant later."""
    return whole_at + isinstance(query, ToStream) if whole_at > BEGINNING else whole_at


def end_of(source: SourceNode, tick: int) -> int:
    """When a row of this tick, and all before it, have ended; its window has an end."""
    if isinstance(source.window, Hop):
        return boundary_after(last_boundary_reaching(tick, source.window), source.window)
    assert source.longest is not None
    return tick + source.longest


def whole_at(query: RunningQuery, before: Manifest | None, kept: Sequence[SharingRecord] = ()) -> int | None:
    """When everything that has come before the next batch has ended for a query; None: never.

    What windows lack that were all taken over, those lack for at least as long that had been `kept`.
    """
    if (longer := _longer(query)) is None:
        return None
    latest = {} if before is None else before.streams.latest
    ends = [BEGINNING]
    if longer and before is not None:  # what sub-queries gave before the query's frontier is not known either
        ends.append(query.reached(before.streams.registers))
    for source in query.sources_read:
        if source.longest is None:
            return None
        if source.stream.name in latest:
            ends.append(end_of(source, latest[source.stream.name]))
    known = [INFINITY if one.whole_at is None else one.whole_at for one in kept if one.lacks_rows]
    end = max(ends)
    return min(end + longer if BEGINNING < end < INFINITY - longer else end, max(known, default=INFINITY))


def _longer(query: RunningQuery) -> int | None:
    """For how long windows over sub-queries remember what these give, at most; None: something remembers for longer."""
    nodes = [node for fragment in query.staged.fragments for node in walk_physical(fragment.plan)]
    lengths = [n.longest if isinstance(n, AssignWindow) else None for n in nodes if n.outlives_windows]
    known = [length for length in lengths if length is not None]
    return sum(known) if len(known) == len(lengths) else None


def lacking_rows(
    before: Manifest | None, queries: Iterable[RunningQuery], changing: Collection[str]
) -> list[RunningQuery]:
    """Those of some queries that have begun and lack rows that came before; without those that are changing."""
    known = {} if before is None else before.accounts
    began = [query for query in queries if query.name in known and query.name not in changing]
    return [query for query in began if (sharing := known[query.name].sharing) is not None and sharing.lacks_rows]


def tell_of_started(manifest: Manifest) -> None:
    """Logs from when on the results of queries that began with a manifest's batch are complete."""
    for name, account in manifest.accounts.items():
        for place, record in enumerate(account.history):
            if record.get("event") == "started" and record["start_batch"] == manifest.batch_id:
                _tell(name, record, account.history[place - 1] if place else {})


def _tell(name: str, record: Mapping[str, Any], earlier: Mapping[str, Any]) -> None:
    replaced = earlier.get("strategy") == "replace" and earlier["start_batch"] == record["start_batch"]
    begun = "was replaced" if replaced else "started"
    if is_rehearsal(name):
        name, begun = query_of_copy(name), "began to run by another text, too,"
    log.warning("query %s %s with batch %d: %s", name, begun, record["start_batch"], record["complete"] + record["gap"])
