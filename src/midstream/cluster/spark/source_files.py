"""The files of a job's folders on Spark: Spark lists them and logs which batch has which, and manifests have the same.

So whoever goes on with the job, on Spark or not, knows its files from manifests alone. Files that Spark's log does not
have, because they were read elsewhere or from a folder that has moved since, are left out when Spark lists them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from midstream.algebra.time import INFINITY
from midstream.checkpoint.file_entries import FilesRead, SourceFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.spark_log import LOCAL, LoggedFile, SparkLog
from midstream.checkpoint.spark_offsets import offsets_of
from midstream.cluster.local.readings import FolderReading, SourceReading
from midstream.cluster.spark.frames.tagging import StreamInput
from midstream.connectors.connected import Connected
from midstream.connectors.files.contents import FileContents
from midstream.connectors.files.identity import come_since, outside
from midstream.connectors.files.listing import require_columns_of_files, require_folder
from midstream.connectors.files.objects import ObjectFolder, ObjectSource
from midstream.connectors.files.options import CHOOSING_ON_SPARK, FILE_FORMATS, FORMATS
from midstream.connectors.files.source import FileSource, KnownFiles, ReadFolder
from midstream.errors import InputError, JobError, MidstreamError
from midstream.inputs import NamedSource
from midstream.inputs.ddl import schema_of_ddl
from midstream.inputs.folder_paths import is_local, local_folder

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SourceFiles:
    """The folders of a job's streams, what is known of their files, and by which names Spark's log has them."""

    folders: Mapping[str, ReadFolder] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, NamedSource]] = field(default_factory=dict)
    known: KnownFiles = field(default_factory=lambda: KnownFiles({}, {}))
    left_out: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The files of each stream that Spark lists and that were read already, by their whole paths."""
    connected: Mapping[str, SourceReading] = field(default_factory=dict)
    """The streams that come from sources of ours, as Spark's log names them."""
    readings: Mapping[str, FolderReading] = field(default_factory=dict)
    """The folders of which this process can tell how early the files begin that wait for a later batch."""

    @staticmethod
    def of(files: Files, manifest: Manifest | None, log: SparkLog, inputs: Sequence[StreamInput]) -> SourceFiles:
        """What a manifest knows of the files of streams that are about to be read."""
        folders: dict[str, ReadFolder] = {}
        sources: dict[str, tuple[str, NamedSource]] = {}
        connected: dict[str, SourceReading] = {}
        for port, stream in enumerate(inputs):
            name, source = stream.declaration.name, stream.source
            if source is not None and source.connected is not None:
                reading = SourceReading(stream.declaration, Connected.opened(source), manifest)
                connected[str(port)] = connected[source.name] = reading
            if source is not None and source.path is not None and source.format.lower() in FILE_FORMATS:
                folders[name] = _folder(name, source)
                sources[str(port)] = sources[source.name] = name, source
        _require_folders(manifest, inputs, folders)
        known = KnownFiles.of(files, manifest, folders)
        # What a log has read it does not read again, and repeats if its batch was not done.
        logged = set() if manifest is None or manifest.query_id == LOCAL else log.paths_read(manifest)
        left_out = {
            name: frozenset(_whole(folder, path) for path in _paths_read(folder, known.read[name])) - logged
            for name, folder in folders.items()
        }
        readings = {
            stream.declaration.name: FolderReading(stream.declaration, looked_at, known.read[stream.declaration.name])
            for stream in inputs
            if (looked_at := _looked_at(stream, folders.get(stream.declaration.name))) is not None
        }
        return SourceFiles(folders, sources, known, left_out, connected, readings)

    def require_present(self) -> None:
        """Refuses folders that are gone: Spark would take them for empty ones."""
        for name, folder in self.folders.items():
            if isinstance(folder, FileSource):
                require_folder(name, folder.folder)

    def unread(self, stream: str) -> Sequence[str]:
        """The whole paths of files that Spark has to leave out."""
        return sorted(self.left_out.get(stream, ()))

    def of_batch(self, listed: Mapping[str, Sequence[LoggedFile]], before: str, entry: str) -> FilesRead:
        """The files of a batch, which Spark has listed by the names of its sources, and the positions in its entry.

        Those in the entry `before` are where the batch begins.
        """
        found: dict[str, list[SourceFile]] = {}
        for key, logged in listed.items():
            if key in self.sources:
                name, _ = self.sources[key]
                new = [file for file in logged if file.path not in self.left_out[name]]
                found.setdefault(name, []).extend(_read(name, self.folders[name], file) for file in new)
        waiting = {name: self._earliest(name, files) for name, files in found.items()}
        starts, ends = offsets_of(before), offsets_of(entry)
        at = {key: reading for key, reading in self.connected.items() if ends.get(key) is not None}
        for key, reading in at.items():
            begun = starts.get(key) or reading.positions
            waiting[reading.declaration.name] = reading.earliest_left(begun, ends[key])
        places = {reading.declaration.name: reading.place for reading in at.values()}
        positions = {reading.declaration.name: ends[key] for key, reading in at.items()}
        lags = {reading.declaration.name: reading.lag(ends[key]) for key, reading in at.items()}
        known = {name: rows for name, rows in lags.items() if rows is not None}
        return FilesRead(found, {**self.known.folders, **places}, self.known.moved, waiting, positions, known)

    def _earliest(self, name: str, taken: Sequence[SourceFile]) -> int:
        """How early the rows of files begin that are there and that a batch leaves; in ticks, as far as is known."""
        reading = self.readings.get(name)
        if reading is None:
            return INFINITY
        reading.done(taken)
        return reading.earliest(reading.waiting(), taken)


