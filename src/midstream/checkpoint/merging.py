"""Small files of results, of dead letters and of metrics, merged into fewer and larger ones.

Every batch adds small files. Those whose results were all released before the batch no longer change how the job goes
on, so files of like size are merged, eight at least; a row is rewritten a logarithmic number of times. A manifest names
either the old files or the merged one, so no reader sees both; the old ones are kept for a while for those that began
to read before. Files that several queries share are merged together, for as many of these as are done with them. What
a query that was replaced has given no longer grows: its files become one, however few they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.file_entries import DeadLetterFile, FileLog, MetricsFile, ResultFile, Superseded
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.metrics import mergeable
from midstream.checkpoint.records import grouped

FEWEST = 8
"""How many files of like size are merged."""

LARGEST = 500_000
"""From how many rows on a file stays as it is."""

AT_ONCE = 1_000_000
"""How many rows are merged while a batch is under way."""

KEPT_SECONDS = 600.0
"""How long files that were merged stay for those who read them."""

File = ResultFile | DeadLetterFile


@dataclass(frozen=True, slots=True)
class _Whole:
    """A file that queries share, with the rows that they are done with."""

    path: str
    rows: int


AnyFile = TypeVar("AnyFile", ResultFile, DeadLetterFile, _Whole)


@dataclass(frozen=True, slots=True)
class Merge:
    """Files to become one: results of a query, or dead letters (`query` is None)."""

    query: str | None
    old: tuple[File, ...]

    @property
    def rows(self) -> int:
        """How many rows they have together."""
        return sum(file.rows for file in self.old)

    def merged(self, path: str, checksum: int | None = None, size: int | None = None) -> File:
        """The file that stands for all of them."""
        newest = max(file.batch_id for file in self.old)
        results = [file for file in self.old if isinstance(file, ResultFile)]
        if not results:
            return DeadLetterFile(path, self.rows, newest, checksum, size)
        first, last = min(f.first_from for f in results), max(f.last_from for f in results)
        return ResultFile(path, self.rows, first, last, newest, "", checksum, size)


@dataclass(frozen=True, slots=True)
class SharedMerge:
    """Files in one folder that queries share, to become one; of each query, what is its own there."""

    folder: str
    old: Mapping[str, tuple[ResultFile, ...]]

    @property
    def rows(self) -> int:
        """How many rows they have together."""
        return sum(file.rows for files in self.old.values() for file in files)

    def merged(self, path: str, checksum: int | None = None, size: int | None = None) -> dict[str, ResultFile]:
        """What stands for each query's."""
        found = {}
        for query, files in self.old.items():
            share = None if size is None else size * sum(file.rows for file in files) // self.rows
            one = Merge(query, files).merged(path, checksum, share)
            assert isinstance(one, ResultFile)
            found[query] = replace(one, part=query)
        return found


@dataclass(frozen=True, slots=True)
class MetricsMerge:
    """Files of the metrics table to become one, one after the other."""

    old: tuple[MetricsFile, ...]

    @property
    def rows(self) -> int:
        """How many rows they have together."""
        return sum(file.rows for file in self.old)

    def merged(self, path: str, checksum: int | None = None, size: int | None = None) -> MetricsFile:
        """The file that stands for all of them."""
        return MetricsFile(path, self.rows, self.old[0].first_batch, self.old[-1].last_batch)


AnyMerge = Merge | SharedMerge | MetricsMerge
Made = File | Mapping[str, ResultFile] | MetricsFile


def due(manifest: Manifest, turn: int = 0) -> list[AnyMerge]:
    """What can be merged now, within a budget of rows; `turn` says whose turn it is first."""
    found: list[AnyMerge] = [
        *_of_results(manifest),
        *(Merge(None, files) for files in _alike(manifest.outputs.dead_letters.newer)),
    ]
    found += _of_shared(manifest)
    found += [MetricsMerge(tuple(alike))] if (alike := mergeable(manifest.outputs.metrics)) else []
    chosen, left = [], AT_ONCE
    for merge in found[turn % len(found) :] + found[: turn % len(found)] if found else []:
        if merge.rows <= left:
            chosen.append(merge)
            left -= merge.rows
    return chosen


def _of_results(manifest: Manifest) -> Iterator[Merge]:
    for query, log in manifest.outputs.results.items():
        if manifest.is_replaced(query):
            rest = [f for f in log.newer if not f.part and f.rows < LARGEST and f.batch_id < manifest.batch_id]
            yield from (Merge(query, part) for part in _within_budget(rest) if len(part) > 1)
        else:
            own = [file for file in _done(manifest, query) if not file.part]
            yield from (Merge(query, alike) for alike in _alike(own))


