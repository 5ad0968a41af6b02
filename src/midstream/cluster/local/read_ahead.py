"""The rows of the next batch, read while the batch before it is under way.

What was read ahead counts only if the next batch has exactly these parts (files of a folder, or spans of a source);
else, and where reading failed, the batch reads its parts itself, and says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from midstream.checkpoint.files import begin

FEW, MOST = 2**18, 64 * 2**20
"""Up to how many bytes files are few, and up to how many they are read ahead.

Few would only take turns with the steps of a batch; they are read while the batch waits for its disk.
"""

Parts = Mapping[str, Sequence[Any]]
"""The parts of a batch, by stream; each has a size in bytes."""

Found = dict[str, tuple[pa.Table, Sequence[Any]]]
"""Rows by stream, and the parts that have them as they were when they were read."""


class ReadAhead:
    """Reads files by stream, some of them ahead."""

    def __init__(self, read: Callable[[str, Sequence[Any]], tuple[pa.Table, Sequence[Any]]]) -> None:
        self._read = read
        self._files: Parts = {}
        self._few: Parts | None = None
        self._found: Found = {}
        self._begun: Future[None] | None = None

    def begin(self, files: Parts) -> None:
        """Starts to read files ahead, unless they are few or too large."""
        self._files, self._found, self._few, self._begun = files, {}, None, None
        size = sum(file.size for some in files.values() for file in some)
        if 0 < size < FEW:
            self._few = files
        elif FEW <= size <= MOST:
            self._begun = begin(self._read_into, files, self._found)

    def begin_few(self) -> None:
        """Starts to read files ahead that are few."""
        files, self._few = self._few, None
        if files is not None:
            self._begun = begin(self._read_into, files, self._found)

    def take(self, files: Parts) -> Found:
        """What files hold."""
        found: Found = {}
        begun, self._begun, self._few = self._begun, None, None
        if begun is not None and self._files == files and begun.exception() is None:
            return self._found
        self._read_into(files, found)
        return found

    def _read_into(self, files: Parts, found: Found) -> None:
        for name, some in files.items():
            found[name] = self._read(name, some)
