"""Local copies of remote files, shared by the processes of this machine.

A file is fetched under a name of its own and then renamed, so a copy is whole or absent, and two processes that fetch
at once do no harm. When the copies outgrow their share of the disk, those used longest ago go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from midstream.checkpoint.failures import storage_errors
from midstream.errors import JobError

CACHE_DIR = "MIDSTREAM_CACHE_DIR"
"""In which folder copies are kept; one of the user's in the system's place for temporary files if unset."""

CACHE_BYTES = "MIDSTREAM_CACHE_BYTES"
"""How much may be kept there."""

DEFAULT_BYTES = 8 << 30

OWN_FOLDER = "midstream-copies"
"""The folder below the chosen one. Only it, and in it only what is named as a copy, is ever made room in."""

TAG = "CACHEDIR.TAG"
TAG_CONTENT = "Signature: 8a477f597d28d172789f06886806bc55\n# Copies of files of Midstream's checkpoints.\n"
"""What marks a folder as a cache, for us and for programs that make backups (bford.info/cachedir)."""

_COPY = re.compile(r"[0-9a-f]{32}|\.[0-9a-f]{32}\.[0-9a-f]{8}\.tmp")


def local_copy(address: str, fetch: Callable[[Path], None]) -> Path:
    """The local copy of a file; if it is not there yet, `fetch` writes it to the given path."""
    copy = place_of(address)
    with contextlib.suppress(FileNotFoundError):
        os.utime(copy)
        return copy
    unfinished = copy.with_name(f".{copy.name}.{secrets.token_hex(4)}.tmp")
    with storage_errors("keep copies in", str(copy.parent)):
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
    """The folder of all copies, which holds nothing else."""
    chosen = os.environ.get(CACHE_DIR)
    return Path(chosen or Path(tempfile.gettempdir(), f"midstream-{os.getuid()}"), OWN_FOLDER)


def _make_folder(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
        (folder / TAG).write_text(TAG_CONTENT)
    except FileExistsError:
        _require_ours(folder)


def _require_ours(folder: Path) -> None:
    # Anybody may make a folder in the system's temporary place: state must not be read from a stranger's.
    if folder.stat().st_uid != os.getuid():
        raise JobError(f"{folder} belongs to another user", hint=f"set {CACHE_DIR} to a folder of your own")
    with contextlib.suppress(FileNotFoundError):
        if (folder / TAG).read_text() == TAG_CONTENT:
            return
    if any(not _COPY.fullmatch(name) and name != TAG for name in os.listdir(folder)):
        raise JobError(
            f"{folder} is not a folder of copies: there are other files in it",
            hint=f"move them elsewhere, or set {CACHE_DIR} to another folder",
        )
    (folder / TAG).write_text(TAG_CONTENT)


def _make_room(folder: Path) -> None:
    limit = int(os.environ.get(CACHE_BYTES, DEFAULT_BYTES))
    copies = []
    for entry in os.scandir(folder):
        if not _COPY.fullmatch(entry.name):
            continue
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
