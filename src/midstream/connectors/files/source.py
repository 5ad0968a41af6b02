"""A growing folder of files as a stream: each file is read once, whole, in the order in which files were written.

Which files were read is in the manifest of the batch that took their rows, so a file counts exactly when its batch
does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from midstream.checkpoint.file_entries import SourceFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import sources_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.spark_log import LOCAL
from midstream.connectors.files.computed import computed
from midstream.connectors.files.contents import FileContents
from midstream.connectors.files.identity import KnownFolder
from midstream.connectors.files.listing import names_of_files, require_columns_of_files, require_folder
from midstream.connectors.files.options import FORMATS, Portion, option_of, require_options
from midstream.errors import InputError, JobError
from midstream.inputs import NamedSource
from midstream.inputs.ddl import schema_of_ddl
from midstream.inputs.folder_paths import local_folder

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""How often a file is read that changes meanwhile."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A folder of this machine's files, and how they are read."""

    name: str
    folder: Path
    contents: FileContents

    @staticmethod
    def opened(source: NamedSource) -> FileSource:
        """The source as it is declared; every mistake is named."""
        name, format, path = source.name, source.format, source.path
        if format not in FORMATS:
            raise InputError(
                f"stream {name} has the format {format!r}, which cannot be read in this process",
                hint=f"use one of {', '.join(FORMATS)}, or run on Spark",
            )
        if path is None or source.schema is None:
            raise InputError(f"stream {name} needs a path and a schema to be read from a folder")
        if "://" in path and not path.startswith("file:/"):
            raise InputError(f"stream {name} lies in {path}, which is no folder of this machine")
        folder = local_folder(path)
        require_folder(name, folder)
        require_options(name, format, source.options)
        return FileSource(name, folder, contents_of(source))

    @property
    def produced(self) -> pa.Schema:
        """The columns of the stream."""
        return self.contents.columns

    def portion(self, files: Sequence[SourceFile]) -> Sequence[SourceFile]:
        """The files that a batch takes of some that wait."""
        portion = Portion.of(self.name, self.contents.options)
        return files[: portion.first([file.size for file in files])]

    def present(self, but: Collection[str] = ()) -> list[SourceFile]:
        """The files that are there, oldest first, without some that are known; those are not looked at."""
        pattern = option_of(self.contents.options, "pathGlobFilter") or "*"
        found = []
        for path in names_of_files(self.name, self.folder, pattern):
            if path not in but:
                require_columns_of_files(self.name, path, self.contents.schema.names)
                found.append(self._seen(path))
        return sorted(filter(None, found), key=lambda file: (file.modified, file.path))

    @property
    def place(self) -> str:
        """The folder, wherever links lead."""
        return os.path.realpath(self.folder)

    def known(self, folder: str, read: Sequence[SourceFile]) -> Sequence[SourceFile]:
        """Files that were read of the folder that the stream had, as they are called from the one that it has."""
        if folder == self.place or not read:
            return read
        return KnownFolder(self.name, folder, read).seen_from(self.folder, self.present())

    def check_unchanged(self, read: Collection[SourceFile]) -> None:
        """Refuses files that were read and have another size now: what was added to them would be lost.

        Those of the same size that were written again are warned of: most are copies, whose rows were read.
        """
        now = {file.path: file for file in self.present()}
        again = []
        for file in read:
            known = now.get(file.path)
            if known is None or file.size < 0:
                continue
            if known.modified != file.modified:
                again.append(file.path)
            if known.size != file.size:
                raise JobError(
                    f"the file {self.folder / file.path} of stream {self.name} has changed since it was read",
                    detail=f"it had {file.size:,} bytes and has {known.size:,}",
                    hint="add rows to the folder as new files, and put the old file back as it was",
                )
        if again:
            log.warning("%s", self._written_again(again))

    def _written_again(self, paths: Sequence[str]) -> str:
        """In words that files have another modification time than when they were read."""
        more = f", and {len(paths) - 1:,} more," if len(paths) > 1 else ""
        return (
            f"the file {self.folder / paths[0]} of stream {self.name}{more} has another modification time than when it "
            "was read, and the same size: it is taken for a copy and not read again. Add new rows as new files"
        )

    def read(self, files: Sequence[SourceFile]) -> tuple[pa.Table, list[SourceFile]]:
        """The rows of files, in order, as they travel; and the files as they were when they were read."""
        tables, found = [], []
        for file in files:
            table, now = self._read_still(file.path)
            tables.append(table)
            found.append(now)
        return pa.concat_tables(tables) if tables else self.contents.travelling.empty_table(), found

    def times(self, file: SourceFile, column: str) -> pa.ChunkedArray | None:
        """Times of a file that waits, without reading all of it; None if they cannot be told."""
        try:
            return self.contents.some_of(self._whole(file.path), column)
        except InputError:
            return None  # what is wrong with it is said when it is its turn

    def _read_still(self, path: str) -> tuple[pa.Table, SourceFile]:
        """The rows of a file, and the file as it was all the while."""
        for _ in range(ATTEMPTS):
            before = self._seen(path)
            table = self.contents.of_path(self._whole(path))
            if before is not None and self._seen(path) == before:
                return table, before
        raise InputError(
            f"the file {self._whole(path)} of stream {self.name} changes while it is read",
            hint="write files under names that begin with a dot or an underscore, and rename them when they are whole",
        )

    def _whole(self, path: str) -> str:
        """Where a file is."""
        return os.path.join(self.folder, path)

    def _seen(self, path: str) -> SourceFile | None:
        """A file as it is now, if it is there."""
        try:
            status = os.stat(self._whole(path))
        except FileNotFoundError:
            return None
        return SourceFile(path, status.st_size, status.st_mtime_ns)


