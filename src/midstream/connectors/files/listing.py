"""Which files of a folder are a stream's: all below it, but those that somebody has not finished.

As Spark has it: names that begin with a dot, or with an underscore and have no `=`, are unfinished, as are copies that
Hadoop has not finished. What cannot be listed is an error, never an empty folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from midstream.errors import InputError

PATTERN = frozenset("*?[]{}\\")
"""What makes a path a pattern for Spark."""


def is_unfinished(name: str) -> bool:
    """Whether a file or folder of this name is left out.

    >>> [name for name in ("a", "_a", ".a", "_a=1", "a._COPYING_") if is_unfinished(name)]
    ['_a', '.a', 'a._COPYING_']
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def require_folder(name: str, folder: Path) -> None:
    """Refuses a path that is no folder."""
    if folder.is_file():
        raise InputError(
            f"stream {name} cannot be read: {folder} is a file, and a stream is a folder of files",
            hint=f'give its folder as the path, and the option pathGlobFilter = "{folder.name}"',
        )
    if not folder.is_dir():
        raise InputError(
            f"stream {name} cannot be read: there is no folder {folder}",
            hint="relative paths in a job file are relative to the file",
        )


def names_of_files(name: str, folder: Path, pattern: str = "*") -> Iterator[str]:
    """The paths of a folder's files, relative to it; links are followed."""
    waiting, above = [""], {"": frozenset({os.path.realpath(folder)})}
    while waiting:
        within = waiting.pop()
        for entry in _listed(name, folder / within):
            path = f"{within}/{entry.name}" if within else entry.name
            if is_unfinished(entry.name):
                continue
            if _is_folder(name, entry):
                above[path] = _without_circles(name, entry, above[within])
                waiting.append(path)
            elif fnmatchcase(entry.name, pattern):
                yield path


def _without_circles(name: str, entry: os.DirEntry[str], above: frozenset[str]) -> frozenset[str]:
    """The folders that lie above the files of a folder, which must not be among them."""
    if not entry.is_symlink():
        return above
    real = os.path.realpath(entry.path)
    if any(place == real or place.startswith(real + os.sep) for place in above):
        raise InputError(
            f"stream {name} cannot be read: the link {entry.path} leads to a folder that it lies in",
            hint="remove the link, or give it a name that begins with a dot",
        )
    return above | {real}


def _listed(name: str, folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _cannot_be_listed(name, str(folder), error) from error


def _is_folder(name: str, entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        raise _cannot_be_listed(name, entry.path, error) from error


def _cannot_be_listed(name: str, folder: str, error: OSError) -> InputError:
    return InputError(
        f"stream {name} cannot be read: the folder {folder} cannot be listed",
        detail=error.strerror or str(error),
        hint="let the job read it, and start the job again; rows below it were not left out, but not read yet",
    )


def require_columns_of_files(name: str, path: str, columns: Collection[str]) -> None:
    """Refuses a folder that is named after a column and a value, as Spark writes them: columns come from files only."""
    for folder in path.split("/")[:-1]:
        column, mark, _ = folder.partition("=")
        if mark and column in columns:
            raise InputError(
                f"stream {name} has a column {column}, and a folder {folder}: columns come from files only",
                hint=f"write {column} into the files, or leave it out of the schema",
            )
