"""Rows of a finished result in an order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.over import OrderKey
from midstream.operators.expressions import CompiledExpression


def sorted_by(table: pa.Table, keys: Sequence[OrderKey]) -> pa.Table:
    """The rows by some keys; what is equal in all of them keeps its order, nulls come last unless told otherwise.

    >>> from midstream.algebra.expressions import Column
    >>> sorted_by(pa.table({"a": [1, None, 2]}), [OrderKey(Column("a", pa.int64()), descending=True)])["a"].to_pylist()
    [2, 1, None]
    """
    for key in reversed(keys):
        compiled = CompiledExpression(key.key, table.schema)
        values = pa.chunked_array([compiled(batch) for batch in table.to_batches()], key.key.type)
        way = "descending" if key.descending else "ascending"
        nulls = "at_start" if key.nulls == "FIRST" else "at_end"
        table = table.take(pc.array_sort_indices(values, order=way, null_placement=nulls))
    return table