def contents_of(source: NamedSource) -> FileContents:
    """How the files of a source are read."""
    name = source.name
    raw = schema_of_ddl(source.schema or "", f"the schema of stream {name}")
    nested = [f.name for f in raw if pa.types.is_nested(f.type)]
    if source.format == "avro" and find_spec("fastavro") is None:
        hint = "pip install 'midstream[avro]'"
        raise InputError(f"the Avro files of stream {name} cannot be read: fastavro is not installed", hint=hint)
    if source.format == "csv" and nested:
        raise InputError(
            f"the CSV files of stream {name} cannot hold {', '.join(nested)}, which is nested",
            hint="declare the column as STRING, or use JSON lines or Parquet",
        )
    return FileContents(name, source.format, raw, dict(source.options), computed(name, raw, source.columns))


class ReadFolder(Protocol):
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
    moved: Mapping[str, Sequence[SourceFile]] = field(default_factory=dict)
    """Those of streams whose folders are others than those that the manifest has."""

    @staticmethod
    def of(files: Files, manifest: Manifest | None, folders: Mapping[str, ReadFolder]) -> KnownFiles:
        """What a manifest knows; files that have changed since are refused."""
        found: dict[str, Sequence[SourceFile]] = {}
        moved: dict[str, Sequence[SourceFile]] = {}
        for name, folder in folders.items():
            before = None if manifest is None else manifest.streams.folders.get(name)
            if manifest is not None and before is None:
                _require_unread(manifest, name)
            read = [] if manifest is None or before is None else list(sources_of(files, manifest, name))
            found[name] = read if before is None else folder.known(before, read)
            folder.check_unchanged(found[name])
            if before is not None and before != folder.place:
                moved[name] = found[name]
        return KnownFiles(found, {name: folder.place for name, folder in folders.items()}, moved)


def _require_unread(manifest: Manifest, name: str) -> None:
    """Refuses a folder for a stream that Spark has read otherwise: which files it had is not known."""
    if manifest.query_id != LOCAL and manifest.streams.rows.get(name):
        raise JobError(
            f"stream {name} was read from a DataFrame on Spark, and cannot go on from a folder",
            detail="which of its files were read is not known",
            hint="keep running the job as it was, or open the stream with open_stream from its first batch on",
        )
