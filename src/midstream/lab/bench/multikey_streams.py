"""Streams of a chain, each joined with the next by a key of its own: what is known of them, and their files."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.statistics import Estimate, KeyProfile, Statistics, StreamStatistics

RATE = 2000
"""Rows a second of each stream, in event time."""

WINDOW = 10


@dataclass(frozen=True, slots=True)
class Chain:
    """Streams of a chain: their names, rows a batch over all of them, and how many values each key has.

    `keys[i]` is how many values the key between stream i and the next has. With as many keys as streams the last one
    is joined with the first.
    """

    names: str
    rows: int
    keys: tuple[int, ...]

    def key_of(self, number: int, column: str) -> int | None:
        """How many values a column of a stream has; None if it joins nothing."""
        place = number - 1 if column == "a" else number
        closed = len(self.keys) == len(self.names)
        return self.keys[place] if closed or 0 <= place < len(self.keys) else None

    @property
    def query(self) -> str:
        """The join of all of them."""
        streams = ", ".join(f"{name} [RANGE {WINDOW} SECONDS]" for name in self.names)
        pairs = [*zip(self.names[:-1], self.names[1:], strict=True), (self.names[-1], self.names[0])][: len(self.keys)]
        equal = " AND ".join(f"{a}.b = {b}.a" for a, b in pairs)
        return f"SELECT {', '.join(f'{n}.v AS v{n}' for n in self.names)} FROM {streams} WHERE {equal}"

    @property
    def statistics(self) -> Statistics:
        """What is known of the streams once they have been watched."""
        each = self.rows // len(self.names)
        rate, streams, keys = RATE / 1_000_000, {}, {}
        for i, name in enumerate(self.names):
            population = RATE * WINDOW
            streams[name] = StreamStatistics(Estimate(rate, 0.01), population=population, width=32.0, rows=each)
            for column in "ab":
                if (values := self.key_of(i, column)) is not None:
                    keys[f"{name}.{column}"] = _uniform(values)
        return Statistics(MappingProxyType(streams), MappingProxyType(keys), batch_ticks=each / rate)


def _uniform(values: int) -> KeyProfile:
    """A key with so many values, all alike; a sample stands for the rest."""
    shown = min(values, 1000)
    hashes = np.arange(shown, dtype=np.uint64)
    return KeyProfile(hashes, np.full(shown, 1 / values), np.zeros(shown, bool), max(1, values // shown), 1e6)


def write_chain(
    folder: Path, chain: Chain, batches: int, seed: int, shares: Sequence[float] = (), after: int = 0
) -> None:
    """One file per stream and batch, in order of time, behind `after` batches; `shares` are those of the streams."""
    random = np.random.default_rng([seed, after])
    streams = len(chain.names)
    span = chain.rows // streams * 1_000_000 // RATE
    first = time.time() - 1000
    for number, name in enumerate(chain.names):
        (folder / name).mkdir(parents=True, exist_ok=True)
        values = [chain.key_of(number, column) or 1 for column in "ab"]
        rows = int(chain.rows * (shares[number] if shares else 1 / streams))
        for i in range(after, after + batches):
            ticks = np.sort(random.integers(i * span, (i + 1) * span, rows))
            columns = {
                "ts": pa.array(ticks, pa.timestamp("us", "UTC")),
                "a": random.integers(0, values[0], rows),
                "b": random.integers(0, values[1], rows),
                "v": random.integers(0, 1_000_000, rows),
            }
            path = folder / name / f"{i:05d}.parquet"
            pq.write_table(pa.table(columns), path)
            # Spark reads files in order of their modification.
            os.utime(path, (first + i, first + i))
