"""The keys that are hot in a slot: a group that has much of a stream's rows has most of them by one key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MUCH = 1 / 8
"""Which part of a stream's rows in a slot makes a group worth a look."""

ENOUGH = 16
"""How many rows it must be."""

LOOKED_AT = 4096
"""At how many of them one looks."""


def hot_key(
    groups: npt.NDArray[np.integer], rows: pa.RecordBatch, key: tuple[str, ...]
) -> dict[int, tuple[str, float]]:
    """The largest group of a stream's rows, if it is large: its commonest key, and that key's part of its rows.

    >>> rows = pa.RecordBatch.from_pydict({"k": [7] * 90 + [8] * 10})
    >>> hot_key(np.full(100, 3), rows, ("k",))
    {3: ('k = 7', 0.9)}
    >>> hot_key(np.full(100, 3), rows, ("a column that no query reads",))
    {}
    """
    if not key or not {*key} <= {*rows.schema.names} or rows.num_rows < ENOUGH or int(groups.min()) < 0:
        return {}
    counts = np.bincount(groups)
    group = int(counts.argmax())
    if counts[group] < max(ENOUGH, MUCH * rows.num_rows):
        return {}
    chosen = np.flatnonzero(groups == group)[:LOOKED_AT]
    table = pa.table({name: rows.column(name).take(pa.array(chosen)) for name in key})
    found = (
        table.group_by(list(key), use_threads=False)
        .aggregate([([], "count_all")])
        .sort_by([("count_all", "descending")])
    )
    most = found.slice(0, 1).to_pylist()[0]
    text = ", ".join(f"{name} = {most[name]!s:.40}" for name in key)
    return {group: (text, round(most["count_all"] / len(chosen), 3))}
