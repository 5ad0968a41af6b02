"""Files of this machine's file system, or of one mounted on it.

A rename within a folder is atomic, and so is a link to a name that must be new. A name is safe from a crash of the
machine once its folder is synced, its content once the file is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.fs as pafs

from midstream.checkpoint import claims, maps
from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.failures import AlreadyThere, storage_errors
from midstream.checkpoint.files import TEMPORARY, Data, Files, Paths, pieces_of, write_halting


class LocalFiles(Files):
    """Files under a local folder.

    What is made there is for this user alone, unless it is not `private`; what exists keeps its rights.
    """

    def __init__(self, root: str, private: bool = True) -> None:
        self.uri = os.path.abspath(os.path.expanduser(root))
        self.private = private

    def __reduce__(self) -> tuple[object, ...]:
        return LocalFiles, (self.uri, self.private)

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
        final = self._path(path)
        unfinished = final.with_name(f".{final.name}.{secrets.token_hex(4)}{TEMPORARY}")
        with storage_errors("write", str(final)):
            try:
                reach(f"{point}.before_write")
                _write(unfinished, pieces_of(data), point, self.private)
                reach(f"{point}.after_write")
                if once is not None:
                    once()
                reach(f"{point}.before_rename")
                _give_name(unfinished, final, only_if_absent, point)
                reach(f"{point}.after_rename")
            except BaseException:
                with contextlib.suppress(OSError):
                    unfinished.unlink(missing_ok=True)
                raise
            if sync:
                _sync(final.parent)

    def read(self, path: str) -> bytes:
        with storage_errors("read", self.full(path)):
            return self._path(path).read_bytes()

    def mapped(self, path: str) -> maps.Mapped:
        return maps.mapped(self.full(path))

    def list(self, dir: str) -> Paths:
        found: Paths = []
        with storage_errors("list", self.full(dir)):
            for folder, _, names in os.walk(self._path(dir), onerror=_unless_missing):
                here = Path(folder).relative_to(self.uri).as_posix()
                found.extend(f"{here}/{name}" if here != "." else name for name in names)
        return sorted(found)

    def delete(self, path: str) -> None:
        with storage_errors("delete", self.full(path)):
            self._path(path).unlink(missing_ok=True)
        self.forget(path)

    def forget(self, path: str) -> None:
        maps.forget(self.full(path))

    def make(self, dir: str) -> None:
        with storage_errors("make the folder", self.full(dir)):
            _make_folder(self._path(dir), self.private)

    def exists(self, path: str) -> bool:
        with storage_errors("look for", self.full(path)):
            return self._path(path).is_file()

    def sync(self, dir: str) -> None:
        with storage_errors("sync", self.full(dir)):
            _sync(self._path(dir))

    def _path(self, path: str) -> Path:
        return Path(self.uri, path)


def _write(path: Path, pieces: Sequence[Data], point: str, private: bool) -> None:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600 if private else 0o666)

    try:
        file = open(path, "xb", opener=opener)  # noqa: SIM115
    except FileNotFoundError:
        _make_folder(path.parent, private)
        file = open(path, "xb", opener=opener)  # noqa: SIM115
    with file:
        write_halting(file, pieces, point)
        file.flush()
        os.fsync(file.fileno())


def _make_folder(folder: Path, private: bool) -> None:
    """Makes a folder and those above it, and makes their names safe."""
    missing = [folder, *folder.parents]
    missing = missing[: next(i for i, above in enumerate(missing) if above.is_dir())]
    for made in reversed(missing):
        made.mkdir(0o700 if private else 0o777, exist_ok=True)
        _sync(made.parent)


def _give_name(unfinished: Path, final: Path, only_if_absent: bool, point: str) -> None:
    if not only_if_absent:
        os.replace(unfinished, final)
        return
    try:
        os.link(unfinished, final)
    except FileExistsError as error:
        raise AlreadyThere(f"{final} is already there") from error
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        _claim(unfinished, final, point)  # a mounted file system without links
    else:
        unfinished.unlink()


def _claim(unfinished: Path, final: Path, point: str) -> None:
    def write(place: str) -> None:
        _make_folder(Path(place).parent, True)
        os.rename(unfinished, place)

    claims.create(pafs.LocalFileSystem(), str(final), write, point)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some mounted file systems cannot, and need not
            raise
    finally:
        os.close(handle)


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
