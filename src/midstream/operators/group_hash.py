"""The hash of keys whose first bits are a row's partition group: Spark's, computed without Spark.

Rows are dealt to slots by `xxhash64`, which Spark computes for streams as they arrive. It folds a row's columns one
after the other, each into the hash of those before it; a null leaves the hash as it is. Integers of up to 32 bits count
as one such word, longer ones as one of 64 bits, texts as their bytes. Which of these a column is follows from the type
that carries it through Spark; what Spark does not know is folded word by word.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.carriers import carrier
from midstream.operators.elements import Hashes
from midstream.operators.hashing import Texts, fixed_words, no_key
from midstream.operators.vectors import Indices, numbers_of, of_type, validity_of

SEED = np.uint64(42)
_1, _2, _3, _4, _5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
AT_ONCE = 16_384
"""How many rows are hashed at a time: what lies between two steps then stays in a core's cache."""

Words = npt.NDArray[np.uint64]


def group_hash(columns: Sequence[pa.Array]) -> Hashes:
    """What `xxhash64` gives for the columns, whose zeros of both signs are one."""
    count = len(columns[0])
    if count <= AT_ONCE:
        return _hashed(columns)
    hashed = np.empty(count, np.uint64)
    for start in range(0, count, AT_ONCE):
        hashed[start : start + AT_ONCE] = _hashed([column.slice(start, AT_ONCE) for column in columns])
    return hashed


def _hashed(columns: Sequence[pa.Array]) -> Hashes:
    state: Hashes = np.full(1, SEED)
    for column in columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        folded = _folded(column, state)
        valid = validity_of(column)
        state = folded if valid is None else np.where(valid, folded, state)
    return state


def _folded(column: pa.Array, seed: Words) -> Words:
    types = pa.types
    if types.is_decimal256(column.type):
        for words in fixed_words(column):
            seed = _long(words, seed)
        return seed
    kind = carrier(column.type)
    column = of_type(column, kind)
    if types.is_boolean(kind):
        return _int(_filled(column.cast(pa.uint8())).astype(np.uint64), seed)
    if types.is_date32(kind):
        column, kind = column.cast(pa.int32()), pa.int32()
    if types.is_integer(kind) and kind.bit_width <= 32:
        return _int(_filled(column).astype(np.int32).view(np.uint32).astype(np.uint64), seed)
    if types.is_integer(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        if types.is_duration(kind):
            column = column.cast(pa.duration("us"))
        # What a null holds is arbitrary, and so is its hash, which nobody takes.
        return _long(numbers_of(column).astype(np.int64, copy=False).view(np.uint64), seed)
    if types.is_floating(kind):
        return _long(_double_words(_filled(column.cast(pa.float64()))), seed)
    if types.is_decimal(kind):
        return _decimal(column, seed)
    texts = types.is_string, types.is_large_string, types.is_string_view
    if any(test(kind) for test in (*texts, types.is_binary, types.is_large_binary, types.is_binary_view)):
        return _bytes(column, seed)
    raise no_key(kind)


def _filled(column: pa.Array) -> npt.NDArray[np.generic]:
    values = column.fill_null(0) if column.null_count else column
    return np.array(values.to_numpy(zero_copy_only=False))


def _double_words(values: npt.NDArray[np.generic]) -> Words:
    words = (values.astype(np.float64) + 0.0).view(np.uint64)
    return np.where(np.isnan(words.view(np.float64)), np.uint64(0x7FF8000000000000), words)


def _decimal(column: pa.Array, seed: Words) -> Words:
    """Decimals as whole numbers of their smallest unit: a word each if they have up to 18 digits, bytes if more."""
    precision, scale = column.type.precision, column.type.scale
    stored = column.cast(pa.decimal128(precision, scale)).fill_null(Decimal(0))
    # As stored, a value is that number in 16 bytes. Python's decimals would be rounded to the digits of their context.
    content = np.frombuffer(stored.buffers()[1], np.uint64)[2 * stored.offset : 2 * (stored.offset + len(stored))]
    if precision <= 18:
        return _long(content[::2], seed)
    whole = (
        int.from_bytes(value, "little", signed=True) for value in content.reshape(-1, 2).view("V16")[:, 0].tolist()
    )
    texts = [n.to_bytes((n + (n < 0)).bit_length() // 8 + 1, "big", signed=True) for n in whole]
    return _bytes(pa.array(texts, pa.binary()), seed)


def _left(words: Words, by: int) -> Words:
    """Turns words left by so many bits, where they lie."""
    right = words >> np.uint64(64 - by)
    words <<= np.uint64(by)
    words |= right
    return words


def _finished(words: Words) -> Words:
    """Mixes words, where they lie."""
    shifted = words >> np.uint64(33)
    words ^= shifted
    words *= _2
    words ^= np.right_shift(words, np.uint64(29), out=shifted)
    words *= _3
    words ^= np.right_shift(words, np.uint64(32), out=shifted)
    return words


def _int(values: Words, seed: Words) -> Words:
    return _finished(_with_int(seed + _5 + np.uint64(4), values))


def _long(values: Words, seed: Words) -> Words:
    return _finished(_with_long(seed + _5 + np.uint64(8), values))


def _with_long(words: Words, values: Words) -> Words:
    mixed = _left(values * _2, 31)
    mixed *= _1
    mixed ^= words
    mixed = _left(mixed, 27)
    mixed *= _1
    mixed += _4
    return mixed


def _bytes(column: pa.Array, seed: Words) -> Words:
    """Texts a step at a time, all of those that have so many bytes left."""
    texts = Texts.of(column)
    seed = np.broadcast_to(seed, len(column))
    words = seed + _5
    if len(rows := np.flatnonzero(texts.lengths >= 32)):
        words[rows] = _in_blocks(texts, rows, seed[rows])
    starts, lengths = texts.starts, texts.lengths
    words += lengths.view(np.uint64)
    for size, left, step in ((8, lengths & 31, _with_long), (4, lengths & 7, _with_int), (1, lengths & 3, _with_byte)):
        at = starts + lengths - left
        for done in range(0, int(left.max(initial=0)) - size + 1, size):
            rows = np.flatnonzero(left >= done + size)
            if len(rows) == len(words):
                words = step(words, texts.words(at + done))
            else:
                words[rows] = step(words[rows], texts.words(at[rows] + done))
    return _finished(words)


def _with_int(words: Words, values: Words) -> Words:
    words = _left(words ^ ((values & np.uint64(0xFFFFFFFF)) * _1), 23)
    words *= _2
    words += _3
    return words


def _with_byte(words: Words, values: Words) -> Words:
    words = _left(words ^ ((values & np.uint64(0xFF)) * _5), 11)
    words *= _1
    return words


def _in_blocks(texts: Texts, rows: Indices, seed: Words) -> Words:
    """The blocks of four words that texts begin with, in four lanes."""
    lanes = [seed + _1 + _2, seed + _2, seed.copy(), seed - _1]
    starts, blocks = texts.starts[rows], texts.lengths[rows] >> 5
    for block in range(int(blocks.max())):
        some = np.flatnonzero(blocks > block)
        for number, lane in enumerate(lanes):
            mixed = _left(lane[some] + texts.words(starts[some] + (32 * block + 8 * number)) * _2, 31)
            lane[some] = mixed * _1
    turned = [_left(lane.copy(), by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)]
    words = turned[0] + turned[1] + turned[2] + turned[3]
    for ended in lanes:
        words = (words ^ (_left(ended * _2, 31) * _1)) * _1 + _4
    return words
