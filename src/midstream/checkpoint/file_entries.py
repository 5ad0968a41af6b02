"""The files that a manifest names: what it says of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from midstream.checkpoint.names import LISTS
from midstream.codec import RecordRow

_IN_LISTS = f"{LISTS}/"


@dataclass(frozen=True, slots=True)
class ResultFile(RecordRow):
    """A file of results: they start at `first_from` at the earliest and at `last_from` at the latest.

    Several queries can share a file; `part` is then the name by which it tells the rows of one from those of others.
    `checksum` is that of the whole file, `bytes` the size of what is this query's.
    """

    path: str
    rows: int
    first_from: int
    last_from: int
    batch_id: int
    part: str = ""
    checksum: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterFile(RecordRow):
    """A file of rows that could not be used, with the reasons."""

    path: str
    rows: int
    batch_id: int
    checksum: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SourceFile(RecordRow):
    """A file that is read as a stream: its path from the stream's folder, its size and when it was last written.

    That is in nanoseconds. Where the size is not known, it is less than zero. Once it was read, its rows count that are
    at the earliest of the time `register`, in ticks, and at the latest of the time `latest`; others were dead letters.
    """

    path: str
    size: int
    modified: int
    latest: int | None = field(default=None, compare=False)
    register: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ListFile(RecordRow):
    """A file that lists older result, dead-letter or source files, so that manifests stay short."""

    path: str
    files: int
    rows: int


File = TypeVar("File", ResultFile, DeadLetterFile, SourceFile)


@dataclass(frozen=True, slots=True)
class FileLog(Generic[File]):
    """Files in the order in which they were written or read: the newer ones by name, older ones in lists."""

    newer: Sequence[File] = ()
    lists: Sequence[ListFile] = ()

    @property
    def count(self) -> int:
        """How many files there are."""
        return len(self.newer) + sum(one.files for one in self.lists)


def rows_of(log: FileLog[ResultFile] | FileLog[DeadLetterFile]) -> int:
    """How many rows files have together."""
    return sum(one.rows for one in (*log.newer, *log.lists))


@dataclass(frozen=True, slots=True)
class FilesRead:
    """The files that a batch reads, by stream, and the folders that they are in.

    `moved` are all files that were read before of streams that had other folders, as they are called from those that
    they have now; they take the place of what a manifest has, unless it has these folders already. `waiting` is how
    early the rows of files begin that are there and are left to later batches, in ticks, where that is known.
    `positions` are those up to which a batch reads streams that come from sources; `folders` are then the sources, and
    `lags` how many rows wait there, where that is known.
    """

    files: Mapping[str, Sequence[SourceFile]] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)
    moved: Mapping[str, Sequence[SourceFile]] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    positions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lags: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricsFile(RecordRow):
    """A file of the metrics table: a row for each of some batches."""

    path: str
    rows: int
    first_batch: int
    last_batch: int


@dataclass(frozen=True, slots=True)
class Superseded(RecordRow):
    """A file whose content lies in a larger one by now, or a list of such; kept for readers that began before."""

    path: str
    since: float

    @property
    def is_list(self) -> bool:
        """Whether it names others."""
        return self.path.startswith(_IN_LISTS)
