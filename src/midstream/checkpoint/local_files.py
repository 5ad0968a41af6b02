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
        folder, name = os.path.split(final)
        unfinished = os.path.join(folder, f".{name}.{secrets.token_hex(4)}{TEMPORARY}")
        with storage_errors("write", final):
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
                    os.unlink(unfinished)
                raise
            if sync:
                _sync(folder)

    def read(self, path: str) -> bytes:
        with storage_errors("read", self.full(path)), open(self._path(path), "rb") as file:
            return file.read()

    def mapped(self, path: str) -> maps.Mapped:
        return maps.mapped(self.full(path))

    def list(self, dir: str) -> Paths:
        found: Paths = []
        with storage_errors("list", self.full(dir)):
            _walk(self._path(dir), f"{dir}/" if dir else "", found)
        return sorted(found)

    def delete(self, path: str) -> None:
        with storage_errors("delete", self.full(path)), contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(path))
        self.forget(path)

    def forget(self, path: str) -> None:
        maps.forget(self.full(path))

    def make(self, dir: str) -> None:
        with storage_errors("make the folder", self.full(dir)):
            _make_folder(Path(self._path(dir)), self.private)

    def exists(self, path: str) -> bool:
        with storage_errors("look for", self.full(path)):
            return os.path.isfile(self._path(path))

    def fingerprint(self, path: str) -> str | None:
        try:
            known = os.stat(self._path(path))
        except OSError:
            return None
        return f"{known.st_ino}-{known.st_ctime_ns}"

    def sync(self, dir: str) -> None:
        with storage_errors("sync", self.full(dir)):
            _sync(self._path(dir))

    def _path(self, path: str) -> str:
        return os.path.join(self.uri, path) if path else self.uri


def _walk(folder: str, prefix: str, found: Paths) -> None:
    """Adds the files under a folder, with a prefix; there are none in one that is missing."""
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if not entry.is_dir():
                found.append(prefix + entry.name)
            elif not entry.is_symlink():
                _walk(entry.path, f"{prefix}{entry.name}/", found)


def _write(path: str, pieces: Sequence[Data], point: str, private: bool) -> None:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600 if private else 0o666)

    try:
        file = open(path, "xb", opener=opener)  # noqa: SIM115
    except FileNotFoundError:
        _make_folder(Path(path).parent, private)
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


def _give_name(unfinished: str, final: str, only_if_absent: bool, point: str) -> None:
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
        os.unlink(unfinished)


def _claim(unfinished: str, final: str, point: str) -> None:
    def write(place: str) -> None:
        _make_folder(Path(place).parent, True)
        os.rename(unfinished, place)

    claims.create(pafs.LocalFileSystem(), final, write, point)


def _sync(folder: str | Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some mounted file systems cannot, and need not
            raise
    finally:
        os.close(handle)
