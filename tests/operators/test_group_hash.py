"""Spark's hash of keys, without Spark: the values below are what `xxhash64` gave for the same columns."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from midstream.errors import QueryError
from midstream.operators.group_hash import group_hash

LONGEST = {
    "-5": -459432569088617147,
    "0": -8959994473701255385,
    "-99999999999999999999999999999999999999": -2254039905620870768,
    "12345678901234567890123456789012345678": -4207986725797954644,
}


def test_decimals_of_up_to_38_digits_hash_as_on_spark():
    keys = pa.array([None, *map(Decimal, LONGEST)], pa.decimal128(38, 0))
    assert group_hash([keys])[1:].view(np.int64).tolist() == list(LONGEST.values())
    assert group_hash([keys.slice(1)]).view(np.int64).tolist() == list(LONGEST.values())


def test_decimals_that_agree_in_28_digits_have_hashes_of_their_own():
    keys = pa.array([Decimal(f"{10**37 + i}") for i in range(100)], pa.decimal128(38, 0))
    assert len(set(group_hash([keys]).tolist())) == 100


def test_decimals_that_spark_does_not_know_have_hashes_too():
    keys = pa.array([None, *map(Decimal, LONGEST)], pa.decimal256(60, 0))
    hashes = group_hash([keys])
    assert len(set(hashes.tolist())) == 5
    assert hashes[2:].tolist() == group_hash([keys.slice(2)]).tolist()


BITS = 2**64
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def one_text(text: bytes, seed: int) -> int:
    """XXH64 as it is described, of one text."""
    first, second, third, fourth, fifth = PRIMES

    def left(word: int, by: int) -> int:
        return (word << by | word >> (64 - by)) % BITS

    def turned(lane: int, word: int) -> int:
        return left((lane + word * second) % BITS, 31) * first % BITS

    def word_at(place: int, size: int) -> int:
        return int.from_bytes(text[place : place + size], "little")

    at, found = 0, (seed + fifth) % BITS
    if len(text) >= 32:
        lanes = [(seed + more) % BITS for more in (first + second, second, 0, -first)]
        while at + 32 <= len(text):
            lanes = [turned(lane, word_at(at + 8 * i, 8)) for i, lane in enumerate(lanes)]
            at += 32
        found = sum(left(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) % BITS
        for lane in lanes:
            found = ((found ^ turned(0, lane)) * first + fourth) % BITS
    found = (found + len(text)) % BITS
    while at + 8 <= len(text):
        found, at = (left(found ^ turned(0, word_at(at, 8)), 27) * first + fourth) % BITS, at + 8
    if at + 4 <= len(text):
        found, at = (left(found ^ word_at(at, 4) * first % BITS, 23) * second + third) % BITS, at + 4
    for byte in text[at:]:
        found = left(found ^ byte * fifth % BITS, 11) * first % BITS
    for by, prime in ((33, second), (29, third), (32, 1)):
        found = (found ^ found >> by) * prime % BITS
    return found


def test_texts_of_all_lengths_hash_as_described_one_by_one():
    random = np.random.default_rng(5)
    texts = [random.bytes(length) for length in random.permutation([*range(140), *range(40), 0, 31, 32, 33, 1000])]
    alone = [one_text(text, 42) for text in texts]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        column = pa.array(texts, kind)
        assert group_hash([column]).tolist() == alone
        assert group_hash([column.slice(7, 20)]).tolist() == alone[7:27]
        assert group_hash([column, column]).tolist() == [
            one_text(text, seed) for text, seed in zip(texts, alone, strict=True)
        ]
    assert group_hash([pa.array([*texts, None])]).tolist() == [*alone, 42]
    assert group_hash([pa.array(["ab", "cd"])]).tolist() == [one_text(b"ab", 42), one_text(b"cd", 42)]
    assert group_hash([pa.array([], pa.string())]).tolist() == []


def test_a_type_without_a_hash_is_refused_by_name():
    with pytest.raises(QueryError, match="a key column cannot be a struct"):
        group_hash([pa.array([{"a": 1}])])
