"""Local copies of remote files, shared by the processes of this machine.

A file is fetched under a name of its own and then renamed, so a copy is whole or absent, and two processes that fetch
at once do no harm. When the copies outgrow their share of the disk, those used longest ago go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from midstream.checkpoint.failures import told
from midstream.errors import JobError

CACHE_DIR = "MIDSTREAM_CACHE_DIR"
"""Where copies are kept; a folder of the user's in the system's place for temporary files if unset."""

CACHE_BYTES = "MIDSTREAM_CACHE_BYTES"
"""How much may be kept there."""

DEFAULT_BYTES = 8 << 30


def local_copy(address: str, fetch: Callable[[Path], None]) -> Path:
    """The local copy of a file; if it is not there yet, `fetch` writes it where it is told to."""
    copy = place_of(address)
    with contextlib.suppress(FileNotFoundError):
        os.utime(copy)
        return copy
    unfinished = copy.with_name(f".{copy.name}.{secrets.token_hex(4)}.tmp")
    with told("keep copies in", str(copy.parent)):
        _make_folder(copy.parent)
        try:
            fetch(unfinished)
            _make_room(copy.parent)
            os.replace(unfinished, copy)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    return copy


def place_of(address: str) -> Path:
    """Where the copy of a file is, or would be."""
    return folder() / hashlib.blake2b(address.encode(), digest_size=16).hexdigest()


def folder() -> Path:
    """The folder of all copies."""
    chosen = os.environ.get(CACHE_DIR)
    return Path(chosen) if chosen else Path(tempfile.gettempdir(), f"midstream-{os.getuid()}")


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        # Anybody may make a folder in the system's temporary place: state must not be read from a stranger's.
        raise JobError(f"{folder} belongs to another user", hint=f"set {CACHE_DIR} to a folder of your own")


def _make_room(folder: Path) -> None:
    limit = int(os.environ.get(CACHE_BYTES, DEFAULT_BYTES))
    copies = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            seen = entry.stat()
            copies.append((seen.st_mtime, seen.st_size, entry.path))
    total = sum(size for _, size, _ in copies)
    for _, size, path in sorted(copies)[:-1]:
        if total <= limit:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        total -= size
