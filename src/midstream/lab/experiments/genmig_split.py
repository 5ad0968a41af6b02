"""How late GenMig's split time is, over plans of every kind.

The split time must lie after every end that the old box can contain, and should lie no later than that: at most the
longest validity, one tick and the skew between the streams after the least start that was monitored.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.algebra.physical import SourceNode
from midstream.algebra.time import BEGINNING
from midstream.api import ask
from midstream.cluster.local.live_query import LiveQuery
from midstream.job.task.ingest import source_elements
from midstream.lab.experiments.arrivals import poisson
from midstream.migration.genmig import GenMig
from midstream.migration.protocol import Situation
from midstream.operators.elements import Ticks
from midstream.optimizer.plans import plan_query

MOMENT = 1000
QUERIES = (
    "SELECT DISTINCT A.x FROM A [RANGE 100], B [RANGE 100] WHERE A.x = B.x",
    "SELECT A.x, COUNT(*) AS n FROM A [RANGE 200] GROUP BY A.x",
    "SELECT x FROM A [RANGE 100] EXCEPT SELECT x FROM B [RANGE 300]",
    "SELECT x FROM A [RANGE 100] UNION ALL SELECT x FROM B [NOW]",
    "SELECT A.x FROM A [HOP 200, 50], B [HOP 200, 50] WHERE A.x = B.x",
    "SELECT A.x FROM A [RANGE 30], B [RANGE 300] WHERE A.x = B.x",
    "SELECT A.x FROM A [RANGE 100], S [RANGE 100] WHERE A.x = S.x",
)


def split_margins() -> dict[str, float]:
    """For each query by how many ticks the split time keeps within its bound."""
    rng = np.random.default_rng(1)
    streams = {name: _stream(rng, gap, MOMENT) for name, gap in (("A", 10.0), ("B", 25.0))}
    streams["S"] = streams["A"].slice(0, 0)
    return {query: _margin(query, streams) for query in QUERIES}


def _stream(rng: np.random.Generator, gap: float, end: int) -> pa.Table:
    times = poisson(rng, gap, end)
    return pa.table({"ts": times, "x": rng.integers(0, 20, len(times))})


def _margin(query: str, streams: dict[str, pa.Table]) -> float:
    asked = ask(query, streams)
    live = LiveQuery(plan_query(asked.plan, None))
    for name in live.streams:
        rows = streams[name].combine_chunks().to_batches()
        for batch in rows:
            live.feed(name, batch, batch.column("ts").to_numpy())
    live.advance({name: MOMENT for name in live.streams})
    situation = live.situation()
    split = GenMig().decide(situation)["split_after"] + 0.5
    spans = [_monitored(source, situation) for source in situation.sources]
    starts = [start for start, _ in spans]
    longest = max(end - start for start, end in spans)
    return float(min(starts) + longest + 1 + (max(starts) - min(starts)) - split)


def _monitored(source: SourceNode, situation: Situation) -> tuple[int, int]:
    """The validity of the latest element of a source; a silent source's register stands in for one."""
    alias = source.stream.alias
    ticks: Ticks = np.array([situation.starts.get(alias, situation.registers.get(alias, BEGINNING))], np.int64)
    columns = source.stream.columns
    row = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in columns], schema=columns)
    element = source_elements(source, row, ticks)
    return int(element.valid_from[0]), int(element.valid_to[0])
