"""How long moves of groups take on a running job with two slots, by the time of its rows."""

from __future__ import annotations

import tempfile

import numpy as np
import pyarrow as pa

import midstream as ms
from midstream.checkpoint.reading import StoredJob

QUERY = (
    "SELECT A.k, A.v, B.v AS b, C.v AS c FROM A [RANGE {w}], B [RANGE {w}], C [RANGE {w}] WHERE A.k = B.k AND B.k = C.k"
)
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
PROTOCOLS = ("ptlb", "split_time", "mslb")
BATCHES = 10
"""How many batches come within a window."""


def windows_on_job(protocol: str, window: int = 40, rate: int = 4, seed: int = 1) -> float:
    """How many windows pass from the batch that begins a move of half a slot's groups to the one that ends it."""
    random, ticks = np.random.default_rng(seed), max(1, window // BATCHES)
    with tempfile.TemporaryDirectory() as folder:
        begun = ended = None
        with ms.Session(checkpoint=folder, on="local", slots=2) as session:
            for name in "ABC":
                session.stream(name, SCHEMA)
            session.query("q", QUERY.format(w=window), plan="((A B) C)")
            session.start()
            for number in range(4 * BATCHES):
                if number == BATCHES:
                    session.rebalance([1] * 64 + [0] * 64 + [1] * 128, protocol=protocol)
                at = number * ticks
                for name in "ABC":
                    session.push(name, _rows(random, at, at + ticks, rate))
                moving = StoredJob.open(folder).slots.moving
                begun = at if begun is None and (moving or session.moves) else begun
                if session.moves:
                    ended = at
                    break
    return float("nan") if begun is None or ended is None else (ended - begun) / window


def _rows(random: np.random.Generator, since: int, until: int, rate: int) -> pa.Table:
    ts = np.repeat(np.arange(since, until), rate)
    return pa.table(
        {"k": random.integers(0, 200, len(ts)), "v": random.integers(0, 9, len(ts)), "ts": ts}, schema=SCHEMA
    )
