"""Lists of older files, so that a manifest stays short however long the job runs.

Result files whose results are all released, and dead letters, no longer change how a job goes on. Once there are many,
their names move into a list file that manifests name instead; lists of like size are merged into one, so that a
manifest names a logarithmic number of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from functools import lru_cache
from typing import Any

from midstream.checkpoint.file_entries import DeadLetterFile, ListFile, ResultFile, SourceFile, Superseded
from midstream.checkpoint.files import Files
from midstream.checkpoint.format import damaged, seal, unseal
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import LISTS, name_for

KIND = "list"
FORMAT_VERSION = 1

MOST_NAMED = 256
"""How many old files a manifest names itself before they move into a list."""

MOST_KEPT = 64
"""How many files that were merged a manifest names itself, while they are kept for readers."""

TOGETHER = 75.0
"""Files that were merged within so many seconds are in one list."""

TIER = 8
"""How many lists of like size are merged into one."""


def shorten(files: Files, manifest: Manifest, most: int | None = None) -> Manifest:
    """The manifest with old result and dead-letter files moved into lists, where they are more than `most`.

    To be called before the commit; it writes lists only when it moves something.
    """
    most = MOST_NAMED if most is None else most
    parts = (*manifest.outputs.results.values(), manifest.outputs.dead_letters, *manifest.streams.files.values())
    if max(map(len, parts)) <= most and len(manifest.outputs.superseded) <= MOST_KEPT:
        return manifest
    results, listed = dict(manifest.outputs.results), dict(manifest.outputs.listed)
    for query, named in manifest.outputs.results.items():
        released = manifest.released.get(query)
        done = [file for file in named if released is not None and file.last_from < released]
        if len(done) > most:
            gone = set(done)
            results[query] = tuple(file for file in named if file not in gone)
            listed[query] = _grown(files, manifest.batch_id, listed.get(query, ()), done)
    dead, dead_listed = manifest.outputs.dead_letters, manifest.outputs.listed_dead_letters
    if len(dead) > most:
        dead, dead_listed = (), _grown(files, manifest.batch_id, dead_listed, dead)
    sources, sources_listed = dict(manifest.streams.files), dict(manifest.streams.listed)
    for stream, read in manifest.streams.files.items():
        if len(read) > most:
            sources_listed[stream] = _grown(files, manifest.batch_id, sources_listed.get(stream, ()), read)
            sources[stream] = ()
    return manifest.with_streams(files=sources, listed=sources_listed).with_outputs(
        results=results,
        listed=listed,
        dead_letters=dead,
        listed_dead_letters=dead_listed,
        superseded=_superseded(files, manifest),
    )


def _superseded(files: Files, manifest: Manifest) -> Sequence[Superseded]:
    """The files that were merged, in a list of their own where they have become many."""
    single = [file for file in manifest.outputs.superseded if not file.is_list]
    if len(single) <= MOST_KEPT:
        return manifest.outputs.superseded
    path = name_for(LISTS, manifest.batch_id, slot=0, stage=0)
    newest = max(file.since for file in single)
    lists = [file for file in manifest.outputs.superseded if file.is_list]
    # A list goes with its newest file, so only files of about one time are put together.
    joined = [file for file in lists if file.since // TOGETHER == newest // TOGETHER]
    rows = [*(row for file in joined for row in read_list(files, file.path)), *((f.path, f.since) for f in single)]
    files.write_atomic(path, seal(KIND, FORMAT_VERSION, {"files": rows}), point="list", sync=False)
    return [*(file for file in lists if file not in joined), Superseded(path, newest)]


def results_of(files: Files, manifest: Manifest, query: str) -> Iterator[ResultFile]:
    """All result files of a query, oldest first."""
    for named in manifest.outputs.listed.get(query, ()):
        yield from (ResultFile(*row) for row in read_list(files, named.path))
    yield from manifest.outputs.results.get(query, ())


def sources_of(files: Files, manifest: Manifest, stream: str) -> Iterator[SourceFile]:
    """All files that were read of a stream's folder, oldest first."""
    for named in manifest.streams.listed.get(stream, ()):
        yield from (SourceFile(*row) for row in read_list(files, named.path))
    yield from manifest.streams.files.get(stream, ())


def dead_letters_of(files: Files, manifest: Manifest) -> Iterator[DeadLetterFile]:
    """All dead-letter files, oldest first."""
    for named in manifest.outputs.listed_dead_letters:
        yield from (DeadLetterFile(*row) for row in read_list(files, named.path))
    yield from manifest.outputs.dead_letters


def listed_in(files: Files, lists: Iterable[str]) -> set[str]:
    """All files that lists name."""
    return {row[0] for path in lists for row in read_list(files, path)}


@lru_cache(maxsize=64)
def read_list(files: Files, path: str) -> tuple[tuple[Any, ...], ...]:
    """The rows of a list, the path first in each; lists never change."""
    name = files.full(path)
    content = unseal(KIND, FORMAT_VERSION, files.read(path), name)
    try:
        return tuple(tuple(row) for row in content["files"])
    except (KeyError, TypeError) as error:
        raise damaged(name, f"{type(error).__name__}: {error}") from error


def _grown(
    files: Files, batch_id: int, lists: Sequence[ListFile], moved: Sequence[ResultFile | DeadLetterFile | SourceFile]
) -> tuple[ListFile, ...]:
    """The lists with one more, after merging the newest while there are many of like size."""
    rows: tuple[tuple[Any, ...], ...] = tuple(astuple(file) for file in moved)
    kept = list(lists)
    while len(kept) >= TIER - 1 and all(_size(a.files) <= _size(len(rows)) for a in kept[-(TIER - 1) :]):
        merged, kept = kept[-(TIER - 1) :], kept[: -(TIER - 1)]
        rows = tuple(row for named in merged for row in read_list(files, named.path)) + rows
    path = name_for(LISTS, batch_id, slot=0, stage=0)
    files.write_atomic(path, seal(KIND, FORMAT_VERSION, {"files": rows}), point="list", sync=False)
    return (*kept, ListFile(path, len(rows), sum(row[1] for row in rows)))


def _size(files: int) -> int:
    """The tier a list is in."""
    return files.bit_length() // TIER.bit_length()
