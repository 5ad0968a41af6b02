"""How a query that takes another's place goes on from where that one ended.

The old query has given the results that start before an instant. Where rows permit, the new one answers from that
instant on, also for what has passed since: no instant is answered by both, and none by neither. Where they do not,
because they are kept no more or what it shares has worked through them, it is told for which instants nothing comes.
"""

from __future__ import annotations

from midstream.algebra.time import BEGINNING, INFINITY, LONGEST, TimeDomain, instant
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import replaced_name


def answered_to(before: Manifest | None, name: str, otherwise: int) -> int:
    """Up to which instant the query has answered whose place a new one takes with the next batch, if it takes one."""
    return otherwise if before is None else before.released.get(replaced_name(name, before.batch_id + 1), otherwise)


def unanswered(ended: int, start: int, domain: TimeDomain) -> str:
    """What is said of instants for which nobody answers, where a query has ended and the one in its place starts."""
    first, last = BEGINNING + LONGEST, INFINITY - LONGEST  # beyond these no row has come
    if not max(ended, first) < start < last:
        return ""
    since = "" if ended <= first else f"from {instant(ended, domain)} on "
    return f"; neither text answers for instants {since}before {instant(start, domain)}"
