"""Watches a running query's sources and operators, and says what it saw as one snapshot.

Rates and operators are counted in every batch. Keys and selections are sampled in few batches and in a bounded run of
rows of each, so that sampling costs little however large batches are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.adaptation.key_counts import MOST_SAMPLED, HeavyValues, KeyCounts
from midstream.adaptation.sampling import LOOK_AT, Sample, Sampler
from midstream.adaptation.sampling_pace import Attention, SamplingPace
from midstream.adaptation.smoothing import Smoothed
from midstream.adaptation.timings import OperatorRates
from midstream.adaptation.wanted_statistics import WantedStatistics, wanted_statistics_of
from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import longest_validity
from midstream.algebra.plan import Relation, Stream, Window, streams_of, walk_plan
from midstream.algebra.statistics import Estimate, Statistics, StreamStatistics
from midstream.codec import read, written
from midstream.operators.box import Box
from midstream.operators.elements import Elements, Ticks


@dataclass(slots=True)
class ObservedSource:
    """What is known about one source."""

    rate: Smoothed
    window: int | None
    rows: int = 0
    batch_rows: int = 0
    width: float = 40.0
    sample: pa.RecordBatch | None = None
    selections: dict[str, Smoothed] = field(default_factory=dict)


_KEPT: dict[str, Any] = {
    "latest": int | None,
    "newest": int | None,
    "passed_ticks": int,
    "batches": int,
    "fresh": bool,
    "jumped": bool,
    "pace": SamplingPace,
    "batch_ticks": Smoothed,
    "sources": dict[str, ObservedSource],
    "keys": dict[str, KeyCounts],
    "heavy": list[HeavyValues],
}
"""What an observer keeps."""


class Observer:
    """Gathers statistics of one query."""

    def __init__(
        self,
        query: Relation,
        functions: Mapping[str, UserFunction] | None = None,
        clock: Callable[[], float] | None = None,
        attention: Attention | None = None,
    ) -> None:
        self.wanted: WantedStatistics = wanted_statistics_of(query)
        self.sampler = Sampler(self.wanted, functions or {})
        self.pace = SamplingPace(attention or Attention())
        self.rates = OperatorRates(clock)
        self.batch_ticks = Smoothed(0.9)
        self.latest: int | None = None
        self.newest: int | None = None
        self.passed_ticks = 0
        self.batches = 0
        self.fresh = False
        self.jumped = False
        self._unseen: list[tuple[str, Elements]] = []
        windows = {s.alias: _window(query, s) for s in streams_of(query)}
        self.sources = {alias: ObservedSource(Smoothed(0.85), span) for alias, span in windows.items()}
        texts = [text for found in self.wanted.keys.values() for text in found]
        self.heavy = [HeavyValues() for _ in self._classes]
        total = self.pace.attention.most_sampled
        most = MOST_SAMPLED if total is None else max(128, total // max(1, len(texts)))
        self.keys = {text: KeyCounts(most=most) for text in texts}
        self._share_heavy()

    @property
    def _classes(self) -> list[frozenset[str]]:
        """The keys that share their heavy values: those that are compared with each other, and each other one alone."""
        compared = frozenset[str]().union(*self.wanted.classes)
        texts = (text for found in self.wanted.keys.values() for text in found)
        return [*self.wanted.classes, *(frozenset({text}) for text in texts if text not in compared)]

    def _share_heavy(self) -> None:
        for texts, heavy in zip(self._classes, self.heavy, strict=True):
            for text in texts & self.keys.keys():
                self.keys[text].heavy = heavy

    def kept(self) -> dict[str, Any]:
        """What is known of the streams, as plain values."""
        return {name: written(getattr(self, name), kind) for name, kind in _KEPT.items()}

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Goes on from what an observer of the same query has kept."""
        if kept["sources"].keys() != self.sources.keys() or kept["keys"].keys() != self.keys.keys():
            raise ValueError("it is of another query")
        attention = self.pace.attention
        for name, kind in _KEPT.items():
            setattr(self, name, read(kind, kept[name]))
        self.pace.attention = attention
        self._share_heavy()

    def take(self, alias: str, elements: Elements, ticks: Ticks) -> None:
        """Sees the rows that a source is about to be fed with."""
        self.count(alias, len(ticks), int(ticks.max()))
        if self.pace.due:
            self._sample(alias, elements)
        elif self.pace.attention.resting > 1:
            self._unseen.append((alias, elements))

    def _sample(self, alias: str, elements: Elements) -> None:
        if len(elements) == 0:
            return
        columns = elements.columns
        width = columns.nbytes / len(elements)
        if len(elements) > LOOK_AT:
            columns = columns.slice((self.batches * 7919) % (len(elements) - LOOK_AT), LOOK_AT)
        self.absorb(alias, self.sampler.sample(alias, columns, width))

    def sample_at_once(self) -> None:
        """Samples, before the batch is over, the rows that it brought, if that was not done, and soon again."""
        for alias, elements in self._unseen:
            self._sample(alias, elements)
        self._unseen.clear()
        self.pace.due = True
        self.pace.hurry()

    @property
    def batch_rows(self) -> int:
        """How many rows this batch has brought so far."""
        return sum(source.batch_rows for source in self.sources.values())

    def count(self, alias: str, rows: int, latest: int) -> None:
        """Learns how many rows a source has had in this batch, and the latest time among them."""
        self.sources[alias].batch_rows += rows
        self.newest = latest if self.newest is None else max(self.newest, latest)

    def absorb(self, alias: str, sample: Sample) -> None:
        """Learns from a sample of the rows of a source."""
        source = self.sources[alias]
        source.width = sample.width
        for number, (text, _) in enumerate(self.wanted.selections.get(alias, ())):
            kept, of = (float(np.count_nonzero(sample.passed >= least)) for least in (number + 1, number))
            source.selections.setdefault(text, Smoothed(0.8)).add(kept, of)
        fade = self._fade(source)
        for text in sample.keys:
            self.keys[text].add(sample.hashes(text), fade)
        if sample.paired is not None:
            source.sample = sample.paired

    def end_batch(self) -> None:
        """Sees that a batch is over."""
        self._unseen.clear()
        newest = self.newest
        if newest is None:
            return
        if self.latest is None:
            self._begin(newest)
            return
        passed = newest - self.latest
        if passed <= 0:
            return
        self.latest = newest
        self.passed_ticks += passed
        self.batches += 1
        self.batch_ticks.add(passed, 1)
        rows = 0
        for source in self.sources.values():
            self.jumped = source.rate.add(source.batch_rows, passed) or self.jumped
            source.rows += source.batch_rows
            rows += source.batch_rows
            source.batch_rows = 0
        self.fresh = self.fresh or self.pace.due or self.jumped
        if self.jumped:
            self.pace.hurry()
        self.pace.end_batch(self.batches, rows, self._longest_rest())

    def _begin(self, newest: int) -> None:
        """The first batch has an end but no beginning, so it says nothing about rates."""
        self.latest = newest
        for source in self.sources.values():
            source.rows += source.batch_rows
            source.batch_rows = 0

    def _longest_rest(self) -> int:
        """In how many batches four windows pass: less than half of the time for which a change is expected to pay."""
        windows = [source.window for source in self.sources.values() if source.window is not None]
        return int(4 * max(windows, default=0) / max(1.0, self.batch_ticks.value))

    def _fade(self, source: ObservedSource) -> float:
        """Keys are remembered for about half a window, at least for four samples and at most for twenty."""
        span = self.batch_ticks.value
        if source.window is None or span <= 0:
            return 0.9
        between = max(1.0, span * self.pace.apart)
        samples = min(20.0, max(4.0, source.window / 2 / between))
        return 1 - 1 / samples

    def watched(self, box: Box, statistics: Statistics) -> Statistics:
        """Statistics with what the running box's operators did since the last time; times them, if there is a clock."""
        return replace(statistics, operators=self.rates.since_last_time(box, self.passed_ticks))

    def snapshot(self) -> Statistics:
        """All that is known now; `fresh` says whether there is more to know since, `jumped` whether a rate jumped."""
        self.fresh = self.jumped = False
        streams = {alias: self._stream(source) for alias, source in self.sources.items() if source.rate.weight}
        selectivities = {
            text: smoothed.estimate for source in self.sources.values() for text, smoothed in source.selections.items()
        }
        selectivities.update(self._paired())
        keys = {text: counts.profile() for text, counts in self.keys.items() if counts.rows}
        return Statistics(
            MappingProxyType(streams),
            MappingProxyType(keys),
            MappingProxyType(selectivities),
            (),
            self.batch_ticks.value or None,
            self.latest or 0,
        )

    def _stream(self, source: ObservedSource) -> StreamStatistics:
        rate = source.rate.estimate
        population = float(source.rows) if source.window is None else rate.value * source.window
        return StreamStatistics(rate, source.rate.noise, population, source.width, float(source.rows))

    def _paired(self) -> dict[str, Estimate]:
        """Conditions over several sources, on all pairs of some rows of each."""
        found = {}
        for text, condition, owners in self.wanted.pairs:
            samples = [self.sources[alias].sample for alias in owners]
            if len(samples) != 2 or any(s is None or s.num_rows == 0 for s in samples):
                continue
            left, right = samples
            assert left is not None and right is not None
            pairs = _product(left, right)
            kept = self.sampler.predicate("+".join(owners), text, condition, pairs)
            share = max(float(kept.mean()), 0.5 / len(kept))
            found[text] = Estimate(share, ((1 - share) / share / min(left.num_rows, right.num_rows)) ** 0.5)
        return found


def _product(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    first = pa.array(np.repeat(np.arange(left.num_rows), right.num_rows))
    second = pa.array(np.tile(np.arange(right.num_rows), left.num_rows))
    columns = [*left.take(first).columns, *right.take(second).columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*left.schema, *right.schema]))


def _window(query: Relation, stream: Stream) -> int | None:
    for node in walk_plan(query):
        if isinstance(node, Window) and node.input == stream:
            return longest_validity(node.spec)
    return 1