def _paths_read(folder: ReadFolder, read: Sequence[SourceFile]) -> set[str]:
    """The paths of files that were read, also of those that have come into the folder since."""
    there = folder.present() if isinstance(folder, FileSource) else []
    return {file.path for file in read} | come_since(folder.place, outside(folder.place, read), there)


def _looked_at(stream: StreamInput, folder: ReadFolder | None) -> FileSource | None:
    """The folder of a stream, if times can be had of files that wait there, and Spark will read all of these."""
    source = stream.source
    if source is None or folder is None or source.columns or source.format.lower() not in FORMATS:
        return None
    if {key.lower() for key in source.options} & {key.lower() for key in CHOOSING_ON_SPARK}:
        return None
    found = folder if isinstance(folder, FileSource) else _elsewhere(source)
    return found if found is not None and stream.declaration.time in found.contents.schema.names else None


def _elsewhere(source: NamedSource) -> ObjectSource | None:
    """A folder that is no place on this machine, if this process can list it as well as Spark."""
    if source.schema is None:
        return None
    try:
        found = ObjectSource.below(replace(source, format=source.format.lower()))
        found.present()
    except (MidstreamError, OSError) as error:
        log.warning(
            "files of stream %s that wait for a later batch are not looked at, so their rows can be late: this process "
            "cannot list their folder (%s)",
            source.name,
            str(error).split("\n")[0],
        )
        return None
    return found


def _folder(name: str, source: NamedSource) -> ReadFolder:
    path = source.path or ""
    if not is_local(path):
        return ObjectFolder(name, path.rstrip("/"))
    try:
        schema = schema_of_ddl(source.schema or "", f"the schema of stream {name}")
    except InputError:  # it may have types that Spark alone knows; then it knows its columns, too
        schema = pa.schema([])
    return FileSource(name, local_folder(path), FileContents(name, source.format.lower(), schema, source.options))


def _whole(folder: ReadFolder, path: str) -> str:
    start = str(folder.folder) if isinstance(folder, FileSource) else folder.place
    return os.path.normpath(os.path.join(start, path)) if isinstance(folder, FileSource) else f"{start}/{path}"


def _read(name: str, folder: ReadFolder, file: LoggedFile) -> SourceFile:
    """A file as manifests have it."""
    if not isinstance(folder, FileSource):
        return SourceFile(file.path.removeprefix(f"{folder.place}/"), -1, file.modified * 1_000_000)
    path = os.path.relpath(file.path, folder.folder)
    require_columns_of_files(name, path, folder.contents.schema.names)
    try:
        status = os.stat(file.path)
    except OSError:
        return SourceFile(path, -1, file.modified * 1_000_000)
    return SourceFile(path, status.st_size, status.st_mtime_ns)


def _require_folders(
    manifest: Manifest | None, inputs: Sequence[StreamInput], folders: Mapping[str, ReadFolder]
) -> None:
    """Refuses streams that were folders and are none, unless Spark's own log has their files."""
    if manifest is None or manifest.query_id != LOCAL:
        return
    read = {name for name, files in manifest.streams.files.items() if files.count}
    for name in [s.declaration.name for s in inputs if s.declaration.name in read - folders.keys()]:
        raise JobError(
            f"stream {name} was read from a folder so far and cannot continue from another source",
            detail="which of its files were read is known by their paths from the folder",
            hint="open it with open_stream and the folder's path",
        )


def require_order(manifest: Manifest | None, inputs: Sequence[StreamInput]) -> None:
    """Refuses streams in another order, where Spark knows its sources by their order alone."""
    if manifest is None or manifest.query_id == LOCAL or manifest.offsets.startswith("v2"):
        return
    before, now = list(manifest.streams.order), [stream.declaration.name for stream in inputs]
    if before and now[: len(before)] != before:
        raise JobError(
            "the streams of a job on Spark have another order than before: "
            f"{', '.join(now)} instead of {', '.join(before)}",
            detail="Spark knows its sources by their order, and would go on with one stream's rows as another's",
            hint="declare the streams in the order of before; with spark.sql.streaming.queryEvolution."
            'enableSourceEvolution = "true" from the first batch on, as in a job file, the order is free (Spark 4.3)',
        )
