"""A name given once, on file systems that can rename but not refuse to overwrite.

Arrow's rename on HDFS deletes a file that has the new name, and a local rename replaces it. Renaming a folder does
neither: where a folder of that name exists, the rename fails, or the folder goes into it. So a process that wants a
name puts the content into a folder of its own and renames that to the name's claim. One attempt becomes the claim; its
content, whose name is its own, is then moved to the name. Others that find a claim without a file finish the move, so
that a process that dies in between blocks nobody. A claim is removed once the file is there; who claims after that sees
it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.failures import AlreadyThere


def create(filesystem: Any, final: str, write: Callable[[str], None], point: str) -> None:
    """Makes a file by `write(path)` and gives it its name; `AlreadyThere` if there is one of that name."""
    if is_file(filesystem, final):
        raise AlreadyThere(f"{final} is already there")
    claim = _Claim(filesystem, final)
    try:
        write(f"{claim.attempt}/{claim.content}")
        write_marker(filesystem, f"{claim.attempt}/{claim.marker}")
        reach(f"{point}.before_rename")
        won = claim.win()
        reach(f"{point}.after_rename")
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.delete_dir(claim.attempt)
        raise
    if not won:
        claim.help()
        raise AlreadyThere(f"{final} is already there")


class _Claim:
    """One attempt at a name."""

    def __init__(self, filesystem: Any, final: str) -> None:
        self.filesystem = filesystem
        self.final = final
        path, token = PurePosixPath(final), secrets.token_hex(8)
        self.content, self.marker = f".{path.name}.{token}.tmp", f".{path.name}.{token}.mark"
        self.attempt = str(path.with_name(f".{path.name}.{token}.attempt"))
        self.claim = str(path.with_name(f".{path.name}.claim"))

    def win(self) -> bool:
        """Whether the file got the name."""
        try:
            self.filesystem.move(self.attempt, self.claim)
        except OSError:
            # Another has the claim, or had it and has finished.
            if not _is_folder(self.filesystem, self.claim) and not is_file(self.filesystem, self.final):
                raise
        if not is_file(self.filesystem, f"{self.claim}/{self.marker}"):
            self._give_up()
            return False
        content = f"{self.claim}/{self.content}"
        if not is_file(self.filesystem, self.final):
            _move_once(self.filesystem, content, self.final)
        # A file that was there before leaves the content where it is; one that a helper made is the content.
        lost = is_file(self.filesystem, content)
        # Moved away first, so that it is gone at once, and nobody's claim comes into a folder half removed.
        self.filesystem.move(self.claim, self.attempt)
        self._remove(self.attempt)
        return not lost

    def _give_up(self) -> None:
        self._remove(self.attempt)
        self._remove(f"{self.claim}/{PurePosixPath(self.attempt).name}")

    def _remove(self, folder: str) -> None:
        """Removes a folder if it is there."""
        with contextlib.suppress(OSError):
            self.filesystem.delete_dir(folder)

    def help(self) -> None:
        """Finishes the move of the process that has the claim."""
        # In this order: a claim that was there while the name was free is the one that counts.
        found = self.filesystem.get_file_info(pafs.FileSelector(self.claim, allow_not_found=True))
        contents = [info.path for info in found if info.type == pafs.FileType.File and info.path.endswith(".tmp")]
        if contents and not is_file(self.filesystem, self.final):
            _move_once(self.filesystem, contents[0], self.final)


def _move_once(filesystem: Any, content: str, final: str) -> None:
    """Moves the content; somebody else may have done so."""
    try:
        filesystem.move(content, final)
    except OSError:
        if is_file(filesystem, content):
            raise


def write_marker(filesystem: Any, path: str) -> None:
    """An empty file."""
    with filesystem.open_output_stream(path, compression=None):
        pass


def is_file(filesystem: Any, place: str) -> bool:
    """Whether there is a file of that name."""
    return bool(filesystem.get_file_info(place).type == pafs.FileType.File)


def _is_folder(filesystem: Any, place: str) -> bool:
    return bool(filesystem.get_file_info(place).type == pafs.FileType.Directory)
