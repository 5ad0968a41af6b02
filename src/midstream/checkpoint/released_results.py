"""How many results of a query are released, and how many are computed and wait until every register has passed them.

What users see counts released results, which is what `midstream results` shows and sinks are given. They are counted
with the batch that releases them, so that every view reads the same number from the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.file_entries import ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.result_files import read_starts


def released_in_part(manifest: Manifest) -> bool:
    """Whether a file of the manifest's own batch holds results of which some are released and some wait."""
    return any(
        file.batch_id == manifest.batch_id
        and file.first_from < manifest.released.get(query, BEGINNING) <= file.last_from
        for query, named in manifest.outputs.results.items()
        for file in named
    )


def counted(files: Files, manifest: Manifest, before: Manifest | None, queries: Iterable[str]) -> Manifest:
    """The manifest of a batch with what it has released of queries counted; what was lost in between never is."""
    for query in queries:
        since = BEGINNING if before is None else before.released.get(query, BEGINNING)
        until, named = manifest.released.get(query, BEGINNING), manifest.outputs.results.get(query, ())
        manifest = manifest.with_account(
            query,
            results=manifest.account(query).results + rows_between(files, named, since, until),
            waiting=rows_between(files, named, until, INFINITY),
        )
    return manifest


def rows_between(files: Files, named: Iterable[ResultFile], since: int, until: int) -> int:
    """How many results start from one instant to before another; only files that lie across one of them are read."""
    return (
        sum(_rows_from(files, file, since) - _rows_from(files, file, until) for file in named) if since < until else 0
    )


@lru_cache(maxsize=4_096)
def _rows_from(files: Files, file: ResultFile, since: int) -> int:
    """The results of a file that start at an instant or later; a file never changes."""
    if file.last_from < since:
        return 0
    if file.first_from >= since:
        return file.rows
    return int((read_starts(files, file) >= since).sum())
