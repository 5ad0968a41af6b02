"""Checking a checkpoint: does every file that counts hold what was written?

Steps check what they open. This checks all of it, which is worth its time at a restart and when in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable

from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import listed_in
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.packs import SegmentEntry, open_segment
from midstream.errors import JobError


def check(files: Files, manifest: Manifest) -> list[JobError]:
    """What is wrong with the files that a manifest names; nothing if all is well.

    Segments are compared with their checksums, lists too; of results and dead letters only the presence is known.
    """
    for path in sorted({entry.file for entry in manifest.entries()}):
        files.forget(path)
    found = [error for entry in _each_once(manifest.entries()) if (error := _wrong(files, entry))]
    lists = [listed.path for listed in manifest.lists()]
    try:
        outputs = manifest.files() | listed_in(files, lists)
    except JobError as error:
        return [*found, error]
    states = {entry.file for entry in manifest.entries()}
    present = {path for folder in {_folder(path) for path in outputs - states} for path in files.list(folder)}
    missing = sorted(outputs - states - present)
    return [*found, *(JobError(f"the file {files.full(path)} is missing", hint=_RESTORE) for path in missing)]


def _each_once(entries: Iterable[SegmentEntry]) -> Iterable[SegmentEntry]:
    """Stored segments, each once however many parts of it are in use."""
    return {(entry.file, entry.offset): entry for entry in entries}.values()


def _wrong(files: Files, entry: SegmentEntry) -> JobError | None:
    try:
        open_segment(files, entry)
    except JobError as error:
        return error
    return None


def _folder(path: str) -> str:
    return path.partition("/")[0]


_RESTORE = "restore it from a copy of the checkpoint"
