"""What a checkpoint knows of a stream's files, whoever has read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from midstream.checkpoint.file_entries import FilesRead, SourceFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import sources_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.spark_log import LOCAL
from midstream.errors import JobError


class Folder(Protocol):
    """A folder whose files are read once each."""

    @property
    def place(self) -> str:
        """The folder, wherever links lead."""

    def known(self, folder: str, read: Sequence[SourceFile]) -> Sequence[SourceFile]:
        """Files that were read of the folder that the stream had, as they are called from the one that it has."""

    def check_unchanged(self, read: Collection[SourceFile]) -> None:
        """Refuses files that were read and have another size now, and warns of those that were written again."""


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files that were read, by stream, as they are called from the folders that the streams have."""

    read: Mapping[str, Sequence[SourceFile]]
    folders: Mapping[str, str]
    moved: frozenset[str] = frozenset()
    """The streams whose folders are others than those that the manifest has."""

    @staticmethod
    def of(files: Files, manifest: Manifest | None, folders: Mapping[str, Folder]) -> KnownFiles:
        """What a manifest knows; files that have changed since are refused."""
        found: dict[str, Sequence[SourceFile]] = {}
        moved: set[str] = set()
        for name, folder in folders.items():
            before = None if manifest is None else manifest.streams.folders.get(name)
            if manifest is not None and before is None:
                _require_unread(manifest, name)
            read = [] if manifest is None or before is None else list(sources_of(files, manifest, name))
            found[name] = read if before is None else folder.known(before, read)
            folder.check_unchanged(found[name])
            if before is not None and before != folder.place:
                moved.add(name)
        return KnownFiles(found, {name: folder.place for name, folder in folders.items()}, frozenset(moved))

    def with_batch(
        self, files: Mapping[str, Sequence[SourceFile]], waiting: Mapping[str, int] | None = None
    ) -> FilesRead:
        """What the manifest of a batch that reads files has to say; `waiting` is how early those begin that wait."""
        return FilesRead(files, self.folders, {name: self.read[name] for name in self.moved}, waiting or {})


def _require_unread(manifest: Manifest, name: str) -> None:
    """Refuses a folder for a stream that Spark has read otherwise: which files it had is not known."""
    if manifest.query_id != LOCAL and manifest.streams.rows.get(name):
        raise JobError(
            f"stream {name} was read from a DataFrame on Spark, and cannot go on from a folder",
            detail="which of its files were read is not known",
            hint="keep running the job as it was, or open the stream with open_stream from its first batch on",
        )
