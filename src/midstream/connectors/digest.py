"""A digest of a multiset of rows: the sum of their hashes, so that neither order nor batches matter.

The digest of a union is made of those of its parts, which no hash over bytes of files would give.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from midstream.inputs.json_values import json_texts
from midstream.operators.hashing import hash_columns

_MODULUS = 1 << 64


def digest_of(table: pa.Table) -> str:
    """The digest of a table's rows: how many there are, and the sum of their hashes.

    >>> one, two = pa.table({"k": [1, 2]}), pa.table({"k": [2, 1]})
    >>> digest_of(one) == digest_of(two), digest_of(one) == digest_of(pa.table({"k": [1, 1]}))
    (True, False)
    """
    total = sum(_sum(batch) for batch in table.to_batches() if batch.num_rows)
    return f"{table.num_rows:x}-{total % _MODULUS:016x}"


def _sum(batch: pa.RecordBatch) -> int:
    columns = [_hashable(batch, place) for place in range(batch.num_columns)]
    return int(hash_columns(columns).sum(dtype=np.uint64)) if columns else 0


def _hashable(batch: pa.RecordBatch, place: int) -> pa.Array:
    """A column, or what stands for one whose values have parts."""
    column = batch.column(place)
    if not pa.types.is_nested(column.type):
        return column
    texts = json_texts(pa.RecordBatch.from_arrays([column], names=["value"]))
    return pa.array([hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts], pa.binary())
