"""Files of a distributed file system or an object store, through Arrow.

What is mapped is fetched once into a folder of this machine that all its processes share. How a file gets its name
differs between storages.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from midstream.checkpoint import fetched, maps
from midstream.checkpoint.claims import is_file
from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.failures import MissingFile, storage_errors
from midstream.checkpoint.file_entries import SourceFile
from midstream.checkpoint.files import Data, Files, Paths, pieces_of, write_halting
from midstream.errors import JobError

PATIENCE = 60
"""For how many seconds an unreachable store is asked again."""

CHUNK = 8 << 20
"""How much of a file is fetched at a time."""


class RemoteFiles(Files):
    """Files under an address. Each process opens its own connection, on first use.

    A file system that is given instead of found by its address must be picklable where tasks use it.
    """

    def __init__(self, uri: str, filesystem: Any = None, root: str = "") -> None:
        self.uri = uri
        self._given = None if filesystem is None else (filesystem, root)
        self._opened: tuple[Any, str] | None = self._given

    def __reduce__(self) -> tuple[object, ...]:
        filesystem, root = self._given or (None, "")
        return type(self), (self.uri, filesystem, root)

    def write_atomic(
        self,
        path: str,
        data: Data | Sequence[Data],
        *,
        only_if_absent: bool = False,
        point: str = "file",
        sync: bool = True,
        once: Callable[[], None] | None = None,
    ) -> None:
        if once is not None:
            once()
        with storage_errors("write", self.full(path)):
            (self._create if only_if_absent else self._replace)(path, pieces_of(data), point)

    @abstractmethod
    def _replace(self, path: str, pieces: Sequence[Data], point: str) -> None:
        """Makes a file, in the place of another of its name."""

    @abstractmethod
    def _create(self, path: str, pieces: Sequence[Data], point: str) -> None:
        """Makes a file, or raises `AlreadyThere`; never touches a file of that name, however it came there."""

    def read(self, path: str) -> bytes:
        filesystem, place = self._place(path)
        with storage_errors("read", self.full(path)), filesystem.open_input_stream(place, compression=None) as stream:
            return bytes(stream.read())

    def mapped(self, path: str) -> maps.Mapped:
        try:
            return self._mapped_copy(path)
        except MissingFile:
            return self._mapped_copy(path)  # another process may have made room just then

    def _mapped_copy(self, path: str) -> maps.Mapped:
        return maps.mapped(str(fetched.local_copy(self.full(path), lambda copy: self._fetch(path, copy))))

    def _fetch(self, path: str, copy: Path) -> None:
        with open(copy, "wb") as file:
            for chunk in self._chunks(path):
                file.write(chunk)

    def _chunks(self, path: str) -> Iterator[bytes]:
        filesystem, place = self._place(path)
        with storage_errors("read", self.full(path)), filesystem.open_input_stream(place, compression=None) as stream:
            while chunk := stream.read(CHUNK):
                yield chunk

    def list(self, dir: str) -> Paths:
        filesystem, place = self._place(dir)
        selector = pafs.FileSelector(place, allow_not_found=True, recursive=True)
        with storage_errors("list", self.full(dir)):
            infos = filesystem.get_file_info(selector)
        root = self._place("")[1].rstrip("/")
        return sorted(info.path[len(root) :].lstrip("/") for info in infos if info.type == pafs.FileType.File)

    def entries(self) -> Iterator[SourceFile]:
        """All files, with their sizes and times; a bucket must be there, a folder without files may be."""
        filesystem, place = self._place("")
        bucket = place.split("/")[0] or "/"
        with storage_errors("list", self.uri):
            if filesystem.get_file_info(bucket).type == pafs.FileType.NotFound:
                raise JobError(f"cannot list {self.uri}: there is no {bucket}")
            infos = filesystem.get_file_info(pafs.FileSelector(place, allow_not_found=True, recursive=True))
        for info in infos:
            if info.type == pafs.FileType.File:
                yield SourceFile(info.path[len(place) :].lstrip("/"), info.size, info.mtime_ns)

    def entry(self, path: str) -> SourceFile | None:
        """A file as it is now, if it is there."""
        info = self._info(path)
        return SourceFile(path, info.size, info.mtime_ns) if info.type == pafs.FileType.File else None

    def opened(self, path: str) -> pa.NativeFile:
        """A file that can be read from any place on."""
        filesystem, place = self._place(path)
        return filesystem.open_input_file(place)

    def delete(self, path: str) -> None:
        filesystem, place = self._place(path)
        with storage_errors("delete", self.full(path)):
            if is_file(filesystem, place):
                filesystem.delete_file(place)
        self.forget(path)

    def forget(self, path: str) -> None:
        copy = fetched.place_of(self.full(path))
        maps.forget(str(copy))
        copy.unlink(missing_ok=True)

    def make(self, dir: str) -> None:
        filesystem, place = self._place(dir)
        with storage_errors("make the folder", self.full(dir)):
            filesystem.create_dir(place, recursive=True)

    def exists(self, path: str) -> bool:
        return bool(self._info(path).type == pafs.FileType.File)

    def fingerprint(self, path: str) -> str | None:
        """The time at which it was stored: that of a copy is another."""
        known = self._info(path)
        return None if known.mtime_ns is None else str(known.mtime_ns)

    def _info(self, path: str) -> pafs.FileInfo:
        filesystem, place = self._place(path)
        with storage_errors("look for", self.full(path)):
            return filesystem.get_file_info(place)

    def sync(self, dir: str) -> None:
        """Nothing is left to do: what was put is safe."""

    def _place(self, path: str) -> tuple[Any, str]:
        if self._opened is None:
            self._opened = _connect(self.uri)
        filesystem, root = self._opened
        return filesystem, f"{root}/{path}".strip("/") if not root.startswith("/") else f"{root}/{path}".rstrip("/")


def _connect(uri: str) -> tuple[Any, str]:
    try:
        filesystem, root = pafs.FileSystem.from_uri(_patient(uri))
    except (OSError, ValueError, NotImplementedError, pa.ArrowException) as error:
        raise JobError(
            f"cannot reach {uri}",
            detail=str(error).strip(),
            hint="check the address and, on this machine, the credentials and client libraries it needs",
        ) from error
    return filesystem, root.rstrip("/")


def _patient(uri: str) -> str:
    """The address with a bound on how long an unreachable store is asked again, where the client has none."""
    if not uri.startswith("gs://") or "retry_limit_seconds" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={PATIENCE}"


def put(filesystem: Any, place: str, pieces: Sequence[Data], point: str) -> None:
    """Writes a file where it is to be."""
    reach(f"{point}.before_write")
    parent = str(PurePosixPath(place).parent)
    try:
        stream = filesystem.open_output_stream(place, compression=None)
    except FileNotFoundError:
        filesystem.create_dir(parent, recursive=True)
        stream = filesystem.open_output_stream(place, compression=None)
    with stream:
        write_halting(stream, pieces, point)
    reach(f"{point}.after_write")
