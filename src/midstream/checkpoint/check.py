"""Checking a checkpoint: does every file that counts hold what was written?

Steps check what they open. This checks all of it, which is worth its time at a restart and when in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.opening import open_segment
from midstream.checkpoint.outputs import open_output, outputs_of
from midstream.checkpoint.packs import SegmentEntry
from midstream.errors import JobError


def check(files: Files, manifest: Manifest) -> list[JobError]:
    """What is wrong with the files that a manifest names; nothing if all is well.

    Segments, results, dead letters and lists are compared with their checksums; what has none is only looked for.
    """
    found = check_state(files, manifest)
    try:
        outputs = list(outputs_of(files, manifest))
    except JobError as damage:
        return [*found, damage]
    for output in outputs:
        files.forget(output.path)
    found += [error for output in outputs if (error := _wrong(open_output, files, output))]
    return [*found, *(error for path in _others(manifest) if (error := _wrong(_look_for, files, path)))]


def check_state(files: Files, manifest: Manifest) -> list[JobError]:
    """What is wrong with the segments that a manifest names."""
    for path in sorted({entry.file for entry in manifest.entries()}):
        files.forget(path)
    return [error for entry in _each_once(manifest.entries()) if (error := _wrong(open_segment, files, entry))]


def _others(manifest: Manifest) -> list[str]:
    """The files that have neither segments nor results, and are not merely kept for readers."""
    return [file.path for file in manifest.outputs.metrics]


def _each_once(entries: Iterable[SegmentEntry]) -> Iterable[SegmentEntry]:
    """Stored segments, each once however many parts of it are in use."""
    return {(entry.file, entry.offset): entry for entry in entries}.values()


def _look_for(files: Files, path: str) -> None:
    if not files.exists(path):
        raise MissingFile(f"the file {files.full(path)} is missing", hint=_RESTORE)


def _wrong(look: Callable[[Files, Any], object], files: Files, what: Any) -> JobError | None:
    try:
        look(files, what)
    except JobError as error:
        return error
    return None


_RESTORE = "restore it from a copy of the checkpoint"
