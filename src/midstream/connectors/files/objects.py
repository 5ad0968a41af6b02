"""A growing folder of an object store, or of any other file system that Arrow knows, read in this process.

Objects appear as a whole, and those that were read are known by their paths below the folder. There is no such thing as
an empty folder there: one without objects has none yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.file_entries import SourceFile
from midstream.checkpoint.remote_files import RemoteFiles
from midstream.connectors.environment import conceal
from midstream.connectors.files.listing import is_unfinished, require_columns_of_files
from midstream.connectors.files.options import option_of, require_options
from midstream.connectors.files.source import FileSource, contents_of
from midstream.errors import InputError, JobError
from midstream.inputs import NamedSource


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """A folder that is no place on this machine, as manifests know it; only Spark may be able to list it."""

    name: str
    place: str

    def known(self, folder: str, read: Sequence[SourceFile]) -> Sequence[SourceFile]:
        """The files, if the folder is the same: whether others are the same files cannot be told."""
        if folder != self.place and read:
            raise JobError(
                f"stream {self.name} has another folder than before, {self.place}, and it cannot be told which of its "
                "files were read",
                detail=f"{len(read):,} files were read from {folder}",
                hint="give the stream another name, or the job a new checkpoint, to read the folder from its beginning",
            )
        return read

    def check_unchanged(self, read: Collection[SourceFile]) -> None:
        """Objects are replaced, not changed; none is read twice."""


@dataclass(frozen=True, slots=True)
class ObjectSource(FileSource):
    """The objects below an address, and how they are read."""

    files: RemoteFiles
    place: str
    """The address without what is secret or a setting of the client."""

    @staticmethod
    def below(source: NamedSource) -> ObjectSource:
        """The source as it is declared; every mistake is named."""
        address = source.path or ""
        parts = urlsplit(address)
        for secret in filter(None, [parts.password, parts.username]):
            conceal(unquote(secret), "path")
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        require_options(source.name, source.format, source.options)
        try:
            files = files_at(address)
        except JobError as error:
            raise InputError(f"stream {source.name} cannot be read from {place}", hint=error.hint) from None
        if not isinstance(files, RemoteFiles):
            raise InputError(f"stream {source.name} cannot be read from {place}", hint="give the path of the folder")
        contents = replace(contents_of(source), open=lambda path: files.opened(path.removeprefix(f"{place}/")))
        return ObjectSource(source.name, Path(place), contents, files, place)

    def known(self, folder: str, read: Sequence[SourceFile]) -> Sequence[SourceFile]:
        return ObjectFolder(self.name, self.place).known(folder, read)

    def check_unchanged(self, read: Collection[SourceFile]) -> None:
        """Objects are replaced, not changed."""

    def present(self, but: Collection[str] = ()) -> list[SourceFile]:
        pattern = option_of(self.contents.options, "pathGlobFilter") or "*"
        found = []
        for file in self.files.entries():
            names = file.path.split("/")
            if file.path not in but and not any(map(is_unfinished, names)) and fnmatchcase(names[-1], pattern):
                require_columns_of_files(self.name, file.path, self.contents.schema.names)
                found.append(file)
        return sorted(found, key=lambda file: (file.modified, file.path))

    def _whole(self, path: str) -> str:
        return f"{self.place}/{path}"

    def _seen(self, path: str) -> SourceFile | None:
        return self.files.entry(path)
