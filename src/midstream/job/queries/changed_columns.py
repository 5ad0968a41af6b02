"""Columns that a stream no longer has, or has with another type, and the queries that read them.

Rows that are kept have the old columns. A query that reads one of them cannot go on; where none does, nothing that the
checkpoint holds depends on it, and a job goes on if its user says so. New columns are null in rows from before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.manifest import Manifest
from midstream.errors import JobError
from midstream.job.queries.declared import Readers


@dataclass(frozen=True, slots=True)
class ChangedColumn:
    """A column of a stream: its type in the checkpoint and now, if it is there now; and the queries that read it."""

    stream: str
    name: str
    before: str
    now: str | None
    readers: tuple[str, ...]

    def __str__(self) -> str:
        what = "is gone" if self.now is None else f"is {self.now} instead of {self.before}"
        return f"column {self.name} of stream {self.stream} {what}; {' and '.join(self.readers) or 'no query'} reads it"


def changed_columns(
    manifest: Manifest | None, streams: Iterable[StreamDeclaration], readers: Readers
) -> list[ChangedColumn]:
    """The columns that streams have no more, or with other types than the checkpoint was made with."""
    known = {} if manifest is None else manifest.settings.declared
    found = []
    for stream in streams:
        now = {field.name: str(field.type) for field in stream.columns}
        for name, kind in known.get(stream.name, {}).get("all", {}).items():
            if now.get(name) != kind:
                reading = tuple(readers(stream, name)) if name in now else ()
                found.append(ChangedColumn(stream.name, name, kind, now.get(name), reading))
    return found


def require_accepted(changes: Iterable[ChangedColumn], accepted: bool) -> None:
    """Refuses changed columns that a query reads, and any that were not accepted; all of them are listed."""
    found = list(changes)
    if any(change.readers for change in found) or (found and not accepted):
        needed = any(change.readers for change in found)
        raise JobError(
            "streams have other columns than the checkpoint was made with",
            detail="; ".join(map(str, found)),
            hint="declare the columns that queries read as they were, or under other names; or replace these queries"
            if needed
            else "run with --accept to go on without them",
        )
