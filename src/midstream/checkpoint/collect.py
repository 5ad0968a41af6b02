"""Collecting rubbish: what no retained manifest names and no batch in progress made.

A name tells the batch that made the file. Up to the newest manifest's batch everything that counts is named, so the
rest there is left from lost attempts and dropped manifests; what is newer belongs to the batch under way. Only names
that the job gives to its files are looked at: whatever else somebody has put there stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import listed_in
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import DATA_FOLDERS, issued
from midstream.checkpoint.retention import refused_long_ago
from midstream.checkpoint.store import MANIFESTS, SUFFIX, CheckpointStore

_UNFINISHED = re.compile(
    rf"{MANIFESTS}/(?:\.[^/]+/)?\.(?P<batch>\d{{12,}}){re.escape(SUFFIX)}\.[0-9a-f]{{8,16}}\.(?:tmp|mark)"
)
"""An unfinished manifest, also within an attempt at its name where a file system cannot refuse to overwrite."""


def garbage(store: CheckpointStore, files: Files, newest: Manifest | None = None) -> list[str]:
    """The files that can go, in order; `newest` is the newest manifest, if the caller has it.

    It lists all folders: something for now and then.
    """
    ids = store.batch_ids()
    if not ids:
        return []
    newest = newest if newest is not None and newest.batch_id == ids[-1] else store.read(ids[-1])
    own, lists = _named(store, ids)
    named = own | listed_in(files, lists)
    found = [path for folder in DATA_FOLDERS for path in files.list(folder) if path not in named]
    batches = {path: issued(path) for path in found} | _unfinished(files)
    left = [path for path, batch_id in batches.items() if batch_id is not None and batch_id <= ids[-1]]
    return sorted([*left, *refused_long_ago(files, newest)])


def collect(store: CheckpointStore, files: Files) -> list[str]:
    """Removes what can go; gives what it removed."""
    found = garbage(store, files)
    remove(files, found)
    return found


def remove(files: Files, paths: Iterable[str]) -> None:
    """Removes files one after the other."""
    for path in paths:
        reach("collect.before_delete")
        files.delete(path)


def _named(store: CheckpointStore, ids: Iterable[int]) -> tuple[set[str], set[str]]:
    """The files, and among them the lists, that some manifests name."""
    own: set[str] = set()
    lists: set[str] = set()
    for batch_id in ids:
        named = store.named(batch_id)
        own |= named.files
        lists |= named.lists
    return own, lists


def _unfinished(files: Files) -> dict[str, int]:
    """Manifests that were never given their names, with their batches."""
    found = ((path, _UNFINISHED.fullmatch(path)) for path in files.list(MANIFESTS))
    return {path: int(match["batch"]) for path, match in found if match is not None}
