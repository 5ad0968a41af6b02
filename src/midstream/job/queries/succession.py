"""How a query that takes another's place goes on from where that one ended.

The old query has given the results that start before an instant. Where rows permit, the new one answers from that
instant on, also for what has passed since: no instant is answered by both, and none by neither. Where they do not,
because they are kept no more or what it shares has worked through them, it runs beside the old one first, and goes no
further than that one has answered: once the old one has come to where the new one began, one is behind the other. Only
where nobody can wait for the old one it is told for which instants nothing comes.
"""

from __future__ import annotations

from collections.abc import Mapping

from midstream.algebra.physical import PhysicalNode, SourceNode
from midstream.algebra.plan import Relation, ToStream
from midstream.algebra.time import BEGINNING, INFINITY, LONGEST, TimeDomain, instant
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import query_of_copy, replaced_name
from midstream.distribution.fragments import Received
from midstream.job.queries.faults import QUARANTINED
from midstream.job.queries.running_query import RunningQuery


def answered_to(before: Manifest | None, name: str, otherwise: int) -> int:
    """Up to which instant the query has answered whose place a new one takes with the next batch, if it takes one."""
    return otherwise if before is None else before.released.get(replaced_name(name, before.batch_id + 1), otherwise)


def ended(before: Manifest, starts: Mapping[str, int]) -> frozenset[str]:
    """The queries that have answered up to where those start that take their places with the next batch."""
    places = ((replaced_name(name, before.batch_id + 1), start) for name, start in starts.items())
    return frozenset(name for name, start in places if start <= before.released.get(name, BEGINNING))


def reached_behind_old(before: Manifest | None, query: RunningQuery, reached: int) -> int:
    """How far a copy goes that could have reached an instant: if it is to take its query's place, no further than that
    has answered. With its first batch it begins like any other query, and with its last one it is free.
    """
    old = query_of_copy(query.name)
    if before is None or not {old, query.name} <= before.queries.keys():
        return reached
    known = before.account(old).verifying
    if known is None or "shadow" not in known or before.queries[old].status == QUARANTINED:
        return reached
    return min(reached, last_instant(before.released.get(old, BEGINNING), query.plan.query))


def can_wait(before: Manifest, old: str, new: RunningQuery) -> bool:
    """Whether a text can run beside a query, here under its name in a manifest, until that has answered enough.

    A query in quarantine answers no more.
    """
    return before.queries[old].status != QUARANTINED and hands_on(new)


def hands_on(query: RunningQuery) -> bool:
    """Whether a query that takes the place of a text beside which it ran can have all from it that it needs.

    It shares operators that remember. Nobody remembers rows that go through others alone; and windows of routed joins
    are not shared with what is new.
    """
    return query.share and not query.staged.windows and not _passes(query.staged.root.plan)


def _passes(node: PhysicalNode) -> bool:
    """Whether rows of some source come through a plan without being remembered."""
    if isinstance(node, Received):
        return _passes(node.producer)
    return not node.stateful and (isinstance(node, SourceNode) or any(map(_passes, node.inputs)))


def last_instant(until: int, query: Relation) -> int:
    """The instant that a query must know that is to answer from another on: one that tells changes, that before."""
    return until - (isinstance(query, ToStream) and BEGINNING < until < INFINITY)


def unanswered(ended: int, start: int, domain: TimeDomain) -> str:
    """What is said of instants for which nobody answers, where a query has ended and the one in its place starts."""
    first, last = BEGINNING + LONGEST, INFINITY - LONGEST  # beyond these no row has come
    if not max(ended, first) < start < last:
        return ""
    since = "" if ended <= first else f"from {instant(ended, domain)} on "
    return f"; neither text answers for instants {since}before {instant(start, domain)}"
