"""A manifest: all that batch n leaves to batch n+1, in one file. It is the state of a job, written down.

Which data files count, how far each stream and query is, which plans run and where rows go. Whoever holds a manifest
and its files can go on from there; a step is a function of it and the batch's rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.algebra.time import TimeDomain
from midstream.checkpoint.file_entries import FileLog, Superseded
from midstream.checkpoint.files import Files
from midstream.checkpoint.format import (
    EntryReader,
    Ready,
    Writer,
    damaged,
    lasting,
    list_text,
    object_text,
    seal,
    unseal,
)
from midstream.checkpoint.names import query_of
from midstream.checkpoint.packs import SegmentEntry, Stored, entries_in
from midstream.checkpoint.process import this_process
from midstream.checkpoint.records import Asked, DoubledMove, Outputs, QueryAccount, Settings, Slots, Streams
from midstream.codec import read, written

FORMAT_VERSION = 1
"""The format that this version of Midstream writes."""

KIND = "manifest"

BY_QUERY = ("queries", "accounts", "advanced_to", "released", "segments")
"""What a manifest has by query."""

REPLACED = "replaced"
"""The status of a query of which only the results are left."""

Segments = Mapping[str, Stored]
"""Segments by query, stage and slot."""


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """A registered query: its text, the plan that runs, and what its results depend on besides.

    `time` is what its ticks are: `integer` or `timestamp`.
    """

    cql: str
    plan: str
    emit_every: int | None = None
    functions: str = ""
    status: str = "running"
    time: str = "integer"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch left behind.

    `query_id` and `offsets` say whose batch it was and up to where it read; `epoch` is the number of the lease it was
    made under. `accounts`, `advanced_to`, `released` and `segments` are by query.
    """

    query_id: str
    batch_id: int
    offsets: str = ""
    epoch: int = 0
    settings: Settings = field(default_factory=Settings)
    streams: Streams = field(default_factory=Streams)
    slots: Slots = field(default_factory=Slots)
    queries: Mapping[str, QueryEntry] = field(default_factory=dict)
    accounts: Mapping[str, QueryAccount] = field(default_factory=dict)
    advanced_to: Mapping[str, int] = field(default_factory=dict)
    released: Mapping[str, int] = field(default_factory=dict)
    segments: Segments = field(default_factory=dict)
    outputs: Outputs = field(default_factory=Outputs)
    asked: Asked = field(default_factory=Asked)

    def fills(self, query: str) -> bool:
        """Whether the windows of a query are being filled."""
        sharing = self.account(query).sharing
        return sharing is not None and sharing.filling is not None and bool(sharing.filling.windows)

    def is_replaced(self, query: str) -> bool:
        """Whether only the results of a query are left."""
        return query in self.queries and self.queries[query].status == REPLACED

    def account(self, query: str) -> QueryAccount:
        """What is remembered of a query."""
        return self.accounts.get(query) or QueryAccount()

    def domain(self, query: str) -> TimeDomain:
        """How the instants of a query are read."""
        entry = self.queries.get(query)
        return TimeDomain.of_word("integer" if entry is None else entry.time)

    def with_account(self, query: str, **changes: Any) -> Manifest:
        """The manifest that remembers other things of a query."""
        return replace(self, accounts={**self.accounts, query: replace(self.account(query), **changes)})

    def with_outputs(self, **changes: Any) -> Manifest:
        """The manifest that names other files of results, dead letters or metrics."""
        return replace(self, outputs=replace(self.outputs, **changes))

    def with_doubled(self, move: DoubledMove | None) -> Manifest:
        """The manifest that says something else of the move of groups to two slots."""
        return replace(self, slots=replace(self.slots, doubled=move))

    def with_streams(self, **changes: Any) -> Manifest:
        """The manifest that says something else of streams."""
        return replace(self, streams=replace(self.streams, **changes))

    def _by_query(self) -> dict[str, Mapping[str, Any]]:
        """All that it has by the names of queries or of their lanes."""
        moving = {} if self.slots.doubled is None else self.slots.doubled.queries
        return {part: getattr(self, part) for part in BY_QUERY} | {"results": self.outputs.results, "moving": moving}

    def _with_by_query(self, parts: Mapping[str, Any]) -> Manifest:
        made = replace(self, **{part: parts[part] for part in BY_QUERY}).with_outputs(results=parts["results"])
        move = self.slots.doubled
        return made if move is None else made.with_doubled(replace(move, queries=parts["moving"]))

    def mapped(self, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Manifest:
        """The manifest with all that it has by query changed in the same way."""
        return self._with_by_query({part: change(known) for part, known in self._by_query().items()})

    def without(self, queries: Collection[str]) -> Manifest:
        """The manifest without some queries."""
        return self.mapped(lambda known: {name: own for name, own in known.items() if query_of(name) not in queries})

    def with_queries_of(self, other: Manifest, queries: Collection[str]) -> Manifest:
        """The manifest with all that another one has of some queries."""
        theirs = other.mapped(lambda known: {name: own for name, own in known.items() if query_of(name) in queries})
        both = theirs._by_query()
        return self._with_by_query({part: {**known, **both[part]} for part, known in self._by_query().items()})

    def entries(self) -> Iterator[SegmentEntry]:
        """All segments of all queries."""
        return (entry for stored in self.segments.values() for entry in entries_in(stored))

    def lanes(self, query: str) -> list[Stored]:
        """The segments of all lanes of a query."""
        return [stored for name, stored in self.segments.items() if query_of(name) == query]

    def slot(self, query: str, stage: int, slot: int) -> Sequence[SegmentEntry]:
        """The segments of one slot."""
        return self.segments.get(query, {}).get(stage, {}).get(slot, ())

    def lists(self) -> set[str]:
        """All lists of older files."""
        return self._lists() | {file.path for file in self.outputs.superseded if file.is_list}

    def _lists(self) -> set[str]:
        """Those of files that are named nowhere else; the others are of files that were merged."""
        outputs, read = self.outputs, self.streams.files
        logs: Iterable[FileLog[Any]] = (*outputs.results.values(), outputs.dead_letters, *read.values())
        return {one.path for log in logs for one in log.lists}

    def files(self) -> set[str]:
        """All files it names itself; lists name more."""
        named = {entry.file for entry in self.entries()}
        logs: Iterable[FileLog[Any]] = (*self.outputs.results.values(), self.outputs.dead_letters)
        named.update(file.path for log in logs for file in log.newer)
        named.update(self._lists())
        named.update(file.path for file in self.outputs.metrics)
        named.update(file.path for file in self.outputs.superseded)
        return named

    def to_bytes(self, version: int = FORMAT_VERSION) -> bytes:
        """The manifest as a file's content."""
        return seal(KIND, version, _content(self))

    @staticmethod
    def from_bytes(content: bytes, name: str = "the manifest") -> Manifest:
        """The manifest in a file's content, checked; `name` is what errors call the file."""
        try:
            return _manifest(unseal(KIND, FORMAT_VERSION, content, name))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise damaged(name, f"{type(error).__name__}: {error}") from error


def _content(manifest: Manifest) -> dict[str, Any]:
    writer = Writer()
    return {
        **written(replace(manifest, segments={}, outputs=Outputs(), slots=Slots(), settings=Settings())),
        "settings": lasting(manifest.settings, written),
        "slots": _slots(manifest.slots),
        "outputs": _outputs(manifest.outputs),
        "segments": _object(
            {
                query: _object({stage: _by_slot(slots, writer) for stage, slots in sorted(stages.items())})
                for query, stages in sorted(manifest.segments.items())
            }
        ),
        **writer.texts(),
    }


def _slots(slots: Slots) -> Ready:
    found = written(replace(slots, routing=()))
    if slots.routing:
        found["routing"] = lasting(slots.routing)
    return Ready(object_text(found))


def _outputs(outputs: Outputs) -> Ready:
    found = written(replace(outputs, recent=(), superseded=()))
    if outputs.superseded:
        found["superseded"] = lasting(outputs.superseded, lambda files: written(files, Sequence[Superseded]))
    if outputs.recent:
        found["recent"] = Ready(list_text(outputs.recent))
    return Ready(object_text(found))


def _by_slot(slots: Mapping[int, Sequence[SegmentEntry]], writer: Writer) -> Ready:
    # In order, because texts are numbered as they come and equal manifests are to be equal bytes.
    return _object({slot: writer.once(entries) for slot, entries in sorted(slots.items())})


def _object(content: Mapping[Any, Ready]) -> Ready:
    return Ready(object_text({str(name): value for name, value in content.items()}))


def _manifest(parsed: dict[str, Any]) -> Manifest:
    reader = EntryReader(parsed)
    segments = {
        query: {
            int(stage): {int(slot): reader.once(found) for slot, found in _in_order(slots)}
            for stage, slots in _in_order(stages)
        }
        for query, stages in sorted(parsed["segments"].items())
    }
    known = read(Manifest, {name: parsed[name] for name in parsed if name not in ("segments", "states", "files")})
    return replace(known, segments=segments)


def _in_order(numbered: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(numbered.items(), key=lambda item: int(item[0]))


MARK = "deliveries/mark"
"""The file by which a checkpoint is told from its copies."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The identity of a checkpoint, the history that it continues, where it was last, and what its mark was like."""

    identity: str
    history: str
    place: str
    mark: str | None = None

    @staticmethod
    def new(files: Files) -> Origin:
        """The origin of a checkpoint that continues nothing."""
        identity = this_process().token(6)
        return Origin(identity, identity, files.uri, _marked(files))

    def is_of(self, files: Files) -> bool:
        """Whether the files are those that the origin was made for, wherever they were moved."""
        mark = files.fingerprint(MARK)
        return mark == self.mark and (mark is not None or self.place == files.uri)

    def moved(self, files: Files) -> Origin:
        """The same origin, at the place where the files are now."""
        return self if self.place == files.uri else replace(self, place=files.uri)

    def copied(self, files: Files, beside: bool) -> Origin:
        """The origin of files that are a copy of those that this one was made for; `beside` them or in their place."""
        new = Origin.new(files)
        return new if beside else replace(new, history=self.history)


def _marked(files: Files) -> str | None:
    files.write_atomic(MARK, this_process().token(6).encode(), point="deliveries")
    return files.fingerprint(MARK)


def identified(manifest: Manifest) -> Manifest:
    """A batch's manifest in which each query that is new is told from all others."""
    for name, entry in manifest.queries.items():
        if manifest.account(name).identity is None:
            manifest = manifest.with_account(name, identity=_new(entry, manifest.batch_id))
    return manifest


def name_of_identity(manifest: Manifest, identity: str) -> str | None:
    """The name under which a manifest has the query of an identity."""
    return next((name for name, account in manifest.accounts.items() if account.identity == identity), None)


def _new(entry: QueryEntry, batch_id: int) -> str:
    content = f"{entry.cql}\0{entry.emit_every}\0{batch_id}"
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def source_batch(manifest: Manifest | None) -> int:
    """The batch of the source whose rows were taken in last; -1 if there was none."""
    if manifest is None:
        return -1
    number = manifest.streams.source_batch
    return manifest.batch_id if number is None else number


def own_batches(manifest: Manifest | None) -> int:
    """How many batches of our own came after that of the source."""
    return 0 if manifest is None else manifest.streams.own_batches


def counted(before: Manifest | None, number: int) -> dict[str, int]:
    """What the manifest after another says of batches, if it takes in a batch of the source, or is one of our own."""
    return {"source_batch": number, "own_batches": own_batches(before) + 1 if number == source_batch(before) else 0}


def of_our_own(before: Manifest, content: Manifest) -> Manifest:
    """A manifest of our own that comes after another, with some content."""
    numbered = content.with_streams(**counted(before, source_batch(before)))
    return replace(numbered, batch_id=before.batch_id + 1, offsets=before.offsets)
