"""Small files of results and of dead letters, merged into fewer and larger ones.

Every batch adds small files. Those whose results were all released before the batch no longer change how the job goes
on, so files of like size are merged, eight at least; a row is rewritten a logarithmic number of times. A manifest names
either the old files or the merged one, so no reader sees both; the old ones are kept for a while for those that began
to read before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from midstream.algebra.time import BEGINNING
from midstream.runtime.checkpoint.manifest import DeadLetterFile, Manifest, ResultFile, Superseded

FEWEST = 8
"""How many files of like size are merged."""

LARGEST = 500_000
"""From how many rows on a file stays as it is."""

AT_ONCE = 1_000_000
"""How many rows are merged while a batch is under way."""

KEPT_SECONDS = 600.0
"""How long files that were merged stay for those who read them."""

File = ResultFile | DeadLetterFile
AnyFile = TypeVar("AnyFile", ResultFile, DeadLetterFile)


@dataclass(frozen=True, slots=True)
class Merge:
    """Files to become one: results of a query, or dead letters (`query` is None)."""

    query: str | None
    old: tuple[File, ...]

    @property
    def rows(self) -> int:
        """How many rows they have together."""
        return sum(file.rows for file in self.old)

    def merged(self, path: str) -> File:
        """The file that stands for all of them."""
        newest = max(file.batch_id for file in self.old)
        results = [file for file in self.old if isinstance(file, ResultFile)]
        if not results:
            return DeadLetterFile(path, self.rows, newest)
        first, last = min(f.first_from for f in results), max(f.last_from for f in results)
        return ResultFile(path, self.rows, first, last, newest)


def due(manifest: Manifest, turn: int = 0) -> list[Merge]:
    """What can be merged now, within a budget of rows; `turn` says whose turn it is first."""
    found = [*_of_results(manifest), *(Merge(None, files) for files in _alike(manifest.dead_letters))]
    chosen, left = [], AT_ONCE
    for merge in found[turn % len(found) :] + found[: turn % len(found)] if found else []:
        if merge.rows <= left:
            chosen.append(merge)
            left -= merge.rows
    return chosen


def _of_results(manifest: Manifest) -> Iterator[Merge]:
    for query, files in manifest.results.items():
        released = manifest.released.get(query, BEGINNING)
        # What the newest batch gave or released is what its sinks read.
        done = [f for f in files if f.last_from < released and f.batch_id < manifest.batch_id]
        yield from (Merge(query, alike) for alike in _alike(done))


def _alike(files: Sequence[AnyFile]) -> Iterator[tuple[AnyFile, ...]]:
    tiers: dict[int, list[AnyFile]] = defaultdict(list)
    for file in files:
        if file.rows < LARGEST:
            tiers[max(1, file.rows).bit_length() // FEWEST.bit_length()].append(file)
    for tier in tiers.values():
        chosen, rows = [], 0
        for file in tier:
            if rows + file.rows <= AT_ONCE:
                chosen.append(file)
                rows += file.rows
        if len(chosen) >= FEWEST:
            yield tuple(chosen)


def adopt(manifest: Manifest, merges: Iterable[tuple[Merge, File]], now: float) -> Manifest:
    """The manifest with merged files in the places of the old ones, where it still names all of those."""
    results: dict[str, Sequence[ResultFile]] = dict(manifest.results)
    dead: Sequence[DeadLetterFile] = manifest.dead_letters
    superseded = [file for file in manifest.superseded if now - file.since < KEPT_SECONDS]
    for merge, new in merges:
        if isinstance(new, DeadLetterFile):
            if set(merge.old) <= set(dead):
                dead = _exchanged(dead, merge, new)
                superseded += [Superseded(file.path, now) for file in merge.old]
        elif merge.query in results and set(merge.old) <= set(results[merge.query]):
            results[merge.query] = _exchanged(results[merge.query], merge, new)
            superseded += [Superseded(file.path, now) for file in merge.old]
    return replace(manifest, results=results, dead_letters=dead, superseded=superseded)


def _exchanged(files: Sequence[AnyFile], merge: Merge, new: AnyFile) -> list[AnyFile]:
    """The files with one in the place of the first of those that were merged."""
    gone = {file.path for file in merge.old}
    first = next(i for i, file in enumerate(files) if file.path in gone)
    left = [file for file in files[first:] if file.path not in gone]
    left.insert(0, new)
    return list(files[:first]) + left
