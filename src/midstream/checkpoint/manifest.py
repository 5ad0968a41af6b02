"""A manifest: all that batch n leaves to batch n+1, in one file.

Which data files count, how far each stream and query is, which plans run and where rows go. Whoever holds a manifest
and its files can go on from there; a step is a function of it and the batch's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from typing import Any

from midstream.checkpoint.entries_format import Reader, Writer
from midstream.checkpoint.envelope import Upgrades, damaged, seal, unseal
from midstream.checkpoint.names import LISTS
from midstream.checkpoint.packs import SegmentEntry

FORMAT_VERSION = 4
"""The format that this version of Midstream writes."""

UPGRADES: Upgrades = {
    1: lambda content: {**content, "metrics": [], "recent": [], "superseded": []},
    2: lambda content: content,  # no file of results was shared
    3: lambda content: {**content, "sources": {}, "listed_sources": {}},  # and results had no checksums
}
"""How older formats become newer ones."""

KIND = "manifest"

Segments = Mapping[str, Mapping[int, Mapping[int, Sequence[SegmentEntry]]]]
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
class ResultFile:
    """A file of results: they start at `first_from` at the earliest and at `last_from` at the latest.

    Several queries can share a file; `part` is then the name by which it tells the rows of one from those of others.
    `checksum` is that of the whole file; entries of older formats have none.
    """

    path: str
    rows: int
    first_from: int
    last_from: int
    batch_id: int
    part: str = ""
    checksum: int | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterFile:
    """A file of rows that could not be used, with the reasons; entries of older formats have no checksum."""

    path: str
    rows: int
    batch_id: int
    checksum: int | None = None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a folder that is read as a stream: its path, its size and when it was last written, in nanoseconds."""

    path: str
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class ListFile:
    """A file that lists older result, dead-letter or source files, so that manifests stay short."""

    path: str
    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """A file of the metrics table: a row for each of some batches."""

    path: str
    rows: int
    first_batch: int
    last_batch: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """A file whose content lies in a larger one by now, or a list of such; kept for readers that began before."""

    path: str
    since: float

    @property
    def is_list(self) -> bool:
        """Whether it names others."""
        return self.path.startswith(f"{LISTS}/")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch left behind.

    `epoch` is the number of the lease it was made under.
    `registers` and `latest` are by stream; `advanced_to`, `released`, `results`, `segments` and `migration` by query.
    `listed` are the lists of older result files by query, `listed_dead_letters` those of older dead letters. `recent`
    are the newest rows of the metrics table, `metrics` the files with the others. `sources` are the files read of
    each folder that is a stream, `listed_sources` the lists of older ones; Spark keeps account of its own sources.
    """

    query_id: str
    batch_id: int
    offsets: str = ""
    epoch: int = 0
    queries: Mapping[str, QueryEntry] = field(default_factory=dict)
    registers: Mapping[str, int] = field(default_factory=dict)
    latest: Mapping[str, int] = field(default_factory=dict)
    advanced_to: Mapping[str, int] = field(default_factory=dict)
    routing: Sequence[int] = ()
    segments: Segments = field(default_factory=dict)
    results: Mapping[str, Sequence[ResultFile]] = field(default_factory=dict)
    released: Mapping[str, int] = field(default_factory=dict)
    dead_letters: Sequence[DeadLetterFile] = ()
    migration: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION
    listed: Mapping[str, Sequence[ListFile]] = field(default_factory=dict)
    listed_dead_letters: Sequence[ListFile] = ()
    metrics: Sequence[MetricsFile] = ()
    recent: Sequence[Mapping[str, Any]] = ()
    superseded: Sequence[Superseded] = ()
    sources: Mapping[str, Sequence[SourceFile]] = field(default_factory=dict)
    listed_sources: Mapping[str, Sequence[ListFile]] = field(default_factory=dict)

    def entries(self) -> Iterator[SegmentEntry]:
        """All segments of all queries."""
        for stages in self.segments.values():
            for slots in stages.values():
                for entries in slots.values():
                    yield from entries

    def slot(self, query: str, stage: int, slot: int) -> Sequence[SegmentEntry]:
        """The segments of one slot."""
        return self.segments.get(query, {}).get(stage, {}).get(slot, ())

    def lists(self) -> Iterator[ListFile]:
        """All lists of older files."""
        for lists in (*self.listed.values(), *self.listed_sources.values()):
            yield from lists
        yield from self.listed_dead_letters
        yield from (ListFile(file.path, 0, 0) for file in self.superseded if file.is_list)

    def files(self) -> set[str]:
        """All files it names itself; lists name more."""
        named = {entry.file for entry in self.entries()}
        for results in self.results.values():
            named.update(file.path for file in results)
        named.update(file.path for file in self.dead_letters)
        named.update(file.path for file in self.lists())
        named.update(file.path for file in self.metrics)
        named.update(file.path for file in self.superseded)
        return named

    def to_bytes(self) -> bytes:
        """The manifest as a file's content."""
        return seal(KIND, self.format_version, _content(self))

    @staticmethod
    def from_bytes(content: bytes, name: str = "the manifest") -> Manifest:
        """The manifest in a file's content, checked; `name` is what errors call the file."""
        parsed = unseal(KIND, FORMAT_VERSION, UPGRADES, content, name)
        try:
            return _manifest(parsed)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise damaged(name, f"{type(error).__name__}: {error}") from error


