"""Aggregates that DuckDB computes, for all pieces of time at once: a row counts once in every piece that it covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from midstream.algebra.borrowed_aggregates import in_sql
from midstream.algebra.database import column_name, run
from midstream.operators.elements import Indices, Mask
from midstream.operators.ordering import total_order
from midstream.operators.sweep import Sweep

MOST_ROWS = 1_000_000
"""How many rows, counted once per piece, are given to DuckDB at a time, unless one piece has more."""


def value_on_pieces(form: str, columns: Sequence[pa.Array], where: Mask | None, pieces: Sweep, what: str) -> pa.Array:
    """An aggregate's value on every piece; row i of the columns covers the pieces that element i does."""
    names = [column_name(i) for i in range(len(columns))]
    sql = in_sql(form, len(columns))
    rows = pa.table(list(columns), names=names)
    query = f"SELECT piece, {sql} AS r FROM given GROUP BY piece"
    answers = [
        run(query, rows.take(pa.array(row)).append_column("piece", pa.array(piece)), what)
        for row, piece in portions(_in_order(columns, where, len(pieces.first)), pieces)
    ]
    if sum(map(len, answers)) < len(pieces):
        answers.append(run(f"SELECT -1::BIGINT AS piece, {sql} AS r FROM given", rows.slice(0, 0), what))
    found = pa.concat_tables(answers)
    # What no row covers has the value of no rows, which is the last one.
    place = np.full(len(pieces), len(found) - 1, np.int64)
    known = found.column("piece").to_numpy()
    place[known[known >= 0]] = np.flatnonzero(known >= 0)
    return found.column("r").take(pa.array(place)).combine_chunks()


def _in_order(columns: Sequence[pa.Array], where: Mask | None, count: int) -> Indices:
    """The rows that count, in the order of all that the aggregate looks at."""
    order = total_order(list(columns))
    used = np.arange(count) if order is None else order
    return used if where is None else used[where[used]]


def portions(rows: Indices, pieces: Sweep) -> Iterator[tuple[Indices, Indices]]:
    """Rows with each of their pieces, by piece and then in their order; a piece is never divided."""
    first, sizes = pieces.first[rows], (pieces.last - pieces.first)[rows]
    ends = np.cumsum(sizes)
    row = np.repeat(rows, sizes)
    piece = np.arange(len(row)) - np.repeat(ends - sizes - first, sizes)
    order = np.argsort(piece, kind="stable")
    row, piece = row[order], piece[order]
    start = 0
    while start < len(row):
        end = min(start + MOST_ROWS, len(row))
        end = int(np.searchsorted(piece, piece[end - 1], side="right"))
        yield row[start:end], piece[start:end]
        start = end
