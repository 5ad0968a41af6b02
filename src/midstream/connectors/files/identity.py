"""Which of a folder's files were read: also when the folder is another one than before, or has another name.

A file is known by its path within the folder, its size and when it was last written, and manifests say which folder
that was. If a stream's folder is another one, each file that was read is looked for:

- where it was, if that lies within the new folder and it is still there;
- under its old path in the new folder, or else under its old name anywhere in it: with the same size and the same time
  it is the file, moved, or a copy if it has the same bytes as the one that is still where it was;
- where it was, beside the new folder.

Files that stay where they were may come into the new folder later: a file there of the same name, size and time, and
with the same bytes if the other one is still there, is one that was read.

What cannot be told by this is refused: a file of an old name, but another size or time, whose old one is gone. So no
file is read twice, and none is taken for another. Files that are not in the new folder stay known, by their paths from
there.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from midstream.checkpoint.file_entries import SourceFile
from midstream.checkpoint.records import grouped
from midstream.errors import JobError


@dataclass(frozen=True, slots=True)
class KnownFolder:
    """The files that were read of a stream, relative to the folder that it had."""

    stream: str
    folder: str
    files: Sequence[SourceFile]

    def seen_from(self, folder: Path, present: Sequence[SourceFile]) -> Sequence[SourceFile]:
        """The same files as they are called from another folder, which has those that are present."""
        now = os.path.realpath(folder)
        if now == self.folder:
            return self.files
        by_path = {file.path: file for file in present}
        moved = grouped((_mark(file), file.path) for file in present)
        return [replace(file, path=self._seen_from(now, file, by_path, moved)) for file in self.files]

    def _seen_from(
        self,
        folder: str,
        file: SourceFile,
        present: Mapping[str, SourceFile],
        moved: Mapping[tuple[str, int, int], Sequence[str]],
    ) -> str:
        old = os.path.normpath(os.path.join(self.folder, file.path))
        here = present.get(file.path)
        if here is not None and _mark(here) == _mark(file):
            return file.path
        alike, stayed = moved.get(_mark(file), ()), os.path.relpath(old, folder)
        if stayed in present:
            return stayed
        if os.path.exists(old):
            same = [file.path] if here is not None and here.size == file.size else list(alike)
            copies = [path for path in same if _alike(old, os.path.join(folder, path))]
            if len(copies) > 1:
                raise self._cannot_tell(folder, file, None, copies)
            return copies[0] if copies else stayed
        if len(alike) == 1:
            return alike[0]
        if here is not None or alike:
            raise self._cannot_tell(folder, file, here, alike)
        return stayed

    def _cannot_tell(self, folder: str, file: SourceFile, here: SourceFile | None, alike: Sequence[str]) -> JobError:
        if here is None:
            detail = f"there are {len(alike)} files of its name, size and time"
        else:
            detail = f"the file of its path there has {here.size:,} bytes and was written at another time"
        return JobError(
            f"stream {self.stream} has another folder than before, {folder}, and it cannot be told whether its file "
            f"{file.path} was read",
            detail=f"it was read from {self.folder}, with {file.size:,} bytes; {detail}",
            hint="keep the times of files when they are moved (mv, cp -p, rsync -t); to read another folder from its "
            "beginning, give the stream another name or the job a new checkpoint",
        )


Marked = Mapping[tuple[str, int, int], Sequence[str]]
"""Whole paths of files, by what files are recognised that were moved."""


def outside(folder: str, read: Iterable[SourceFile]) -> Marked:
    """Files that were read and lie outside of a folder."""
    beside = (file for file in read if file.path.startswith(os.pardir + os.sep))
    return grouped((_mark(file), os.path.normpath(os.path.join(folder, file.path))) for file in beside)


def come_since(folder: str, elsewhere: Marked, found: Sequence[SourceFile]) -> set[str]:
    """The paths of files in a folder that were read where they lay, outside of it, and were moved or copied since."""
    return {
        file.path
        for file in found
        for old in elsewhere.get(_mark(file), ())
        if not os.path.exists(old) or _alike(old, os.path.join(folder, file.path))
    }


def _mark(file: SourceFile) -> tuple[str, int, int]:
    """By what a file is recognised that was moved."""
    return os.path.basename(file.path), file.size, file.modified


def _alike(one: str, other: str) -> bool:
    return filecmp.cmp(one, other, shallow=False)