def _within_budget(files: Sequence[ResultFile]) -> Iterator[tuple[ResultFile, ...]]:
    """Runs of files that have no more rows together than are merged at once."""
    together: list[ResultFile] = []
    for file in files:
        if together and sum(f.rows for f in together) + file.rows > AT_ONCE:
            yield tuple(together)
            together = []
        together.append(file)
    if together:
        yield tuple(together)


def _done(manifest: Manifest, query: str) -> Iterator[ResultFile]:
    """The files that no longer change how a query goes on."""
    released = manifest.released.get(query, BEGINNING)
    # What the newest batch gave or released is what its sinks read.
    return (
        f for f in manifest.outputs.results[query].newer if f.last_from < released and f.batch_id < manifest.batch_id
    )


def _of_shared(manifest: Manifest) -> Iterator[SharedMerge]:
    done = ((query, file) for query in manifest.outputs.results for file in _done(manifest, query) if file.part)
    users = grouped((file.path, (query, file)) for query, file in done)
    folders: dict[str, list[_Whole]] = defaultdict(list)
    for path, used in users.items():
        if len({file.part for _, file in used}) < len(used):
            continue  # two queries name the same rows, and a merged file tells rows of one from those of others
        folders[path.rpartition("/")[0]].append(_Whole(path, sum(file.rows for _, file in used)))
    for folder, wholes in folders.items():
        for alike in _alike(wholes):
            old = grouped(each for whole in alike for each in users[whole.path])
            yield SharedMerge(folder, {query: tuple(files) for query, files in sorted(old.items())})


def _alike(files: Sequence[AnyFile]) -> Iterator[tuple[AnyFile, ...]]:
    small = (file for file in files if file.rows < LARGEST)
    tiers = grouped((max(1, file.rows).bit_length() // FEWEST.bit_length(), file) for file in small)
    for tier in tiers.values():
        chosen, rows = [], 0
        for file in tier:
            if rows + file.rows <= AT_ONCE:
                chosen.append(file)
                rows += file.rows
        if len(chosen) >= FEWEST:
            yield tuple(chosen)


def adopt(manifest: Manifest, merges: Iterable[tuple[AnyMerge, Made]], now: float) -> Manifest:
    """The manifest with merged files in the places of the old ones, where it still names all of those."""
    merges = list(merges)
    if not merges and not manifest.outputs.superseded:
        return manifest
    logs: dict[Any, FileLog[Any]] = {**manifest.outputs.results, None: manifest.outputs.dead_letters}
    gone: dict[str, None] = {}
    metrics: Sequence[Any] = manifest.outputs.metrics
    for merge, new in merges:
        if isinstance(merge, MetricsMerge) and set(merge.old) <= set(metrics):
            metrics = _exchanged(metrics, merge.old, new)
            gone |= dict.fromkeys(file.path for file in merge.old)
    for query, old, one in (part for merge, new in merges for part in _by_query(merge, new)):
        if query in logs and set(old) <= set(logs[query].newer):
            logs[query] = replace(logs[query], newer=_exchanged(logs[query].newer, old, one))
            gone |= dict.fromkeys(file.path for file in old)
    dead = logs.pop(None)
    superseded = [file for file in manifest.outputs.superseded if now - file.since < KEPT_SECONDS]
    superseded += [Superseded(path, now) for path in gone]
    return manifest.with_outputs(results=logs, dead_letters=dead, metrics=list(metrics), superseded=superseded)


def _by_query(merge: AnyMerge, new: Made) -> Iterator[tuple[str | None, Sequence[File], File]]:
    """What files become, by query; None: dead letters."""
    if isinstance(merge, SharedMerge):
        assert isinstance(new, Mapping)
        yield from ((query, old, new[query]) for query, old in merge.old.items())
    elif isinstance(merge, Merge):
        assert isinstance(new, File)
        yield merge.query, merge.old, new


def _exchanged(files: Sequence[Any], old: Sequence[object], new: object) -> tuple[Any, ...]:
    """The files with one in the place of the first of those that were merged."""
    gone = set(old)
    first = next(i for i, file in enumerate(files) if file in gone)
    return (*files[:first], new, *(file for file in files[first:] if file not in gone))
