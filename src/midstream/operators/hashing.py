"""Keys as 64-bit hashes, and the check that equal hashes are equal keys.

A column becomes 64-bit words, equal where its values are: a fixed word for null, one for NaN, one for both zeros.
Words are folded column by column through a bijection of 64 bits (splitmix64's finaliser), so a single integer key never
collides and any other key hardly ever. Equal words in every process: nothing here depends on a seed of the interpreter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import InternalError, QueryError
from midstream.operators.elements import Hashes, Mask
from midstream.operators.vectors import Numbers, is_number_like, numbers_of, validity_of

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0x6A09E667F3BCC909)
_NAN = np.uint64(0x7FF8000000000000)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_BYTE_MASKS = np.array([(1 << (8 * i)) - 1 for i in range(9)], dtype=np.uint64)

_LONGEST_IN_WORDS = 256
"""Texts longer than this many bytes are digested one by one: a loop over words would be longer than one over rows."""


def hash_columns(columns: Sequence[pa.Array]) -> Hashes:
    """One hash per row of the key columns, in their order."""
    if not columns:
        raise InternalError("a hash needs at least one key column")
    state: Hashes | None = None
    for column in columns:
        for words in _words(column):
            if state is None:
                state = words + _GOLDEN
            else:
                state ^= words
            _mix(state)
    assert state is not None
    return state


def columns_equal(left: Sequence[pa.Array], right: Sequence[pa.Array], nulls_equal: bool) -> Mask:
    """Row by row, whether all columns of both sides are equal; NaN equals itself, null only if `nulls_equal`."""
    if not left or len(left) != len(right):
        raise InternalError(f"cannot compare {len(left)} columns with {len(right)}")
    result = _column_equal(left[0], right[0], nulls_equal)
    for a, b in zip(left[1:], right[1:], strict=True):
        result &= _column_equal(a, b, nulls_equal)
    return result


def key_validity(columns: Sequence[pa.Array]) -> Mask | None:
    """False where any key is null or NaN, which equal nothing; None when no key is."""
    result: Mask | None = None
    for column in columns:
        for valid in (validity_of(column), _numbers_only(column)):
            if valid is not None:
                result = valid if result is None else result & valid
    return result


def _numbers_only(column: pa.Array) -> Mask | None:
    """False where a floating-point value is not a number; None when all are."""
    if not pa.types.is_floating(column.type):
        return None
    valid: Mask = ~np.isnan(numbers_of(column))
    return None if valid.all() else valid


def _mix(state: Hashes) -> None:
    shifted = state >> _30
    state ^= shifted
    state *= _FIRST
    np.right_shift(state, _27, out=shifted)
    state ^= shifted
    state *= _SECOND
    np.right_shift(state, _31, out=shifted)
    state ^= shifted


def _words(column: pa.Array) -> list[Hashes]:
    """The column as 64-bit words, several per row for wide decimals; never the column's own memory if it has nulls."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return [w.take(_positions(column)) for w in _words_with_null(column.dictionary)]
    if pa.types.is_null(kind):
        return [np.full(len(column), _NULL)]
    words = _words_of_values(column)
    valid = validity_of(column)
    if valid is not None:
        words = [np.where(valid, w, _NULL) for w in words]
    return words


def _words_with_null(dictionary: pa.Array) -> list[Hashes]:
    return [np.append(w, _NULL) for w in _words(dictionary)]


def _positions(column: pa.DictionaryArray) -> Numbers:
    positions = column.indices.cast(pa.int64()).fill_null(len(column.dictionary))
    return positions.to_numpy()  # type: ignore[no-any-return]


def _words_of_values(column: pa.Array) -> list[Hashes]:
    kind = column.type
    if pa.types.is_floating(kind):
        return [_float_words(numbers_of(column))]
    if is_number_like(kind):
        return [numbers_of(column).astype(np.int64, copy=False).view(np.uint64)]
    if pa.types.is_decimal(kind):
        return _fixed_words(column)
    if pa.types.is_fixed_size_binary(kind):
        return [_text_words(column.cast(pa.large_binary()))]
    if _is_text(kind):
        return [_text_words(column)]
    raise QueryError(
        f"a key column cannot be a {_kind_name(kind)}",
        detail=f"its type is {kind}",
        hint="use one of its parts as the key, or cast it to a string",
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        test(kind)
        for test in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
        )
    )


