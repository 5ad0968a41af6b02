"""Files made safe side by side: a disk needs about as long for several as for one.

Threads of the process do what is begun here; `wait` returns once it is done, and raises its failures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock

from midstream.checkpoint.files import Data, Files, Paths
from midstream.checkpoint.maps import Mapped
from midstream.checkpoint.process import this_process


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
