"""Looks: what some rows of a source say about its selections and keys, row by row, so that looks can be put together.

Rows to look at are those of the smallest priority, a number made of a row's time and of its place among the rows of
that time. The rows of smallest priority of all are among those of each part, so it does not matter how rows lie in
slots: what the slots saw is put together, and the rows beyond what every slot is complete to are left out again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.adaptation.wanted_statistics import WantedStatistics
from midstream.algebra.declarations import UserFunction
from midstream.algebra.expressions import Column, Expression, columns_of
from midstream.operators.elements import Hashes, Mask, Ticks, concatenate_batches
from midstream.operators.expressions import CompiledExpression, Predicate
from midstream.operators.hashing import hash_columns, key_validity

LOOK_AT = 1024
"""How many rows of a source are looked at in a batch."""

PAIRED = 96
"""How many rows of each of two sources are paired to estimate conditions that are no equalities."""

EVERYTHING = 2**64 - 1

Key = tuple[Hashes, Mask | None]
"""The hash of a key for each row, and for which rows it counts; None: for all."""


@dataclass(slots=True)
class Sample:
    """Some rows of a source: how many of the selections each passes, in their order, and the hashes of its keys.

    `paired` are a few rows that pass all selections. Rows are in order of their priorities, and all rows of the source
    with a priority up to `complete_to` are here.
    """

    passed: npt.NDArray[np.uint8]
    keys: dict[str, Key]
    width: float
    priorities: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    complete_to: int = EVERYTHING
    paired: pa.RecordBatch | None = None
    paired_priorities: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))

    @property
    def rows(self) -> int:
        """How many rows were looked at."""
        return len(self.passed)

    def hashes(self, text: str) -> Hashes:
        """The hashes of a key of the rows that count."""
        hashes, counts = self.keys[text]
        return hashes if counts is None else hashes[counts]


class Sampler:
    """Looks at rows for what is interesting about them."""

    def __init__(self, wanted: WantedStatistics, functions: Mapping[str, UserFunction]) -> None:
        self.wanted = wanted
        self.functions = dict(functions)
        self._compiled: dict[tuple[str, str, tuple[str, ...]], Any] = {}

    def sample(self, alias: str, rows: pa.RecordBatch, width: float) -> Sample:
        """What the rows of a source say; its columns carry the alias."""
        passed, alive, columns = self._select(alias, rows)
        keys: dict[str, Key] = {}
        for text, terms in self.wanted.keys.get(alias, {}).items():
            if all(columns_of(term) <= set(columns.schema.names) for term in terms):
                keys[text] = self._key(alias, terms, columns, alive, rows.num_rows)
        paired = columns.slice(0, PAIRED) if self.wanted.pairs else None
        return Sample(passed, keys, width, paired=paired)

    def _select(
        self, alias: str, rows: pa.RecordBatch
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp] | None, pa.RecordBatch]:
        """How many selections each row passes, which pass all (None: all do), and these rows."""
        passed, alive = np.zeros(rows.num_rows, np.uint8), None
        for text, condition in self.wanted.selections.get(alias, ()):
            kept = self.predicate(alias, text, condition, rows)
            if not kept.all():
                rows = rows.filter(pa.array(kept))
                alive = np.flatnonzero(kept) if alive is None else alive[kept]
            passed[slice(None) if alive is None else alive] += 1
        return passed, alive, rows

    def _key(
        self,
        alias: str,
        terms: tuple[Expression, ...],
        columns: pa.RecordBatch,
        alive: npt.NDArray[np.intp] | None,
        length: int,
    ) -> Key:
        values = [self._expression(alias, term, columns) for term in terms]
        valid = key_validity(values) if len(terms) == 1 else None
        hashes = hash_columns(values)
        if alive is None:
            return hashes, valid
        everywhere, counts = np.zeros(length, np.uint64), np.zeros(length, bool)
        everywhere[alive] = hashes
        counts[alive] = True if valid is None else valid
        return everywhere, counts

    def predicate(self, alias: str, text: str, condition: Expression, columns: pa.RecordBatch) -> Mask:
        """Which rows fulfil a condition."""
        key = (alias, text, tuple(columns.schema.names))
        if key not in self._compiled:
            self._compiled[key] = Predicate(condition, columns.schema, self.functions)
        kept: Mask = self._compiled[key](columns)
        return kept

    def _expression(self, alias: str, term: Expression, columns: pa.RecordBatch) -> pa.Array:
        if isinstance(term, Column):
            return columns.column(term.name)
        key = (alias, str(term), tuple(columns.schema.names))
        if key not in self._compiled:
            self._compiled[key] = CompiledExpression(term, columns.schema, self.functions)
        found = self._compiled[key](columns)
        return found if isinstance(found, pa.Array) else found.combine_chunks()


@dataclass(frozen=True, slots=True)
class SampledRows:
    """The rows to look at, in order of their priorities."""

    places: npt.NDArray[np.intp]
    priorities: Hashes
    complete_to: int


def choose(ticks: Ticks, salt: int, most: int = LOOK_AT) -> SampledRows:
    """The rows of smallest priority among rows in order of time; with another salt it is others."""
    later = ticks[1:] != ticks[:-1]
    mixed = ticks.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.uint64(salt * 0xD1342543DE82EF95 & EVERYTHING)
    if not later.all():
        places = np.arange(len(ticks), dtype=np.uint64)
        first = np.maximum.accumulate(np.where(np.concatenate(([True], later)), places, np.uint64(0)))
        mixed += (places - first) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0x94D049BB133111EB)
    if len(ticks) <= most:
        order = np.argsort(mixed, kind="stable")
        return SampledRows(order, mixed[order], EVERYTHING)
    some = np.argpartition(mixed, most)[:most]
    order = some[np.argsort(mixed[some], kind="stable")]
    return SampledRows(order, mixed[order], int(mixed[order[-1]]))


def put_together(samples: Sequence[Sample]) -> Sample:
    """What several parts of a source's rows say: as one look at all of them would."""
    complete = min(sample.complete_to for sample in samples)
    priorities = np.concatenate([sample.priorities for sample in samples])
    order = np.argsort(priorities, kind="stable")
    order = order[: int(np.searchsorted(priorities[order], np.uint64(complete), "right"))]
    if len(order) > LOOK_AT:
        order = order[:LOOK_AT]
        complete = int(priorities[order[-1]])
    rows = [sample.rows for sample in samples]
    keys = {
        text: _key([sample.keys[text] for sample in samples], rows, order)
        for text in samples[0].keys
        if all(text in sample.keys for sample in samples)
    }
    width = sum(sample.width * n for sample, n in zip(samples, rows, strict=True)) / max(1, sum(rows))
    passed = np.concatenate([sample.passed for sample in samples])[order]
    chosen = priorities[order]
    together = Sample(passed, keys, width, chosen, complete)
    last = int(chosen[-1]) if len(chosen) else 0
    together.paired, together.paired_priorities = _paired(samples, last)
    return together


def _key(keys: Sequence[Key], rows: Sequence[int], order: npt.NDArray[np.intp]) -> Key:
    hashes = np.concatenate([hashes for hashes, _ in keys])[order]
    if all(counts is None for _, counts in keys):
        return hashes, None
    masks = [np.ones(n, bool) if counts is None else counts for (_, counts), n in zip(keys, rows, strict=True)]
    return hashes, np.concatenate(masks)[order]


def _paired(samples: Sequence[Sample], last: int) -> tuple[pa.RecordBatch | None, Hashes]:
    """The first of the rows that are to be paired, up to a priority."""
    found = [sample for sample in samples if sample.paired is not None]
    if not found:
        return None, np.empty(0, np.uint64)
    priorities = np.concatenate([sample.paired_priorities for sample in found])
    order = np.argsort(priorities, kind="stable")[:PAIRED]
    order = order[priorities[order] <= np.uint64(last)]
    batches = [sample.paired for sample in found if sample.paired is not None]
    return concatenate_batches(batches).take(pa.array(order)), priorities[order]
