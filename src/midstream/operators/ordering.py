"""The one order of rows that everybody agrees on, and the rows that are the same.

Shuffles deliver rows in any order, so whatever depends on order first sorts by time and then by all columns: ascending,
nulls first, NaN last, texts by their bytes, nested values by their elements. Rows that are still tied are equal, so
which comes first cannot matter. Columns are looked at one by one and only where the ones before left ties.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.database import run
from midstream.errors import InternalError
from midstream.operators.elements import Indices, Mask
from midstream.operators.vectors import Numbers, canonical_floats, gather, is_number_like, numbers_of, validity_of


class NeighbourRuns:
    """Places that go on with those before them, between `bounds`; `breaks` say of all but the first which do not.

    >>> NeighbourRuns(4, np.array([False, True, False])).bounds.tolist()
    [0, 2, 4]
    """

    def __init__(self, length: int, *breaks: Mask) -> None:
        cuts = np.flatnonzero(np.logical_or.reduce(breaks)) + 1
        self.bounds = np.concatenate([[0], cuts, [length]]) if length else np.zeros(1, np.intp)
        self.first, self.end = self.bounds[:-1], self.bounds[1:]
        self.sizes = self.end - self.first


def stable_order(keys: npt.NDArray[np.int64] | npt.NDArray[np.intp]) -> Indices:
    """The permutation that sorts integers; equal ones keep their order.

    >>> stable_order(np.array([3, 1, 3, 2])).tolist()
    [1, 3, 0, 2]
    """
    count = len(keys)
    if count < 2:
        return np.arange(count)
    low = int(keys.min())
    span = int(keys.max()) - low
    if span <= 0xFFFF:
        return np.argsort((keys - low).astype(np.uint16), kind="stable")
    bits = (count - 1).bit_length()
    if span >= 1 << (64 - bits):
        return np.argsort(keys, kind="stable")
    packed = (keys - low).astype(np.uint64)
    packed <<= np.uint64(bits)
    packed |= np.arange(count, dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << bits) - 1)
    return packed.view(np.int64)


def order_by(keys: Sequence[Numbers]) -> Indices:
    """The permutation that sorts by several keys, the first one first; what is equal in all of them keeps its order.

    >>> order_by([np.array([1, 0, 1]), np.array([7, 9, -7])]).tolist()
    [1, 2, 0]
    """
    packed = _packed(keys)
    return np.lexsort(keys[::-1]) if packed is None else stable_order(packed)


def _packed(keys: Sequence[Numbers]) -> npt.NDArray[np.int64] | None:
    """Several keys as one that sorts as they do, if they fit into it."""
    if not len(keys[0]) or any(key.dtype.kind not in "biu" for key in keys):
        return None
    ranges = [(int(key.min()), int(key.max())) for key in keys]
    widths = [(high - low).bit_length() for low, high in ranges]
    if sum(widths) > 63:
        return None
    packed = np.zeros(len(keys[0]), np.int64)
    for key, (low, _), width in zip(keys, ranges, widths, strict=True):
        if width:
            packed <<= width
            packed |= key.astype(np.int64, copy=False) - low if low < 1 << 63 else (key - low).astype(np.int64)
    return packed


def total_order(batch: pa.RecordBatch | Sequence[pa.Array], leading: Sequence[Numbers] = ()) -> Indices | None:
    """The permutation that sorts rows by the leading numbers, then by all columns; None if they are sorted already."""
    columns = batch.columns if isinstance(batch, pa.RecordBatch) else list(batch)
    length = len(leading[0]) if leading else len(columns[0]) if columns else 0
    if length < 2 or (len(leading) == 1 and bool((leading[0][1:] > leading[0][:-1]).all())):
        return None
    if not columns:
        return None if _nondecreasing(leading) else order_by(leading)
    if all(map(_is_whole, columns)) and (packed := _packed([*leading, *map(numbers_of, columns)])) is not None:
        return None if bool((packed[1:] >= packed[:-1]).all()) else stable_order(packed)
    order, ties = _sorted_by_numbers(leading, length)
    for column in columns:
        if not len(ties.rows):
            break
        order, ties = _refined(order, ties, column)
    return order


def _is_whole(column: pa.Array) -> bool:
    """Whether a column's values are whole numbers, or stored as such, and none is missing."""
    return not column.null_count and is_number_like(column.type) and not pa.types.is_floating(column.type)


