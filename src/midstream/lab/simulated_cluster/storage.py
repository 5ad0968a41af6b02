"""A disk in memory that loses power, fails and fills up: what was not synced may be gone, or not, name by name.

As on a real one, a file's content is safe once the file is synced, and a name, given or taken away, once its folder is.
A file is written under a name nobody reads, synced, and then renamed, so that a name never stands for half a file.
Whatever else happened since a folder was last synced survives a loss of power or not, each name on its own: file
systems promise no order among names. An operation that is reported as failed may have happened all the same.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock

import pyarrow as pa

from midstream.checkpoint.addresses import register
from midstream.checkpoint.failures import AlreadyThere, MissingFile, storage_errors
from midstream.checkpoint.files import TEMPORARY, Data, Files, Paths, pieces_of
from midstream.checkpoint.maps import Mapped

SCHEME = "simulated"

Survives = Callable[[str], bool]
"""Whether a change of a name that was not synced is there after a loss of power."""

NOTHING: Survives = lambda path: False  # noqa: E731
EVERYTHING: Survives = lambda path: True  # noqa: E731


def at_random(seed: int) -> Survives:
    """Each change on its own, by a seed."""
    drawn = random.Random(seed)
    return lambda path: drawn.random() < 0.5


@dataclass(eq=False)
class VolatileDisk:
    """Files by path: those that processes see, and those that are safe.

    `before` is called before each operation that changes something, with the number of those before it; `looking` with
    the path of each file that is read, and `renamed` with each path that got a file. What they raise is what the
    operation fails with; an `OSError` is what the storage says.
    """

    seen: dict[str, bytes] = field(default_factory=dict)
    safe: dict[str, bytes] = field(default_factory=dict)
    before: Callable[[int], None] = lambda number: None
    looking: Callable[[str], None] = lambda path: None
    renamed: Callable[[str], None] = lambda path: None
    operations: int = 0
    copies: int = 0
    """How often all of it was replaced by a copy, so that somebody could notice."""
    lock: RLock = field(default_factory=RLock, repr=False)

    def step(self) -> None:
        """One more operation."""
        self.before(self.operations)
        self.operations += 1

    def put(self, path: str, content: bytes) -> None:
        """Writes a file, while others may be listing files."""
        with self.lock:
            self.seen[path] = content

    def remove(self, path: str) -> None:
        """Removes a file, if it is there."""
        with self.lock:
            self.seen.pop(path, None)

    def sync(self, folder: str) -> None:
        """Makes the names in a folder safe, and those that it no longer has."""
        for path in [*self.safe, *self.seen]:
            if path.rpartition("/")[0] == folder:
                _carry(self.seen, self.safe, path)

    def after_power_loss(self, survives: Survives) -> VolatileDisk:
        """The disk as it is found when the machine starts again."""
        left = dict(self.safe)
        for path in sorted({*self.seen, *self.safe}):
            if self.seen.get(path) is not self.safe.get(path) and survives(path):
                _carry(self.seen, left, path)
        return VolatileDisk(left, dict(left))


def _carry(source: Mapping[str, bytes], target: dict[str, bytes], path: str) -> None:
    if path in source:
        target[path] = source[path]
    else:
        target.pop(path, None)


_DISKS: dict[str, VolatileDisk] = {}


def insert(name: str, disk: VolatileDisk) -> str:
    """Makes a disk reachable in this process; gives the address of its files. Another of that name is taken out."""
    _DISKS[name] = disk
    return f"{SCHEME}://{name}"


class SimulatedFiles(Files):
    """The files of a disk, which is found by its name."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.disk = _DISKS[uri.removeprefix(f"{SCHEME}://")]
        self._maps: dict[str, tuple[bytes, Mapped]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return SimulatedFiles, (self.uri,)

    def __eq__(self, other: object) -> bool:
        # What was read of another disk of that name is not remembered of this one.
        return isinstance(other, SimulatedFiles) and self.disk is other.disk

    def __hash__(self) -> int:
        return id(self.disk)

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
        content = b"".join(pieces_of(data))
        folder, _, name = path.rpartition("/")
        unfinished = f"{folder}/.{name}.{self.disk.operations:08x}{TEMPORARY}".lstrip("/")
        with storage_errors("write", self.full(path)):
            try:
                self._write(unfinished, content)
                if once is not None:
                    once()
                self._give_name(unfinished, path, only_if_absent)
            except (OSError, AlreadyThere):
                self.disk.remove(unfinished)
                raise
            if sync:
                self.disk.step()
                with self.disk.lock:
                    self.disk.sync(folder)

    def _write(self, unfinished: str, content: bytes) -> None:
        self.disk.step()
        self.disk.put(unfinished, content[: len(content) // 2])
        self.disk.step()
        self.disk.put(unfinished, content)

    def _give_name(self, unfinished: str, path: str, only_if_absent: bool) -> None:
        self.disk.step()
        with self.disk.lock:
            if only_if_absent and path in self.disk.seen:
                raise AlreadyThere(f"{self.full(path)} is already there")
            if unfinished not in self.disk.seen:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory")  # somebody swept it away
            self.disk.seen[path] = self.disk.seen.pop(unfinished)
        self.disk.renamed(path)

    def read(self, path: str) -> bytes:
        with storage_errors("read", self.full(path)):
            self.disk.looking(path)
        with self.disk.lock:
            if path not in self.disk.seen:
                raise MissingFile(f"cannot read {self.full(path)}: it is missing")
            return self.disk.seen[path]

    def mapped(self, path: str) -> Mapped:
        content = self.read(path)
        known = self._maps.get(path)
        if known is None or known[0] is not content:
            known = self._maps[path] = content, Mapped(pa.py_buffer(content))
        return known[1]

    def list(self, dir: str) -> Paths:
        with storage_errors("list", self.full(dir)):
            self.disk.looking(dir)
        prefix = f"{dir}/" if dir else ""
        with self.disk.lock:
            return sorted([path for path in self.disk.seen if path.startswith(prefix)])

    def fingerprint(self, path: str) -> str | None:
        return str(self.disk.copies) if path in self.disk.seen else None

    def forget(self, path: str) -> None:
        self._maps.pop(path, None)

    def delete(self, path: str) -> None:
        with storage_errors("delete", self.full(path)):
            if path in self.disk.seen:
                self.disk.step()
                self.disk.remove(path)
        self.forget(path)

    def make(self, dir: str) -> None:
        """Nothing is left to do: a folder is there with its first file."""

    def exists(self, path: str) -> bool:
        with storage_errors("look for", self.full(path)):
            self.disk.looking(path)
        return path in self.disk.seen

    def sync(self, dir: str) -> None:
        with storage_errors("sync", self.full(dir)):
            self.disk.step()
        with self.disk.lock:
            self.disk.sync(dir)


register(SCHEME, SimulatedFiles)
