"""From which instant on the results of a query that came while the job ran are complete.

A new query, and one that took another's place, sees the rows since it began, and those of windows that others had kept
for it. A result is complete if all rows that its windows hold came since: from the instant on at which the last row
that came before has left every window.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from midstream.algebra.quantities import instant
from midstream.algebra.time import BEGINNING, TimeDomain
from midstream.checkpoint.manifest import Manifest

log = logging.getLogger(__name__)


def complete(start: int, lacks_rows: bool, whole_at: int | None, domain: TimeDomain) -> dict[str, Any]:
    """What a query's history says of it: the instant, None if there is none, and the same in words.

    >>> from midstream.algebra.time import INTEGER_TIME
    >>> complete(40, True, 61, INTEGER_TIME)
    {'complete_from': 61, 'complete': 'results are complete from 61 on; until then windows lack rows that came before'}
    >>> complete(40, False, 61, INTEGER_TIME)["complete"], complete(40, True, None, INTEGER_TIME)["complete_from"]
    ('all results are complete', None)
    """
    if not lacks_rows or (whole_at is not None and whole_at <= start):
        return {"complete_from": None if start == BEGINNING else start, "complete": "all results are complete"}
    if whole_at is None:
        text = "results lack the rows that came before: a window of the query has no end"
        return {"complete_from": None, "complete": text}
    text = f"results are complete from {instant(whole_at, domain)} on; until then windows lack rows that came before"
    return {"complete_from": whole_at, "complete": text}


def tell_of_started(manifest: Manifest) -> None:
    """Logs from when on the results of queries that began with a manifest's batch are complete."""
    for name, account in manifest.accounts.items():
        for place, record in enumerate(account.history):
            if record.get("event") == "started" and record["start_batch"] == manifest.batch_id:
                _tell(name, record, account.history[place - 1] if place else {})


def _tell(name: str, record: Mapping[str, Any], earlier: Mapping[str, Any]) -> None:
    replaced = earlier.get("strategy") == "replace" and earlier["start_batch"] == record["start_batch"]
    begun = "was replaced" if replaced else "started"
    log.warning("query %s %s with batch %d: %s", name, begun, record["start_batch"], record["complete"])
