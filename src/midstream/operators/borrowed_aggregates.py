"""Aggregates that DuckDB defines, for all pieces of time at once: a row counts once in every piece that it covers.

Lists, first and last values are rows in an order, which needs no other engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from midstream.algebra.borrowed_aggregates import BY_PLACE, in_sql
from midstream.algebra.database import column_name, run
from midstream.operators.elements import Indices, Mask
from midstream.operators.ordering import ranks_of, stable_order, total_order
from midstream.operators.state.segment import expand
from midstream.operators.sweep import Sweep
from midstream.operators.vectors import Numbers, gather

_KEY = re.compile(r"\{(\d+)\}( DESC)?(?: NULLS (FIRST|LAST))?")

MOST_ROWS = 1_000_000
"""How many rows, counted once per piece, are given to DuckDB at a time, unless one piece has more."""


def value_on_pieces(form: str, columns: Sequence[pa.Array], where: Mask | None, pieces: Sweep, what: str) -> pa.Array:
    """An aggregate's value on every piece; row i of the columns covers the pieces that element i does."""
    found = _by_place(form, columns, where, pieces)
    if found is not None:
        return found
    names = [column_name(i) for i in range(len(columns))]
    sql = in_sql(form, len(columns))
    rows = pa.table(list(columns), names=names)
    query = f"SELECT piece, {sql} AS r FROM given GROUP BY piece"
    answers = [
        run(query, rows.take(pa.array(row)).append_column("piece", pa.array(piece)), what)
        for row, piece in portions(in_order(columns, where, len(pieces.first)), pieces)
    ]
    if sum(map(len, answers)) < len(pieces):
        answers.append(run(f"SELECT -1::BIGINT AS piece, {sql} AS r FROM given", rows.slice(0, 0), what))
    found = pa.concat_tables(answers)
    # What no row covers has the value of no rows, which is the last one.
    place = np.full(len(pieces), len(found) - 1, np.int64)
    known = found.column("piece").to_numpy()
    place[known[known >= 0]] = np.flatnonzero(known >= 0)
    return found.column("r").take(pa.array(place)).combine_chunks()


def _by_place(form: str, columns: Sequence[pa.Array], where: Mask | None, pieces: Sweep) -> pa.Array | None:
    """The list of a column's values in an order, or the first or last of them; None if the form is none of these."""
    read = BY_PLACE.fullmatch(form)
    keys = [_KEY.fullmatch(key) for key in read[3].split(", ")] if read and read[3] else []
    if read is None or not all(keys):
        return None
    leading = [ranks_of(columns[int(key[1])], bool(key[2]), key[3] == "FIRST") for key in keys if key is not None]
    used = in_order([] if leading else columns, where, len(pieces.first), leading)
    parts = list(portions(used, pieces))
    row, piece = (np.concatenate([part[i] for part in parts] or [used[:0]]) for i in (0, 1))
    ends = np.searchsorted(piece, np.arange(len(pieces)), "right")
    starts = np.append([0], ends[:-1])
    if read[1] == "list":
        offsets = pa.array(np.append(starts, ends[-1:]), pa.int32())
        return pa.ListArray.from_arrays(offsets, gather(columns[int(read[2])], row), mask=pa.array(starts == ends))
    if not len(row):
        return pa.nulls(len(pieces), columns[int(read[2])].type)
    at = starts if read[1] == "first" else ends - 1
    return columns[int(read[2])].take(pa.array(row[np.where(starts < ends, at, 0)], mask=starts == ends))


def in_order(columns: Sequence[pa.Array], where: Mask | None, count: int, leading: Sequence[Numbers] = ()) -> Indices:
    """The rows that count, in the order of what leads and then of all that the aggregate looks at."""
    order = total_order(columns, leading)
    used = np.arange(count) if order is None else order
    return used if where is None else used[where[used]]


def portions(rows: Indices, pieces: Sweep) -> Iterator[tuple[Indices, Indices]]:
    """Rows with each of their pieces, by piece and then in their order; a piece is never divided."""
    row, piece, _ = expand(rows, pieces.first[rows], pieces.last[rows])
    if not bool((piece[1:] >= piece[:-1]).all()):
        order = stable_order(piece)
        row, piece = row[order], piece[order]
    start = 0
    while start < len(row):
        end = min(start + MOST_ROWS, len(row))
        end = int(np.searchsorted(piece, piece[end - 1], side="right"))
        yield row[start:end], piece[start:end]
        start = end
