"""Files under one root, wherever it is: a local folder, HDFS, or an object store.

A file appears whole or not at all. Locally and on HDFS it is written under a name nobody reads and then renamed; an
object store shows an object only once it is complete. Paths are relative to the root and use `/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeAlias

import pyarrow as pa

from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.maps import Mapped
from midstream.checkpoint.process import this_process

Data: TypeAlias = Any
"""Bytes, or an Arrow buffer."""

Paths: TypeAlias = list[str]

TEMPORARY = ".tmp"
"""How the names of unfinished files end; they also begin with a dot, so that readers of folders pass them over."""


class Files(ABC):
    """The files under a root. Two of equal `uri` are interchangeable, also in another process."""

    uri: str

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

    def fingerprint(self, path: str) -> str | None:
        """What a copy of a file does not have in common with it; None if there is no file, or nobody can tell."""
        return None

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
        return f"{type(self).__name__}({self.uri!r})"


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


def begin(action: Callable[..., None], *arguments: object) -> Future[None]:
    """Starts to do something while the caller goes on."""
    return this_process().begin(action, *arguments)


def wait_for(begun: Sequence[Future[None]]) -> None:
    """Waits until all is done; raises the first failure once nothing is under way any more."""
    failures = [failure for future in begun if (failure := future.exception()) is not None]
    if failures:
        raise failures[0]


class SideBySide(Files):
    """Files of a task, written while the task goes on; `wait` comes before anything names them.

    Several threads of the task may write; what one of them begins while another waits is waited for by the next `wait`.
    Readers see the files as if they had been written at once. Names that must be new, and folders that
    must be safe, are nothing for this.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self.uri = files.uri
        self.begun: list[Future[None]] = []
        self.processor = 0.0
        """The processor seconds of threads that wrote files besides."""
        self._lock = Lock()

    def wait(self) -> None:
        """Waits until all files are there; several may wait for the same ones."""
        with self._lock:
            begun = list(self.begun)
        try:
            wait_for(begun)
        finally:
            with self._lock:
                self.begun = [writing for writing in self.begun if writing not in begun]

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
        def write() -> None:
            self.files.write_atomic(path, data, only_if_absent=only_if_absent, point=point, sync=sync, once=once)

        def write_aside() -> None:
            began = this_process().processor()
            write()
            with self._lock:
                self.processor += this_process().processor() - began

        if only_if_absent or sync:
            write()
        else:
            writing = begin(write_aside)
            with self._lock:
                self.begun.append(writing)

    def read(self, path: str) -> bytes:
        self.wait()
        return self.files.read(path)

    def mapped(self, path: str) -> Mapped:
        self.wait()
        return self.files.mapped(path)

    def list(self, dir: str) -> Paths:
        self.wait()
        return self.files.list(dir)

    def forget(self, path: str) -> None:
        self.wait()
        self.files.forget(path)

    def delete(self, path: str) -> None:
        self.wait()
        self.files.delete(path)

    def make(self, dir: str) -> None:
        self.files.make(dir)

    def exists(self, path: str) -> bool:
        self.wait()
        return self.files.exists(path)

    def sync(self, dir: str) -> None:
        self.wait()
        self.files.sync(dir)
