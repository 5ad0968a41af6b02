"""Storages that behave as remote ones do, for tests: objects that appear at once, and HDFS as Arrow drives it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from midstream.checkpoint.failures import AlreadyThere
from midstream.checkpoint.hdfs_files import HdfsFiles
from midstream.checkpoint.object_files import ObjectFiles
from midstream.checkpoint.remote_files import put

_LOCK = threading.Lock()


class MockObjects(ObjectFiles):
    """Objects in memory, with a conditional put."""

    def _put_new(self, path: str, content: bytes) -> None:
        filesystem, place = self._place(path)
        with _LOCK:
            if filesystem.get_file_info(place).type == pafs.FileType.File:
                raise AlreadyThere(f"{self.full(path)} is already there")
            put(filesystem, place, [content], "file")


def objects(uri: str = "mock://bucket/job", root: str = "bucket/job") -> MockObjects:
    """An empty object store."""
    return MockObjects(uri, pafs._MockFileSystem(), root)


class ArrowHdfs:
    """What Arrow makes of HDFS, over a local folder.

    HDFS refuses to rename onto a file, and Arrow then deletes that file and renames again. A folder renamed onto a
    folder goes into it. `before` is called before each operation.
    """

    def __init__(self, before: Any = None) -> None:
        self.local = pafs.LocalFileSystem()
        self.before = before or (lambda name, *places: None)
        self.clobbered: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.local, name)

        def called(*arguments: Any, **named: Any) -> Any:
            self.before(name, *arguments)
            return real(*arguments, **named)

        return called

    def open_output_stream(self, path: str, **named: Any) -> Any:
        self.before("open_output_stream", path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return self.local.open_output_stream(path, **named)

    def move(self, old: str, new: str) -> None:
        self.before("move", old, new)
        if not os.path.exists(old):
            raise OSError(f"cannot rename {old}")
        if os.path.isdir(new):
            os.rename(old, os.path.join(new, os.path.basename(old)))
        elif os.path.isfile(new):
            if os.path.isdir(old):
                raise OSError(f"cannot rename {old} to {new}")
            self.before("delete in move", new)
            os.unlink(new)
            self.clobbered.append(new)
            self.before("move in move", old, new)
            os.rename(old, new)
        else:
            os.rename(old, new)


def hdfs(folder: Path | str, filesystem: ArrowHdfs | None = None) -> HdfsFiles:
    """Files on HDFS."""
    return HdfsFiles("hdfs://host/job", filesystem or ArrowHdfs(), str(folder))