def group_rows(columns: Sequence[pa.Array]) -> tuple[Indices, Indices]:
    """Each row's group, numbered by first appearance, and each group's first row; equal means equal in all columns.

    Null equals null and NaN equals NaN here.
    """
    if not columns:
        raise InternalError("grouping needs at least one column")
    if len(columns) > 1 and (packed := _packed_columns(columns)) is not None:
        columns = [pa.array(packed)]
    codes, count = _codes(columns[0])
    for column in columns[1:]:
        more, more_count = _codes(column)
        codes, count = _dense(codes * more_count + more) if more_count > 1 else (codes, count)
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return codes, first


def shared_groups(
    left: pa.RecordBatch, left_names: Sequence[str], right: pa.RecordBatch, right_names: Sequence[str]
) -> tuple[list[pa.Array], Indices]:
    """Columns of one batch above those of another, and the group of each row of both."""
    pairs = zip(left_names, right_names, strict=True)
    columns = [pa.concat_arrays([left.column(a), right.column(b)]) for a, b in pairs]
    return columns, group_rows(columns)[0]


def groups_by(rows: pa.RecordBatch, names: Sequence[str]) -> tuple[Indices, Indices]:
    """The same by columns of rows; without any, all rows are one group."""
    if not names:
        return np.zeros(rows.num_rows, np.intp), np.zeros(1, np.intp)
    return group_rows([rows.column(name) for name in names])


def numbers_by(rows: pa.RecordBatch, names: Sequence[str]) -> Indices:
    """A number for each row, equal where all these columns are, and small; which ones there are is not said."""
    packed = _packed_columns([rows.column(name) for name in names])
    if packed is None or int(packed.max()) > rows.num_rows:
        return groups_by(rows, names)[0]
    return packed


def ranks_of(column: pa.Array, descending: bool, nulls_first: bool) -> Numbers:
    """Numbers that sort and tie as the column's values do in a direction."""
    if not column.null_count and is_number_like(column.type):
        numbers = numbers_of(column)
        if numbers.dtype.kind in "iu":
            return ~numbers if descending else numbers
    order = total_order([column])
    ordered = np.arange(len(column)) if order is None else order
    codes = group_rows([column])[0][ordered]
    ranks = np.empty(len(column), np.int64)
    ranks[ordered] = np.cumsum(np.append([0], codes[1:] != codes[:-1]))
    if descending:
        ranks = -ranks
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        ranks[nulls] = -len(column) if nulls_first else len(column)
    return ranks


def changes(column: pa.Array) -> Mask:
    """Where a value is not the one before it, from the second on; nulls are equal."""
    if is_number_like(column.type) and not (column.null_count or pa.types.is_floating(column.type)):
        codes = numbers_of(column)
    else:
        codes = group_rows([column])[0]
    found: Mask = codes[1:] != codes[:-1]
    return found


class _Ties(NamedTuple):
    """The places of the order that are tied with a neighbour, and the number of the tie each belongs to."""

    rows: Indices
    groups: Indices


def _sorted_by_numbers(leading: Sequence[Numbers], length: int) -> tuple[Indices | None, _Ties]:
    if not leading:
        return None, _Ties(np.arange(length), np.zeros(length, dtype=np.int64))
    order: Indices | None = None
    keys = list(leading)
    if not _nondecreasing(keys):
        order = order_by(keys)
        keys = [key.take(order) for key in keys]
    return order, _ties(np.arange(length), keys)


def _nondecreasing(keys: Sequence[Numbers]) -> bool:
    """Whether rows are sorted by the keys: at each step, the first key that changes grows."""
    undecided: Mask | bool = True
    for key in keys:
        before, after = key[:-1], key[1:]
        if bool(((after < before) & undecided).any()):
            return False
        undecided = (after == before) & undecided
    return True


def _ties(places: Indices, keys: Iterable[Numbers]) -> _Ties:
    """Among sorted places, those whose keys equal a neighbour's."""
    same = np.ones(max(len(places) - 1, 0), dtype=np.bool_)
    for key in keys:
        same &= key[1:] == key[:-1]
    if not same.any():
        return _Ties(places[:0], places[:0])
    tied = np.zeros(len(places), dtype=np.bool_)
    tied[1:] = same
    group: Indices = np.cumsum(~tied, dtype=np.int64)
    tied[:-1] |= same
    return _Ties(places[tied], group[tied])


