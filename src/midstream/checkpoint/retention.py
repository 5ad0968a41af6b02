"""Retention: results, dead letters and results of replaced queries go once they are old, many or large enough.

Whole files go, the oldest first, and only such as no retained manifest can still have to deliver. What is left of a
query is all that starts at or after an instant, which its account remembers with the number of rows that went: nobody
who reads takes a part for the whole. Age is by the clock, as the metrics table has it for each batch.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from midstream.algebra.time import BEGINNING, INFINITY, TIMESTAMP_TIME, instant, ticks
from midstream.checkpoint.file_entries import DeadLetterFile, ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import dead_letters_of, results_of, without
from midstream.checkpoint.looked_up import looked_up
from midstream.checkpoint.manifest import REPLACED, Manifest
from midstream.checkpoint.metrics import metrics_of
from midstream.checkpoint.names import REHEARSED
from midstream.checkpoint.refused import refused_files
from midstream.errors import JobError, MidstreamError

KINDS = ("results", "dead_letters", "replaced")
"""What can be retained for a while only: results of running queries, dead letters, results of replaced queries."""

OF_SINKS = "of_sinks"
"""Up to which batch rows that sinks did not take are removed: their files, which no manifest names, go after it."""

MOST = 1e15
"""More days, bytes or batches than this are taken for a mistake."""

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_BYTES = {"kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}

File = TypeVar("File", ResultFile, DeadLetterFile)


class RemovedWarning(UserWarning):
    """Some of what was asked for has been removed by retention."""


@dataclass(frozen=True, slots=True)
class RetentionLimit:
    """How much is kept: an age in seconds, a number of bytes, or a number of batches."""

    text: str
    seconds: float | None = None
    bytes: int | None = None
    batches: int | None = None

    @staticmethod
    def of(text: object, place: str) -> RetentionLimit:
        """The limit that a text says.

        >>> RetentionLimit.of("30 days", "retention").seconds, RetentionLimit.of("2 GB", "retention").bytes
        (2592000.0, 2147483648)
        >>> RetentionLimit.of("500 batches", "retention").batches
        500
        """
        found = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
        hint = "write for instance '30 days', '10 GB' or '500 batches'"
        if found is None or not 0 < float(found[1]) < MOST:
            raise JobError(f"{place} cannot be {text!r}", hint=hint)
        number, unit = float(found[1]), found[2].lower()
        if unit in ("batch", "batches") and number == int(number):
            return RetentionLimit(found[0], batches=int(number))
        if unit in _BYTES:
            return RetentionLimit(found[0], bytes=int(number * _BYTES[unit]))
        try:
            return RetentionLimit(found[0], seconds=ticks(found[0], TIMESTAMP_TIME) / 1e6)
        except MidstreamError as error:
            raise JobError(f"{place} cannot be {text!r}", hint=hint) from error


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits of a job; without one, a kind is kept for ever."""

    limits: Mapping[str, RetentionLimit]

    @staticmethod
    def of(wanted: Mapping[str, object] | None, place: str = "retention") -> Retention:
        """The limits that are asked for by kind."""
        if wanted is not None and not isinstance(wanted, Mapping):
            raise JobError(f"{place} is a table of {', '.join(KINDS)}, not {wanted!r}")
        for kind in wanted or ():
            if kind not in KINDS:
                raise JobError(f"there is no retention of {kind!r}", hint=f"use {', '.join(KINDS)}")
        return Retention({kind: RetentionLimit.of(text, f"{place}.{kind}") for kind, text in (wanted or {}).items()})

    @property
    def record(self) -> dict[str, str]:
        """The limits in words."""
        return {kind: limit.text for kind, limit in self.limits.items()}

    def applied(self, files: Files, manifest: Manifest, oldest: Manifest, now: float) -> Manifest:
        """The manifest without what has outlived its limit; `oldest` is the oldest manifest that is retained."""
        if not self.limits:
            return manifest
        clock = _Clock(files, manifest, now)
        for query, entry in manifest.queries.items():
            limit = self.limits.get("replaced" if entry.status == REPLACED else "results")
            if limit is not None:
                manifest = _without_old_results(files, manifest, query, limit, oldest, clock)
        if "dead_letters" in self.limits:
            manifest = _without_old_dead_letters(files, manifest, self.limits["dead_letters"], clock)
        return manifest


