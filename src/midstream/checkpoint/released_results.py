"""How many results of a query are released, and how many are computed and wait until every register has passed them.

What users see counts released results, which is what `midstream results` shows and sinks are given. They are counted
with the batch that releases them, so that every view reads the same number from the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.file_entries import ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.result_files import read_starts
from midstream.operators.vectors import Numbers

Starts = Mapping[tuple[str, str], Numbers]
"""When the results of files start, by path and part, as far as that is known without reading them."""


def must_be_read(manifest: Manifest, known: Starts) -> bool:
    """Whether a file of the manifest's own batch has to be read to be counted: some of it is released, some waits."""
    return any(
        file.batch_id == manifest.batch_id
        and file.first_from < manifest.released.get(query, BEGINNING) <= file.last_from
        and (file.path, file.part) not in known
        for query, named in manifest.outputs.results.items()
        for file in named
    )


def still_waiting(manifest: Manifest, known: Starts) -> Starts:
    """What is known of files of which results wait after a batch."""
    waiting = {
        (file.path, file.part)
        for query, named in manifest.outputs.results.items()
        for file in named
        if file.last_from >= manifest.released.get(query, BEGINNING)
    }
    return {place: starts for place, starts in known.items() if place in waiting}


def counted(
    files: Files, manifest: Manifest, before: Manifest | None, queries: Iterable[str], known: Starts
) -> Manifest:
    """The manifest of a batch with what it has released of queries counted; what was lost in between never is."""
    for query in queries:
        since = BEGINNING if before is None else before.released.get(query, BEGINNING)
        until, named = manifest.released.get(query, BEGINNING), manifest.outputs.results.get(query, ())
        manifest = manifest.with_account(
            query,
            results=manifest.account(query).results + rows_between(files, named, since, until, known),
            waiting=rows_between(files, named, until, INFINITY, known),
        )
    return manifest


def rows_between(files: Files, named: Iterable[ResultFile], since: int, until: int, known: Starts | None = None) -> int:
    """How many results start from one instant to before another; only files that lie across one of them are read."""
    if since >= until:
        return 0
    found = 0
    for file in named:
        starts = None if known is None else known.get((file.path, file.part))
        if starts is None:
            found += _rows_from(files, file, since) - _rows_from(files, file, until)
        else:
            found += int(((starts >= since) & (starts < until)).sum())
    return found


@lru_cache(maxsize=4_096)
def _rows_from(files: Files, file: ResultFile, since: int) -> int:
    """The results of a file that start at an instant or later; a file never changes."""
    if file.last_from < since:
        return 0
    if file.first_from >= since:
        return file.rows
    return sum(int((starts >= since).sum()) for starts in read_starts(files, file))
