"""How many rows there are between two entries of Spark's offset log, where the sources' own counts say so.

Kafka counts rows by topic and partition; the `rate` source counts seconds, and its rows a second are known to the
process that opened it. Files have sizes instead, which Spark's plan states.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def rows_between(earlier: str, later: str, rates: Mapping[str, int]) -> int | None:
    """The rows of a batch without those of files; None if a source does not say how many.

    `rates` are the rows a second of `rate` sources, by the source's name, or its place where sources have no names.

    >>> rows_between('v1\\n{}\\n{"t":{"0":5}}\\n3', 'v1\\n{}\\n{"t":{"0":9}}\\n5', {"1": 10})
    24
    """
    before, found = offsets_of(earlier), 0
    for source, offset in offsets_of(later).items():
        rows = _rows(before.get(source), offset, rates.get(source))
        if rows is None:
            return None
        found += rows
    return found


def offsets_of(entry: str) -> dict[str, Any]:
    """The offsets of an entry, by the sources' names or places; None for one that is no JSON."""
    version, _, *offsets = entry.splitlines() or ["", ""]
    found: dict[str, Any] = {}
    for place, line in enumerate(offsets):
        name, offset = line.split(":", 1) if version == "v2" and ":" in line else (str(place), line)
        try:
            found[name] = json.loads(offset)
        except ValueError:
            found[name] = None
    return found


def _rows(earlier: Any, later: Any, rate: int | None) -> int | None:
    if isinstance(later, dict) and "logOffset" in later:
        return 0
    if isinstance(later, int) and rate is not None:
        return max(0, later - (earlier if isinstance(earlier, int) else 0)) * rate
    counted = _by_partition(later), _by_partition(earlier)
    if counted[0] is None or counted[1] is None or not counted[0].keys() <= counted[1].keys():
        return None
    return sum(max(0, counted[0][place] - counted[1][place]) for place in counted[0])


def _by_partition(offset: Any) -> dict[tuple[str, str], int] | None:
    """Kafka's offsets, by topic and partition."""
    if not isinstance(offset, dict) or not all(isinstance(parts, dict) for parts in offset.values()):
        return None
    found = {(topic, str(part)): count for topic, parts in offset.items() for part, count in parts.items()}
    return found if all(isinstance(count, int) for count in found.values()) else None
