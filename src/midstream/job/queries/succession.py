"""How a query that takes another's place goes on from where that one ended.

The old query has given the results that start before an instant. Where rows permit, the new one answers from that
instant on, also for what has passed since: no instant is answered by both, and none by neither.
"""

from __future__ import annotations

from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import replaced_name


def answered_to(before: Manifest | None, name: str, otherwise: int) -> int:
    """Up to which instant the query has answered whose place a new one takes with the next batch, if it takes one."""
    return otherwise if before is None else before.released.get(replaced_name(name, before.batch_id + 1), otherwise)
