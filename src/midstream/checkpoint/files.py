"""Files under one root, wherever it is: a local folder, HDFS, or an object store.

A file appears whole or not at all. Locally and on HDFS it is written under a name nobody reads and then renamed; an
object store shows an object only once it is complete. Paths are relative to the root and use `/`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.maps import Mapped
from midstream.errors import JobError

Data: TypeAlias = Any
"""Bytes, or an Arrow buffer."""

Paths: TypeAlias = list[str]

TEMPORARY = ".tmp"
"""How the names of unfinished files end; they also begin with a dot, so that readers of folders pass them over."""

DBFS_MOUNT = "/dbfs"

_REMOTE = {
    "hdfs": "hdfs",
    "viewfs": "viewfs",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
}


class Files(ABC):
    """The files under a root. Two of equal `uri` are interchangeable, also in another process."""

    uri: str

    @staticmethod
    def at(uri: str) -> Files:
        """The files under a path or an address."""
        from midstream.checkpoint.local_files import LocalFiles
        from midstream.checkpoint.remote_files import RemoteFiles

        scheme, rest = _scheme(uri)
        match scheme:
            case "" | "file":
                return LocalFiles(rest)
            case "dbfs":
                return LocalFiles(_mounted(rest))
            case _ if scheme in _REMOTE:
                return RemoteFiles(_REMOTE[scheme] + uri[len(scheme) :].rstrip("/"))
            case _:
                raise JobError(
                    f"a checkpoint cannot be kept at {uri}: unknown scheme {scheme}:",
                    hint=f"use a local path, file:, dbfs: (where it is mounted) or one of {', '.join(_REMOTE)}",
                )

    @abstractmethod
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
        """Makes a file with the data, whole or not at all, and safe from a crash of the machine.

        With `only_if_absent`, a file already there raises `AlreadyThere`. `point` names the crash points passed.
        Without `sync` the folder is left for a later `sync(dir)`, so that many files cost one sync of their folder.
        The file gets its name once `once` has returned, if it is given.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole of a file; `MissingFile` if there is none."""

    def open_map(self, path: str) -> pa.Buffer:
        """The whole of a file that never changes, mapped into memory."""
        return self.mapped(path).content

    @abstractmethod
    def mapped(self, path: str) -> Mapped:
        """A file that never changes, mapped into memory, with what this process has verified of it."""

    @abstractmethod
    def list(self, dir: str) -> Paths:
        """All files in a folder and the folders in it, unfinished ones included, in order; none if it is not there."""

    @abstractmethod
    def forget(self, path: str) -> None:
        """Lets go of what this machine keeps of a file, so that the next use sees the file itself."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Removes a file; it may be gone already."""

    @abstractmethod
    def make(self, dir: str) -> None:
        """Makes a folder and those above it."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file of that name."""

    @abstractmethod
    def sync(self, dir: str) -> None:
        """Makes the names in a folder safe from a crash of the machine."""

    def full(self, path: str) -> str:
        """A path as a user or another program finds it."""
        return f"{self.uri}/{path}" if path else self.uri

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Files) and type(other) is type(self) and other.uri == self.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __repr__(self) -> str:
        return f"Files.at({self.uri!r})"


def pieces_of(data: Data | Sequence[Data]) -> list[Any]:
    """The data as a list of pieces to be written one after the other."""
    return [data] if isinstance(data, (bytes, bytearray, memoryview, pa.Buffer)) else list(data)


def write_halting(file: Any, pieces: Sequence[Data], point: str) -> None:
    """Writes the pieces; half-way through the first is a point where tests can make the process die."""
    first = memoryview(pieces[0])
    half = len(first) // 2
    file.write(first[:half])
    reach(f"{point}.within_write")
    file.write(first[half:])
    for piece in pieces[1:]:
        file.write(piece)


def _scheme(uri: str) -> tuple[str, str]:
    """The scheme, empty for a plain path, and for local addresses the path."""
    if not uri:
        raise JobError("the checkpoint has no path", hint="name a folder, such as checkpoint='orders.checkpoint'")
    scheme, colon, rest = uri.partition(":")
    if not colon or "/" in scheme or not scheme.isalnum():
        return "", uri
    scheme = scheme.lower()
    if scheme not in ("file", "dbfs"):
        # Without slashes a colon belongs to a local name, as in "run:3".
        return (scheme, rest) if rest.startswith("//") else ("", uri)
    return scheme, unquote(urlsplit(uri).path) if scheme == "file" else rest.lstrip("/")


def _mounted(path: str) -> str:
    if not os.path.isdir(DBFS_MOUNT):
        raise JobError(
            f"dbfs:/{path} cannot be reached: there is no {DBFS_MOUNT} on this machine",
            hint="use a Unity Catalog volume (/Volumes/...) or an object store for the checkpoint",
        )
    return os.path.join(DBFS_MOUNT, path)
