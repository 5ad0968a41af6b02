"""Files on HDFS, through Arrow.

HDFS shows a file while it grows, so a file is written under a name that nobody reads and then renamed. Arrow deletes
what has the new name before it renames, so a name that must be new is given through a claim.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from midstream.checkpoint import claims
from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.files import TEMPORARY, Data
from midstream.checkpoint.remote_files import RemoteFiles, put


class HdfsFiles(RemoteFiles):
    """Files under an address of HDFS."""

    def _replace(self, path: str, pieces: Sequence[Data], point: str) -> None:
        filesystem, final = self._place(path)
        unfinished = _unfinished(final)
        try:
            put(filesystem, unfinished, pieces, point)
            reach(f"{point}.before_rename")
            filesystem.move(unfinished, final)
            reach(f"{point}.after_rename")
        except BaseException:
            with contextlib.suppress(OSError):
                filesystem.delete_file(unfinished)
            raise

    def _create(self, path: str, pieces: Sequence[Data], point: str) -> None:
        filesystem, final = self._place(path)

        claims.create(filesystem, final, lambda unfinished: put(filesystem, unfinished, pieces, point), point)


def _unfinished(final: str) -> Any:
    path = PurePosixPath(final)
    return str(path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}"))