@dataclass(frozen=True)
class _Clock:
    """When batches were done; the metrics table is read once, whatever the number of queries."""

    files: Files
    manifest: Manifest
    now: float

    @looked_up
    def _done(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        table = metrics_of(self.files, self.manifest)
        times = np.asarray(table.column("at").cast("int64").to_numpy(), np.int64)
        return np.asarray(table.column("batch_id").to_numpy(), np.int64), times

    def last_before(self, seconds: float) -> int:
        """The last batch that is older than so many seconds; -1 if there is none."""
        batches, times = self._done
        old = batches[times < (self.now - seconds) * 1e6]
        return int(old.max()) if len(old) else -1


def _without_old_results(
    files: Files, manifest: Manifest, query: str, limit: RetentionLimit, oldest: Manifest, clock: _Clock
) -> Manifest:
    known = list(results_of(files, manifest, query))
    gone = _outlived(
        known, [f for f in known if f.last_from < _delivered_before(manifest, oldest, query)], limit, clock
    )
    replaced = manifest.queries[query].status == REPLACED
    if replaced and len(gone) == len(known):
        return manifest.without([query])
    if not gone:
        return manifest
    results = {**manifest.outputs.results}
    results[query] = without(files, results[query], ResultFile, {file.path for file in gone})
    before = manifest.account(query).removed or {"rows": 0, "before": BEGINNING}
    removed = {
        "rows": before["rows"] + sum(file.rows for file in gone),
        "before": max(before["before"], *(file.last_from + 1 for file in gone)),
        "batch": manifest.batch_id,
    }
    return manifest.with_outputs(results=results).with_account(query, removed=removed)


def _delivered_before(manifest: Manifest, oldest: Manifest, query: str) -> int:
    """Before this instant, results are delivered and compared, whichever retained manifest is gone on from."""
    if manifest.queries[query].status == REPLACED:  # what it had not released then is never delivered
        known = oldest.queries.get(query)
        return INFINITY if known is not None and known.status == REPLACED else BEGINNING
    verifying = manifest.account(query.removesuffix(REHEARSED)).verifying  # a copy's results are compared with its own
    released = [known.released.get(query, BEGINNING) for known in (manifest, oldest)]
    return min([*released, *([] if verifying is None else [int(verifying["since"])])])


def _without_old_dead_letters(files: Files, manifest: Manifest, limit: RetentionLimit, clock: _Clock) -> Manifest:
    own, of_sinks = list(dead_letters_of(files, manifest)), refused_files(files)
    paths = {file.path for file in _outlived([*own, *of_sinks], [*own, *of_sinks], limit, clock)}
    if not paths:
        return manifest
    outputs = manifest.outputs
    before, gone = outputs.removed_dead_letters or {}, [file for file in own if file.path in paths]
    removed = {
        "rows": before.get("rows", 0) + sum(file.rows for file in gone),
        "last_batch": max([before.get("last_batch", -1), *(file.batch_id for file in gone)]),
        "batch": manifest.batch_id,
        OF_SINKS: max([before.get(OF_SINKS, -1), *(file.batch_id for file in of_sinks if file.path in paths)]),
    }
    left = without(files, outputs.dead_letters, DeadLetterFile, paths)
    return manifest.with_outputs(dead_letters=left, removed_dead_letters=removed)


def refused_long_ago(files: Files, manifest: Manifest) -> list[str]:
    """The files of rows that sinks did not take, of batches up to the one of which a manifest says that they go."""
    last = (manifest.outputs.removed_dead_letters or {}).get(OF_SINKS, -1)
    return [] if last < 0 else [file.path for file in refused_files(files) if file.batch_id <= last]


def _outlived(known: Sequence[File], may_go: Sequence[File], limit: RetentionLimit, clock: _Clock) -> list[File]:
    """The files that have outlived a limit, of those that may go."""
    ordered = sorted(may_go, key=lambda file: file.batch_id)
    if limit.bytes is not None:
        over, gone = sum(file.bytes or 0 for file in known) - limit.bytes, []
        for file in ordered:
            if over <= 0:
                break
            gone.append(file)
            over -= file.bytes or 0
        return gone
    if limit.batches is not None:
        last = clock.manifest.batch_id - limit.batches
    else:
        assert limit.seconds is not None
        last = clock.last_before(limit.seconds)
    return [file for file in ordered if file.batch_id <= last]


def kept_from(manifest: Manifest, query: str) -> int:
    """The instant from which on a query's results are kept."""
    removed = manifest.account(query).removed
    return BEGINNING if removed is None else int(removed["before"])


def removed_text(manifest: Manifest, query: str) -> str | None:
    """What has been removed of a query's results, in words."""
    removed = manifest.account(query).removed
    if removed is None:
        return None
    before = instant(removed["before"], manifest.domain(query))
    return f"{removed['rows']:,} results of query {query} that start before {before} were removed by retention"


def warn_of_removed(manifest: Manifest, query: str, since: int) -> None:
    """Warns a reader of results that were removed."""
    record = removed_text(manifest, query)
    if record is not None and since < kept_from(manifest, query):
        warnings.warn(record, RemovedWarning, stacklevel=3)


def removed_letters(manifest: Manifest) -> list[str]:
    """What has been removed of dead letters, in words."""
    removed, said = manifest.outputs.removed_dead_letters or {}, []
    if removed.get("rows"):
        said.append(f"{removed['rows']:,} dead letters, up to batch {removed['last_batch']}, were removed by retention")
    if (last := removed.get(OF_SINKS, -1)) >= 0:
        said.append(f"results that sinks did not take, up to batch {last}, were removed by retention")
    return said


def warn_of_removed_dead_letters(manifest: Manifest) -> None:
    """Warns a reader of dead letters that were removed."""
    for record in removed_letters(manifest):
        warnings.warn(record, RemovedWarning, stacklevel=3)
