"""What sinks are owed: the results that are released and that the record of deliveries does not have."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.files import Files
from midstream.checkpoint.inspect import tick
from midstream.checkpoint.ledger import Delivered, Ledger
from midstream.checkpoint.lists import results_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.released_results import rows_between
from midstream.checkpoint.retention import kept_from


@dataclass(frozen=True, slots=True)
class StoredSink:
    """A sink of a query: it has had the results that start before `until`, and of later ones it is owed some."""

    name: str
    until: int | None
    owed: int


def sinks_by_query(files: Files, manifest: Manifest) -> dict[str, tuple[StoredSink, ...]]:
    """The sinks that the record of deliveries knows, by the name of their query."""
    known = Ledger.stored(files)
    found: dict[str, tuple[StoredSink, ...]] = {}
    for (query, name), record in sorted(known.sinks.items()) if known is not None else ():
        # A sink that has had nothing yet does not know the identity of its query.
        if record.identity in ("", manifest.account(query).identity):
            sink = StoredSink(name, tick(record.until), _owed(files, manifest, record))
            found[query] = (*found.get(query, ()), sink)
    return found


def _owed(files: Files, manifest: Manifest, record: Delivered) -> int:
    since = max(record.until, kept_from(manifest, record.query))
    until = manifest.released.get(record.query, BEGINNING)
    later = (file for file in results_of(files, manifest, record.query) if file.last_from >= since)
    return rows_between(files, later, since, until)
