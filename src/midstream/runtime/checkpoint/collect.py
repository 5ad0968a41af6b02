"""Collecting rubbish: what no retained manifest names and no batch in progress made.

A name tells the batch that made the file. Up to the newest manifest's batch everything that counts is named, so the
rest there is left from lost attempts and dropped manifests; what is newer belongs to the batch under way.
"""

from __future__ import annotations

from collections.abc import Iterable

from midstream.runtime.checkpoint.files import Files
from midstream.runtime.checkpoint.names import DATA_FOLDERS, batch_of
from midstream.runtime.checkpoint.store import MANIFESTS, CheckpointStore


def garbage(store: CheckpointStore, files: Files) -> list[str]:
    """The files that can go, in order."""
    ids = store.batch_ids()
    if not ids:
        return []
    named: set[str] = set()
    for batch_id in ids:
        named |= store.read(batch_id).files()
    found = [path for folder in DATA_FOLDERS for path in files.list(folder) if path not in named]
    return sorted(path for path in [*found, *_unfinished(files)] if _at_most(path, ids[-1]))


def collect(store: CheckpointStore, files: Files) -> list[str]:
    """Removes what can go; gives what it removed."""
    removed = garbage(store, files)
    for path in removed:
        files.delete(path)
    return removed


def _unfinished(files: Files) -> Iterable[str]:
    return (path for path in files.list(MANIFESTS) if path.rpartition("/")[2].startswith("."))


def _at_most(path: str, batch_id: int) -> bool:
    made_by = batch_of(path)
    return made_by is not None and made_by <= batch_id
