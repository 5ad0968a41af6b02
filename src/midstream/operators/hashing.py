"""Keys as 64-bit hashes, and the check that equal hashes are equal keys.

A column becomes 64-bit words, equal where its values are: a fixed word for null, one for NaN, one for both zeros.
Words are folded column by column through a bijection of 64 bits (splitmix64's finaliser), so a single integer key never
collides and any other key hardly ever. Equal words in every process: nothing here depends on a seed of the interpreter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import InternalError, QueryError
from midstream.operators.elements import Hashes, Indices, Mask
from midstream.operators.vectors import Numbers, canonical_floats, is_number_like, numbers_of, validity_of

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0x6A09E667F3BCC909)
POSITION_BITS = 20
_POSITION = np.uint64((1 << POSITION_BITS) - 1)
_HIGH = np.uint64((1 << 64) - (1 << POSITION_BITS))
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_BYTE_MASKS = np.array([(1 << (8 * i)) - 1 for i in range(9)], dtype=np.uint64)

_LONGEST_IN_WORDS = 256
"""Texts longer than this many bytes are digested one by one: a loop over words would be longer than one over rows."""


def hash_order(hashes: Hashes) -> tuple[Indices, Hashes]:
    """The permutation that sorts by shortened hash, and the shortened hashes in order; equal ones keep their order."""
    count = len(hashes)
    packed = hashes & _HIGH
    if count > int(_POSITION):
        order = np.argsort(packed, kind="stable")
        return order, packed[order]
    packed |= np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & _POSITION).view(np.int64)
    packed &= _HIGH
    return order, packed


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
        return [np.append(w, _NULL).take(_positions(column)) for w in _words(column.dictionary)]
    if pa.types.is_null(kind):
        return [np.full(len(column), _NULL)]
    words = _words_of_values(column)
    valid = validity_of(column)
    if valid is not None:
        words = [np.where(valid, w, _NULL) for w in words]
    return words


def _positions(column: pa.DictionaryArray) -> Numbers:
    positions = column.indices.cast(pa.int64()).fill_null(len(column.dictionary))
    return positions.to_numpy()  # type: ignore[no-any-return]


def _words_of_values(column: pa.Array) -> list[Hashes]:
    kind = column.type
    if pa.types.is_floating(kind):
        return [canonical_floats(numbers_of(column)).view(np.uint64)]
    if is_number_like(kind):
        return [numbers_of(column).astype(np.int64, copy=False).view(np.uint64)]
    if pa.types.is_decimal(kind):
        return fixed_words(column)
    if pa.types.is_fixed_size_binary(kind):
        return [_text_words(column.cast(pa.large_binary()))]
    if _is_any(kind, "string large_string string_view binary large_binary binary_view"):
        return [_text_words(column)]
    raise no_key(kind)


def no_key(kind: pa.DataType) -> QueryError:
    """What is said of a key column of a type that has no hash."""
    hint = "use one of its parts as the key, or cast it to a string"
    return QueryError(f"a key column cannot be a {_kind_name(kind)}", detail=f"its type is {kind}", hint=hint)


def _is_any(kind: pa.DataType, names: str) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names.split())


def _kind_name(kind: pa.DataType) -> str:
    if _is_any(kind, "list large_list fixed_size_list list_view large_list_view"):
        return "list"
    return "map" if pa.types.is_map(kind) else "struct" if pa.types.is_struct(kind) else str(kind)


def fixed_words(column: pa.Array) -> list[Hashes]:
    """The words of 64 bits that decimals are stored in; those of nulls are arbitrary."""
    width = column.type.byte_width
    if width < 8:
        column, width = column.cast(pa.decimal64(min(18, column.type.precision + 1), column.type.scale)), 8
    per_row = width // 8
    flat = np.frombuffer(column.buffers()[1], dtype=np.uint64)
    rows = flat[column.offset * per_row : (column.offset + len(column)) * per_row].reshape(-1, per_row)
    return [np.ascontiguousarray(rows[:, i]) for i in range(per_row)]


@dataclass(frozen=True, slots=True)
class Texts:
    """The bytes of texts: where each of them starts, and how many it has."""

    data: npt.NDArray[np.uint8]
    starts: Numbers
    lengths: Numbers
    eights: npt.NDArray[np.void]
    """The eight bytes from each byte on; behind the last there are zeros."""

    @staticmethod
    def of(column: pa.Array) -> Texts:
        """Those of a column; where it has nulls, of whatever lies there."""
        if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
            column = column.cast(pa.large_binary())
        wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        _, ends, data = column.buffers()
        offsets = np.frombuffer(ends, dtype=np.int64 if wide else np.int32)
        offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64, copy=False)
        first, last = (int(offsets[0]), int(offsets[-1])) if len(column) else (0, 0)
        padded = np.zeros(last - first + 8, dtype=np.uint8)
        if last > first:
            padded[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
        eights = np.ndarray((len(padded) - 7,), "V8", padded, strides=(1,))
        return Texts(padded, offsets[:-1] - first, np.diff(offsets), eights)

    def words(self, at: Numbers) -> Hashes:
        """The eight bytes from each of some places on; as bytes alone they are gathered without being looked at."""
        return self.eights[at].view("<u8")


def _text_words(column: pa.Array) -> Hashes:
    """Texts as one word each: their bytes eight at a time through the bijection, then their length."""
    if len(column) == 0:
        return np.empty(0, dtype=np.uint64)
    texts = Texts.of(column)
    starts, lengths = texts.starts, texts.lengths
    state = _fold_bytes(texts, np.minimum(lengths, _LONGEST_IN_WORDS))
    for row in np.flatnonzero(lengths > _LONGEST_IN_WORDS):
        text = texts.data[starts[row] : starts[row] + lengths[row]]
        state[row] = int.from_bytes(hashlib.blake2b(text.tobytes(), digest_size=8).digest(), "little")
    state ^= lengths.view(np.uint64)
    return state


def _fold_bytes(texts: Texts, lengths: Numbers) -> Hashes:
    state = texts.words(texts.starts)
    state &= _BYTE_MASKS.take(np.minimum(lengths, 8))
    for done in range(8, int(lengths.max()), 8):
        rows = np.flatnonzero(lengths > done)
        part = state if len(rows) == len(state) else state.take(rows)
        _mix(part)
        word = texts.words(texts.starts.take(rows) + done)
        part ^= word & _BYTE_MASKS.take(np.minimum(lengths.take(rows) - done, 8))
        if part is not state:
            state[rows] = part
    return state


def _column_equal(left: pa.Array, right: pa.Array, nulls_equal: bool) -> Mask:
    result, known = _values_equal(left, right), [v for v in (validity_of(left), validity_of(right)) if v is not None]
    for valid in known:
        result = result & valid
    return result | ~(known[0] | known[1]) if nulls_equal and len(known) == 2 else result


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
