"""Tables without a time column among finite inputs: their rows have always been there.

They get a time that nobody sees, which is before all others.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.declarations import ARRIVAL, SINCE


def with_times(
    tables: dict[str, pa.Table], time: str | Mapping[str, str | None] | None
) -> tuple[dict[str, pa.Table], str | Mapping[str, str], frozenset[str]]:
    """The tables, each with a time column, the names of these, and which tables had none: those whose time is None."""
    time = dict.fromkeys(tables) if time is None else time
    if not isinstance(time, Mapping):
        return tables, time, frozenset()
    timeless = frozenset(name for name, column in time.items() if column is None and name in tables)
    named = {name: SINCE if column is None else column for name, column in time.items()}
    if not timeless:
        return tables, named, timeless
    known = [tables[n].column(c) for n, c in named.items() if n in tables and c in tables[n].column_names]
    starts = [start for column in known if (start := pc.min(column)).is_valid]
    first = min(starts, key=lambda start: start.as_py()) if starts else pa.scalar(0, pa.int64())
    since = {
        name: pa.array([first.as_py()] * tables[name].num_rows, known[0].type if known else pa.int64())
        for name in timeless
    }
    return {n: _with_order(t, since[n]) if n in since else t for n, t in tables.items()}, named, timeless


def _with_order(table: pa.Table, since: pa.Array) -> pa.Table:
    """A table with its time, and with the order of its rows, which nothing else tells."""
    return table.append_column(SINCE, since).add_column(0, ARRIVAL, pa.array(np.arange(table.num_rows)))