def _refined(order: Indices | None, ties: _Ties, column: pa.Array) -> tuple[Indices | None, _Ties]:
    """The order and its ties after looking at one more column in the tied places."""
    rows = ties.rows if order is None else order.take(ties.rows)
    everywhere = order is None and len(rows) == len(column)
    keys = [ties.groups, *_sort_keys(column if everywhere else gather(column, rows))]
    if not _nondecreasing(keys):
        inner = order_by(keys)
        keys = [key.take(inner) for key in keys]
        order = np.arange(len(column)) if order is None else order.copy()
        order[ties.rows] = rows.take(inner)
    return order, _ties(ties.rows, keys)


def _sort_keys(column: pa.Array) -> list[Numbers]:
    """Numbers that sort and tie as the column's values do, first key first."""
    kind = column.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_dictionary(kind):
        return _sort_keys(column.dictionary_decode())
    if not is_number_like(kind):
        return [_ranks(column)]
    numbers = numbers_of(column)
    keys = [numbers]
    if pa.types.is_floating(kind):
        missing = np.isnan(numbers)
        if missing.any():
            keys = [missing, np.where(missing, 0, numbers)]
    valid = validity_of(column)
    if valid is not None:
        keys = [valid, *(np.where(valid, key, 0) for key in keys)]
    return keys


def _ranks(column: pa.Array) -> Indices:
    """The rank of each value among the distinct ones; null ranks below all."""
    encoded = _comparable(column).dictionary_encode()
    distinct = encoded.dictionary
    order = pc.array_sort_indices(distinct).to_numpy()
    rank = np.empty(len(distinct) + 1, dtype=np.int64)
    rank[order] = np.arange(len(distinct))
    rank[-1] = -1
    return rank.take(_indices(encoded))


def _indices(encoded: pa.DictionaryArray) -> Indices:
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(encoded.dictionary))
    return indices.to_numpy()  # type: ignore[no-any-return]


def _comparable(column: pa.Array) -> pa.Array:
    """The column itself, or what is in the order of its values where Arrow cannot compare them."""
    if pa.types.is_decimal(column.type) and column.type.bit_width < 128:
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    if pa.types.is_nested(column.type) or pa.types.is_interval(column.type):
        return _ordered_bytes(column)
    return column


def _ordered_bytes(column: pa.Array) -> pa.Array:
    """Bytes in the order of nested values, which is that of their elements; nulls among these are last."""
    keys = "SELECT CASE WHEN it IS NOT NULL THEN create_sort_key(it, 'ASC NULLS LAST') END AS k FROM given"
    return run(keys, pa.table({"it": column}), "the order of nested values").column("k").combine_chunks()


def _codes(column: pa.Array) -> tuple[Indices, int]:
    """A number per row, equal where values are, below the count that is also given."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), dtype=np.int64), min(len(column), 1)
    if pa.types.is_dictionary(kind):
        return _codes(column.dictionary_decode())
    if is_number_like(kind) and column.null_count == 0:
        return _dense(_as_integers(column))
    if pa.types.is_floating(kind):
        column = pa.array(_as_integers(column), mask=column.is_null().to_numpy(zero_copy_only=False))
    encoded = _comparable(column).dictionary_encode()
    return _dense(_indices(encoded))


def _packed_columns(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64] | None:
    """Columns as one number per row that is equal where all values are, if they fit into it."""
    if not columns or not all(is_number_like(column.type) and not column.null_count for column in columns):
        return None
    return _packed([_as_integers(column) for column in columns])


def _as_integers(column: pa.Array) -> Numbers:
    """Stored numbers as integers that are equal where the values are, both zeros and all NaN included."""
    numbers = numbers_of(column)
    return canonical_floats(numbers).view(np.int64) if pa.types.is_floating(column.type) else numbers


def _dense(values: Numbers) -> tuple[Indices, int]:
    """Codes from zero up in order of first appearance, and how many there are."""
    import pandas as pd  # heavy, and nothing else here needs it

    codes, distinct = pd.factorize(values.astype(np.int64, copy=False), use_na_sentinel=False)
    return codes, len(distinct)
