"""The metrics table as columns for charts, and the moments at which something changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.time import plural
from midstream.checkpoint.metrics import latencies
from midstream.checkpoint.reading import StoredJob

MOST = 10_000
"""How many batches charts show, at most."""

BY_NAME = (
    "rows",
    "late",
    "unusable",
    "results",
    "state_rows",
    "state_bytes",
    "registers",
    "latest",
    "released",
    "seconds",
)

Record = dict[str, Any]


def series_summary(job: StoredJob, since: int = -1) -> Record:
    """The batches after `since`, column by column: each measure by stream, query or part of a batch."""
    whole = job.metrics(MOST)
    whole = whole.slice(max(0, whole.num_rows - MOST)).combine_chunks()
    known = latencies(whole, {name: query.streams for name, query in job.queries.items()})
    first = int(np.searchsorted(whole.column("batch_id").to_numpy(), since, side="right"))
    table = whole.slice(first).combine_chunks()
    seconds = table.column("at").cast(pa.int64()).to_numpy() / 1e6
    batch = table.column("batch_id").to_pylist()
    columns = {kind: columns_of(table.column(kind)) for kind in BY_NAME}
    return {
        "batch": batch,
        "at": np.round(seconds, 3).tolist(),
        **columns,
        "latency": {query: column[first:] for query, column in known.items()},
        "marks": marks_summary(job, batch, columns["seconds"].get("batch", [])),
    }


def columns_of(maps: pa.ChunkedArray) -> dict[str, list[float | None]]:
    """A column of maps as one column for each key, found key by key.

    >>> maps = pa.array([[("a", 1)], [], [("a", 3), ("b", 4)]], pa.map_(pa.string(), pa.int64()))
    >>> columns_of(pa.chunked_array([maps]))
    {'a': [1, None, 3], 'b': [None, None, 4]}
    """
    found: dict[str, list[float | None]] = {}
    if maps.num_chunks == 0:
        return found
    whole = maps.combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    offsets = whole.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    keys, items = whole.keys.slice(first, last - first), whole.items.slice(first, last - first)
    rows = np.repeat(np.arange(len(whole)), np.diff(offsets))
    for key in sorted(keys.unique().to_pylist()):
        mine = pc.equal(keys, key)
        column: list[float | None] = [None] * len(whole)
        for row, value in zip(
            rows[mine.to_numpy(zero_copy_only=False)].tolist(), items.filter(mine).to_pylist(), strict=True
        ):
            column[row] = value
        found[key] = column
    return found


def marks_summary(job: StoredJob, batches: Sequence[int], took: Sequence[float | None]) -> list[Record]:
    """Migrations, moves of groups, other numbers of slots, starts and restarts, by batch."""
    found = []
    for m in job.history:
        if m.start_batch is None:
            continue
        kind = {"started": "start", "quarantined": "fault", "resumed": "resume"}.get(m.status, "migration")
        text = (
            f"{m.query}: {m.old_plan} to {m.new_plan}, {m.strategy}" if kind == "migration" else f"{m.query} {m.status}"
        )
        found.append({"batch": m.start_batch, "until": m.end_batch, "kind": kind, "query": m.query, "text": text})
    for move in job.slots.moves:
        before, after = move.record.get("slots", (0, 0))
        kind = "move" if before == after else "rescale"
        text = (
            f"{plural(move.record.get('groups', 0), 'group')} moved" if kind == "move" else f"{before} to {after} slots"
        )
        found.append({"batch": move.batch, "until": move.batch, "kind": kind, "query": None, "text": text})
    found += [
        {"batch": batch, "until": batch, "kind": "restart", "query": None, "text": "the job went on after a pause"}
        for batch in pauses(batches, took)
    ]
    return sorted(found, key=lambda mark: (mark["batch"], mark["kind"]))


def pauses(batches: Sequence[int], took: Sequence[float | None]) -> list[int]:
    """The batches before which the job stood still: how long the batch before took in all was never written down.

    That is known only after a batch's commit, and written down with the next one by the same process.

    >>> pauses([4, 5, 6, 7], [0.1, None, 0.1, None])
    [6]
    """
    known = list(zip(batches, took, strict=False))
    return [
        now for (_, before), (now, after) in zip(known, known[1:], strict=False) if before is None and after is not None
    ]
