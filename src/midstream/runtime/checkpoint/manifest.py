"""A manifest: all that batch n leaves to batch n+1, in one file.

Which data files count, how far each stream and query is, which plans run and where rows go. Whoever holds a manifest
and its files can go on from there; a step is a function of it and the batch's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.runtime.checkpoint.packs import SegmentEntry

FORMAT_VERSION = 1
"""The format that this version of Midstream writes."""

Segments = Mapping[str, Mapping[int, Mapping[int, Sequence[SegmentEntry]]]]
"""Segments by query, stage and slot."""


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """A registered query: its text, the plan that runs, and what its results depend on besides."""

    cql: str
    plan: str
    emit_every: int | None = None
    functions: str = ""
    status: str = "running"


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A file of results: they start at `first_from` at the earliest and at `last_from` at the latest."""

    path: str
    rows: int
    first_from: int
    last_from: int
    batch_id: int


@dataclass(frozen=True, slots=True)
class DeadLetterFile:
    """A file of rows that could not be used, with the reasons."""

    path: str
    rows: int
    batch_id: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch left behind."""

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

    def entries(self) -> Iterator[SegmentEntry]:
        """All segments of all queries."""
        for stages in self.segments.values():
            for slots in stages.values():
                for entries in slots.values():
                    yield from entries

    def slot(self, query: str, stage: int, slot: int) -> Sequence[SegmentEntry]:
        """The segments of one slot."""
        return self.segments.get(query, {}).get(stage, {}).get(slot, ())

    def files(self) -> set[str]:
        """All files it names."""
        named = {entry.file for entry in self.entries()}
        for files in self.results.values():
            named.update(file.path for file in files)
        named.update(file.path for file in self.dead_letters)
        return named

    def to_bytes(self) -> bytes:
        """The manifest as a file's content."""
        from midstream.runtime.checkpoint.manifest_format import to_bytes

        return to_bytes(self)

    @staticmethod
    def from_bytes(content: bytes, name: str = "manifest") -> Manifest:
        """The manifest in a file's content; `name` is what errors call it."""
        from midstream.runtime.checkpoint.manifest_format import from_bytes

        return from_bytes(content, name)
