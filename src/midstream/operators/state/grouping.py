"""The order of a state's rows: by partition group first, then by the hash of the key they are looked up by.

Rows that meet have equal keys and are of one group, so both sides of a probe find the same. A group is then one range
of hashes in every segment of every state, whatever key the state is sorted by: it moves by naming that range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.partition import Partition
from midstream.operators.arrival_hash import arrival_hash
from midstream.operators.elements import Elements, Hashes, Key
from midstream.operators.hashing import hash_columns


@dataclass(frozen=True, slots=True)
class Grouping:
    """The columns that say of which partition group a row is, and how many bits of their hash do."""

    key: Key
    bits: int
    arrival: bool

    @staticmethod
    def of(partition: Partition | None, names: Sequence[str]) -> Grouping | None:
        """The grouping of rows with some columns; None if these do not say the group."""
        if partition is None:
            return None
        key = min((key for key in partition.keys if set(key) <= set(names)), default=None)
        return None if key is None else Grouping(key, partition.bits, partition.arrival)

    def same_order(self, other: Grouping | None) -> bool:
        """Whether states of equal rows in equal slots have one order."""
        return other is not None and (self.bits, self.arrival) == (other.bits, other.arrival)


def key_hashes(rows: pa.RecordBatch, key: Key, grouping: Grouping | None) -> Hashes:
    """What a state of these rows is sorted by: the hash of a key, behind the bits of the group if it has groups."""
    plain = _hashed(rows, key) if key else np.zeros(rows.num_rows, np.uint64)
    if grouping is None:
        return plain
    if grouping.arrival:
        placed = arrival_hash([rows.column(name) for name in grouping.key])
    else:
        placed = plain.copy() if grouping.key == key else _hashed(rows, grouping.key)
    below = np.uint64(64 - grouping.bits)
    placed >>= below
    placed <<= below
    plain >>= np.uint64(grouping.bits)
    plain |= placed
    return plain


def known_hashes(batch: Elements, key: Key, grouping: Grouping | None) -> Hashes:
    """The same for elements, which may know the hash of that key already."""
    if batch.hashes is not None and key in batch.hashed:
        return batch.hashes
    return key_hashes(batch.columns, key, grouping)


def _hashed(rows: pa.RecordBatch, key: Key) -> Hashes:
    return hash_columns([rows.column(name) for name in key])
