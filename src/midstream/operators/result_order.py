"""Rows of a finished result in an order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from midstream.algebra.over import OrderKey
from midstream.operators.expressions import CompiledExpression
from midstream.operators.ordering import order_by, ranks_of


def sorted_by(table: pa.Table, keys: Sequence[OrderKey]) -> pa.Table:
    """The rows by some keys; what is equal in all of them keeps its order, nulls come last unless told otherwise.

    >>> from midstream.algebra.expressions import Column
    >>> sorted_by(pa.table({"a": [1, None, 2]}), [OrderKey(Column("a", pa.int64()), descending=True)])["a"].to_pylist()
    [2, 1, None]
    """
    if not keys or not table.num_rows:
        return table
    batch = table.combine_chunks().to_batches()[0]
    columns = [CompiledExpression(key.key, table.schema)(batch) for key in keys]
    ranks = [ranks_of(c, k.descending, k.nulls == "FIRST") for c, k in zip(columns, keys, strict=True)]
    return table.take(order_by(ranks))
