"""The record of deliveries: what the sinks of a checkpoint have had.

Results leave in the order of their starts, and are released up to an instant. So what a sink has had of a query are
exactly its results that start before one instant, and each delivery are those from there up to what is released since.
Numbers of batches say nothing of that: a checkpoint that was restored counts the same numbers again with other rows.

The record is one small file, written after sinks were called, by whichever cluster runs the job. A driver that was
unresponsive and is taken for dead may go on in the middle of writing, when another has delivered more. So each driver
writes a record of its own, named by the number of its lease, and the one with the highest number is the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.format import damaged, seal, unseal
from midstream.checkpoint.inspect import tick
from midstream.checkpoint.lists import results_of
from midstream.checkpoint.manifest import Manifest, Origin
from midstream.checkpoint.outputs import rows_between
from midstream.checkpoint.retention import kept_from
from midstream.codec import read, written
from midstream.errors import MidstreamError

FOLDER = "deliveries"
RECORD = f"{FOLDER}/record-"
"""What the names of records of deliveries begin with."""

KIND, FORMAT_VERSION = "deliveries", 1


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a sink has had of a query: all that starts from `since` to before `until`.

    `identity` is that of the query, `columns` the types of its columns by name. `batch_id` is of the last delivery,
    `filled_until` is the end of the last one that was a table with rows. What was released before
    `offered_until`, with batch `offered_batch`, may have reached a sink that was interrupted while it took it: if it is
    delivered later, then apart from what follows, as it would have been.
    """

    query: str
    sink: str
    identity: str
    since: int
    until: int
    columns: Mapping[str, str] = field(default_factory=dict)
    batch_id: int | None = None
    offered_until: int | None = None
    offered_batch: int | None = None
    filled_until: int | None = None


Key = tuple[str, str]
"""A query and a sink, by their names."""


@dataclass(slots=True)
class Ledger:
    """The deliveries of a checkpoint, and which checkpoint that is."""

    files: Files
    origin: Origin
    epoch: int = 0
    """The number of the lease under which it is written."""
    sinks: dict[Key, Delivered] = field(default_factory=dict)
    copied_from: Origin | None = None
    """Where a checkpoint was copied from that has not been opened since."""
    _saved: bytes = b""

    @staticmethod
    def open(files: Files, epoch: int = 0) -> Ledger:
        """The record of a checkpoint, or an empty one; a copy of a checkpoint gets an identity of its own."""
        known = Ledger.stored(files)
        if known is None:
            return Ledger(files, Origin.new(files), epoch)
        known.epoch = max(epoch, known.epoch)
        if known.origin.is_of(files):
            known.origin = known.origin.moved(files)
            return known
        known.copied_from = known.origin
        known.origin = known.origin.copied(files, _is_beside(known.origin, files))
        return known

    @staticmethod
    def stored(files: Files) -> Ledger | None:
        """The record as it is stored."""
        while (newest := max(_numbers(files), default=None)) is not None:
            name = files.full(_path(newest))
            try:
                content = unseal(KIND, FORMAT_VERSION, files.read(_path(newest)), name)
            except MissingFile:
                if max(_numbers(files), default=None) == newest:
                    raise
                continue  # a newer one has taken its place meanwhile
            return Ledger._of(files, newest, content, name)
        return None

    @staticmethod
    def _of(files: Files, epoch: int, content: Mapping[str, Any], name: str) -> Ledger:
        try:
            records = [read(Delivered, record) for record in content["sinks"]]
            origin = read(Origin, content["origin"])
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(name, f"{type(error).__name__}: {error}") from error
        return Ledger(files, origin, epoch, {(one.query, one.sink): one for one in records})

    def put(self, delivered: Delivered) -> None:
        """Remembers what a sink has had."""
        self.sinks[delivered.query, delivered.sink] = delivered

    def save(self) -> None:
        """Writes the record, if it has changed."""
        records = [written(record) for _, record in sorted(self.sinks.items())]
        sealed = seal(KIND, FORMAT_VERSION, {"origin": written(self.origin), "sinks": records})
        if sealed != self._saved:
            self.files.write_atomic(_path(self.epoch), sealed, point="deliveries")
            if not self._saved:
                for older in (number for number in _numbers(self.files) if number < self.epoch):
                    self.files.delete(_path(older))
            self._saved = sealed


def _path(epoch: int) -> str:
    return f"{RECORD}{epoch:012d}"


def _numbers(files: Files) -> list[int]:
    names = (path.removeprefix(RECORD) for path in files.list(FOLDER) if path.startswith(RECORD))
    return [int(name) for name in names if name.isdecimal()]


def _is_beside(origin: Origin, files: Files) -> bool:
    """Whether the checkpoint that an origin was made for is still there, at another place than these files."""
    if origin.place == files.uri:
        return False
    try:
        there = files_at(origin.place)
        known = Ledger.stored(there)
        return known is not None and known.origin.identity == origin.identity and known.origin.is_of(there)
    except (MidstreamError, OSError):  # what cannot be looked at may be gone
        return False


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