_PLAIN = ("query_id", "batch_id", "offsets", "epoch", "registers", "latest", "advanced_to", "released")
_OPAQUE = ("migration", "counters")


def _content(manifest: Manifest) -> dict[str, Any]:
    writer = Writer()
    content = {name: getattr(manifest, name) for name in (*_PLAIN, *_OPAQUE)}
    content["routing"] = list(manifest.routing)
    content["queries"] = {name: asdict(entry) for name, entry in manifest.queries.items()}
    content["segments"] = {
        query: {stage: _slots(slots, writer) for stage, slots in sorted(stages.items())}
        for query, stages in sorted(manifest.segments.items())
    }
    content["results"] = {query: _rows(results) for query, results in manifest.results.items()}
    content["dead_letters"] = _rows(manifest.dead_letters)
    content["listed"] = {query: _rows(lists) for query, lists in manifest.listed.items()}
    content["listed_dead_letters"] = _rows(manifest.listed_dead_letters)
    content["metrics"] = _rows(manifest.metrics)
    content["recent"] = list(manifest.recent)
    content["superseded"] = _rows(manifest.superseded)
    content["sources"] = {stream: _rows(read) for stream, read in manifest.sources.items()}
    content["listed_sources"] = {stream: _rows(lists) for stream, lists in manifest.listed_sources.items()}
    return {**content, **writer.texts()}


def _slots(slots: Mapping[int, Sequence[SegmentEntry]], writer: Writer) -> dict[int, Any]:
    # In order, because texts are numbered as they come and equal manifests are to be equal bytes.
    return {slot: writer.once(entries) for slot, entries in sorted(slots.items())}


def _rows(values: Sequence[Any]) -> list[tuple[Any, ...]]:
    return list(map(_ROW[type(values[0])], values)) if values else []


_KINDS = (ResultFile, DeadLetterFile, SourceFile, ListFile, MetricsFile, Superseded)
_ROW: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    kind: attrgetter(*(f.name for f in fields(kind))) for kind in _KINDS
}


def _manifest(parsed: dict[str, Any]) -> Manifest:
    reader = Reader(parsed)
    return Manifest(
        **{name: parsed[name] for name in (*_PLAIN, *_OPAQUE)},
        routing=tuple(parsed["routing"]),
        queries={name: QueryEntry(**entry) for name, entry in parsed["queries"].items()},
        segments={
            query: {
                int(stage): {int(slot): reader.once(columns) for slot, columns in _in_order(slots)}
                for stage, slots in _in_order(stages)
            }
            for query, stages in sorted(parsed["segments"].items())
        },
        results={query: tuple(ResultFile(*row) for row in rows) for query, rows in parsed["results"].items()},
        dead_letters=tuple(DeadLetterFile(*row) for row in parsed["dead_letters"]),
        listed={query: tuple(ListFile(*row) for row in rows) for query, rows in parsed["listed"].items()},
        listed_dead_letters=tuple(ListFile(*row) for row in parsed["listed_dead_letters"]),
        metrics=tuple(MetricsFile(*row) for row in parsed["metrics"]),
        recent=tuple(parsed["recent"]),
        superseded=tuple(Superseded(*row) for row in parsed["superseded"]),
        sources={stream: tuple(SourceFile(*row) for row in rows) for stream, rows in parsed["sources"].items()},
        listed_sources={
            stream: tuple(ListFile(*row) for row in rows) for stream, rows in parsed["listed_sources"].items()
        },
    )


def _in_order(numbered: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(numbered.items(), key=lambda item: int(item[0]))
