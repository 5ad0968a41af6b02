"""What a job's owner should know of its streams: rows that came too late, and streams that queries wait for.

A query releases nothing beyond the least register of its streams. A stream that has no rows while others do, a table
that never changes for instance, holds back every query that reads it, unless it says on demand how far it is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.names import is_rehearsal
from midstream.job.queries.running_query import RunningQuery

FIRST_WARNING = 3
"""After how many batches a silent stream that others wait for is first warned of; again after ten times as many."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A query that waits for a stream, which is `behind` the query's other streams by so many ticks.

    None: it has had no rows at all. `batches` is for how many batches with rows of others it has had none.
    """

    query: str
    stream: str
    behind: int | None
    batches: int

    def to_json(self) -> dict[str, object]:
        """What manifests and `status` tell."""
        return {"stream": self.stream, "behind": self.behind, "batches": self.batches}


def silences(before: Mapping[str, int], streams: Iterable[str], rows: Mapping[str, int]) -> dict[str, int]:
    """For how many batches each stream has had no rows while others had.

    >>> silences({"A": 2}, ["A", "B"], {"B": 7})
    {'A': 3}
    """
    if not any(rows.values()):
        return dict(before)
    return {name: before.get(name, 0) + 1 for name in streams if not rows.get(name)}


def unexpected(found: Iterable[Wait], streams: Iterable[StreamDeclaration]) -> list[Wait]:
    """The waits for streams that are silent and do not say how far they are: nobody has declared that these may be."""
    willing = {declaration.name for declaration in streams if declaration.on_demand}
    return [wait for wait in found if wait.batches and wait.stream not in willing]


def waits(reads: Mapping[str, Collection[str]], registers: Mapping[str, int], silent: Mapping[str, int]) -> list[Wait]:
    """The queries that one of their streams holds back, from the streams that each reads."""
    found = []
    for query, streams in reads.items():
        known = sorted((registers.get(name, BEGINNING), name) for name in set(streams))
        if len(known) > 1 and known[0][0] < known[1][0]:
            (least, name), newest = known[0], known[-1][0]
            found.append(Wait(query, name, None if least == BEGINNING else newest - least, silent.get(name, 0)))
    return found


def reads_of(queries: Mapping[str, RunningQuery]) -> dict[str, set[str]]:
    """The streams that each query reads; a copy by which a migration is verified waits as its query does."""
    own = {name: query for name, query in queries.items() if not is_rehearsal(name)}
    return {name: {source.stream.name for source in query.sources} for name, query in own.items()}


def wait_text(wait: Wait, declaration: StreamDeclaration) -> str:
    """A wait in words, with what to do if there is something: a skew helps where a stream is silent and has none."""
    behind = "has had no rows" if wait.behind is None else f"is {span(wait.behind, declaration)} behind the others"
    batches = f"{wait.batches} {'batch' if wait.batches == 1 else 'batches'}"
    silent = f" and was silent for {batches}" if wait.batches and wait.behind is not None else ""
    said = f"query {wait.query} waits for stream {wait.stream}, which {behind}{silent}"
    if declaration.on_demand or not wait.batches:
        return said
    return f"{said}: declare a skew for it, so that it does not hold others back while it is silent"


def is_worth_a_warning(batches: int) -> bool:
    """Whether a wait has just become so long.

    >>> [n for n in range(1, 400) if is_worth_a_warning(n)]
    [3, 30, 300]
    """
    while batches > FIRST_WARNING and batches % 10 == 0:
        batches //= 10
    return batches == FIRST_WARNING


def late_text(declaration: StreamDeclaration, late: int, rows: int, by: int | None) -> str:
    """In words that rows of a batch came too late; `by` is how far they were behind what the stream had promised."""
    allowed = span(declaration.lateness, declaration)
    needed = "" if by is None else f"; a lateness of {span(declaration.lateness + by, declaration)} would have done"
    return (
        f"{late:,} of {rows:,} rows of stream {declaration.name} came too late for its lateness of {allowed} and are "
        f"dead letters{needed}. Files are read in the order of their modification, not of their names"
    )


def span(ticks: int, declaration: StreamDeclaration) -> str:
    """A length of time in a stream's own terms."""
    if declaration.domain.is_integer:
        return f"{ticks:,}"
    try:
        return str(dt.timedelta(microseconds=ticks))
    except OverflowError:
        return f"{ticks:,} microseconds"
