"""Tables without a time column among finite inputs: their rows have always been there.

They get a time that nobody sees, which is before all others.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import InputError

SINCE = "#since"
"""The hidden time column of a table that has none."""


def with_times(
    tables: dict[str, pa.Table], time: str | Mapping[str, str | None]
) -> tuple[dict[str, pa.Table], str | Mapping[str, str], frozenset[str]]:
    """The tables, each with a time column, the names of these, and which tables had none: those whose time is None."""
    if not isinstance(time, Mapping):
        return tables, time, frozenset()
    timeless = frozenset(name for name, column in time.items() if column is None and name in tables)
    named = {name: SINCE if column is None else column for name, column in time.items()}
    if not timeless:
        return tables, named, timeless
    known = [tables[n].column(c) for n, c in named.items() if n in tables and c in tables[n].column_names]
    if not known:
        raise InputError("no table has a time column", hint="name that of one at least: time={…}")
    starts = [start for column in known if (start := pc.min(column)).is_valid]
    first = min(starts, key=lambda start: start.as_py()) if starts else pa.scalar(0, pa.int64())
    since = {name: pa.array([first.as_py()] * tables[name].num_rows, known[0].type) for name in timeless}
    return {n: t.append_column(SINCE, since[n]) if n in since else t for n, t in tables.items()}, named, timeless
