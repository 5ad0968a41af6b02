"""Which rows of two inputs are the same row of a stream, where a stream is followed by itself.

A row is known by its stream, the values of all its columns, and which of several equal rows it is. Equal rows have
equal times, and an operator looks at all rows of an instant together, so it can number them itself: they differ in
nothing else, so any numbering is as good as another. Rows that come out of a sequence bring the number they have there.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.physical import RowColumns
from midstream.operators.elements import Elements, Indices
from midstream.operators.ordering import group_rows, shared_groups
from midstream.operators.vectors import validity_of

NO_ROW = -1
"""The number of a tuple that happens at no row, such as a padded one."""


def numbered(rows: Elements, names: RowColumns) -> Elements:
    """The rows with a number for each that has none: how many equal ones of its branch come before it."""
    schema, columns = rows.columns.schema, rows.columns
    place = schema.get_field_index(names.copy)
    given = columns.column(place)
    if len(rows) == 0 or given.null_count == 0:
        return rows
    counted = occurrences(group_rows([columns.column(name) for name in names.of_branch])[0])
    number = pc.coalesce(given, pa.array(counted, pa.int64()))
    return rows.with_columns(columns.set_column(place, schema.field(place), number))


def same_rows(
    left: Elements, left_names: RowColumns, right: Elements, right_names: RowColumns
) -> tuple[Indices, Indices]:
    """A number per row of two numbered inputs, the same on both sides for the same row of a stream."""
    columns, rows = shared_groups(left.columns, left_names.of_row, right.columns, right_names.of_row)
    known = validity_of(columns[0])
    if known is not None:
        rows = np.where(known, rows, NO_ROW)
    return rows[: len(left)], rows[len(left) :]


def occurrences(groups: Indices) -> Indices:
    """For each place, how many places before it have the same group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    counts = np.empty(len(groups), np.int64)
    counts[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    return counts