def _kind_name(kind: pa.DataType) -> str:
    for name in ("list", "large_list", "fixed_size_list", "list_view", "large_list_view"):
        if getattr(pa.types, f"is_{name}")(kind):
            return "list"
    return "map" if pa.types.is_map(kind) else "struct" if pa.types.is_struct(kind) else str(kind)


def _float_words(values: Numbers) -> Hashes:
    wide = values.astype(np.float64, copy=False) + 0.0  # -0.0 + 0.0 is 0.0
    words = wide.view(np.uint64)
    missing = np.isnan(wide)
    if missing.any():
        words[missing] = _NAN
    return words


def _fixed_words(column: pa.Array) -> list[Hashes]:
    width = column.type.byte_width
    if width < 8:
        column, width = column.cast(pa.decimal64(min(18, column.type.precision + 1), column.type.scale)), 8
    per_row = width // 8
    flat = np.frombuffer(column.buffers()[1], dtype=np.uint64)
    rows = flat[column.offset * per_row : (column.offset + len(column)) * per_row].reshape(-1, per_row)
    return [np.ascontiguousarray(rows[:, i]) for i in range(per_row)]


def _text_words(column: pa.Array) -> Hashes:
    """Texts as one word each: their bytes eight at a time through the bijection, then their length."""
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64 if wide else np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64, copy=False)
    if len(column) == 0:
        return np.empty(0, dtype=np.uint64)
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
    starts = offsets[:-1] - first
    lengths = np.diff(offsets)
    state = _fold_bytes(padded, starts, np.minimum(lengths, _LONGEST_IN_WORDS))
    for row in np.flatnonzero(lengths > _LONGEST_IN_WORDS):
        text = padded[starts[row] : starts[row] + lengths[row]]
        state[row] = int.from_bytes(hashlib.blake2b(text.tobytes(), digest_size=8).digest(), "little")
    state ^= lengths.view(np.uint64)
    return state


def _fold_bytes(padded: Numbers, starts: Numbers, lengths: Numbers) -> Hashes:
    at_every_byte = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))
    longest = int(lengths.max())
    state = at_every_byte.take(starts)
    state &= _BYTE_MASKS.take(np.minimum(lengths, 8))
    for done in range(8, longest, 8):
        rows = np.flatnonzero(lengths > done)
        part = state if len(rows) == len(state) else state.take(rows)
        _mix(part)
        part ^= at_every_byte.take(starts.take(rows) + done) & _BYTE_MASKS.take(
            np.minimum(lengths.take(rows) - done, 8)
        )
        if part is not state:
            state[rows] = part
    return state


def _column_equal(left: pa.Array, right: pa.Array, nulls_equal: bool) -> Mask:
    if left.null_count == 0 and right.null_count == 0:
        return _values_equal(left, right)
    left_valid, right_valid = validity_of(left), validity_of(right)
    both: Mask
    if left_valid is None or right_valid is None:
        both = right_valid if left_valid is None else left_valid  # type: ignore[assignment]
        return _values_equal(left, right) & both
    result = _values_equal(left, right) & (left_valid & right_valid)
    if nulls_equal:
        result |= ~(left_valid | right_valid)
    return result


def _values_equal(left: pa.Array, right: pa.Array) -> Mask:
    """Equality of values, anything where either is null."""
    if left.type != right.type:
        raise InternalError(f"cannot compare {left.type} with {right.type}: they have no common type yet")
    if is_number_like(left.type):
        a, b = numbers_of(left), numbers_of(right)
        result: Mask = a == b
        if pa.types.is_floating(left.type):
            result |= (a != a) & (b != b)
        return result
    if pa.types.is_null(left.type):
        return np.zeros(len(left), dtype=np.bool_)
    if pa.types.is_nested(left.type):
        raise QueryError(f"a key column cannot be a {_kind_name(left.type)}", detail=f"its type is {left.type}")
    if pa.types.is_dictionary(left.type):
        left, right = left.dictionary_decode(), right.dictionary_decode()
    equal = pc.equal(left, right)
    return equal.fill_null(False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
