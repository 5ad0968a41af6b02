"""Hashes and row-wise equality of key columns."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operators.columns import random_columns, rows_of

from midstream.algebra.semantics.values import row_identity
from midstream.errors import InternalError, QueryError
from midstream.operators.hashing import columns_equal, hash_columns, key_validity

seeds = st.integers(0, 2**32)


@given(seeds)
def test_hashes_are_equal_exactly_where_rows_are(seed: int) -> None:
    columns = random_columns(random.Random(seed), 20)
    hashes = hash_columns(columns)
    assert hashes.dtype == np.uint64
    by_identity = dict(zip(map(row_identity, rows_of(columns)), hashes.tolist(), strict=True))
    assert [by_identity[row_identity(row)] for row in rows_of(columns)] == hashes.tolist()
    assert len(set(by_identity.values())) == len(by_identity)


@given(seeds)
def test_equality_of_rows_is_that_of_their_values(seed: int) -> None:
    chance = random.Random(seed)
    columns = random_columns(chance, 20)
    shuffled = pa.array(chance.sample(range(20), 20))
    others = [c.take(shuffled) for c in columns]
    pairs = list(zip(rows_of(columns), rows_of(others), strict=True))
    equal = [row_identity(a) == row_identity(b) for a, b in pairs]
    assert columns_equal(columns, others, nulls_equal=True).tolist() == equal
    known = [same and None not in a for same, (a, _) in zip(equal, pairs, strict=True)]
    assert columns_equal(columns, others, nulls_equal=False).tolist() == known


@given(seeds)
def test_a_key_is_valid_when_none_of_its_columns_is_null_or_not_a_number(seed: int) -> None:
    columns = random_columns(random.Random(seed), 12)
    valid = [not any(value is None or value != value for value in row) for row in rows_of(columns)]
    found = key_validity(columns)
    assert found is None if all(valid) else found is not None and found.tolist() == valid


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.uint64(), pa.bool_()])
def test_integers_of_all_widths_hash_alike(kind: pa.DataType) -> None:
    assert hash_columns([pa.array([0, 1, None]).cast(kind)]).tolist() == hash_columns([pa.array([0, 1, None])]).tolist()


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.binary()]
)
def test_texts_hash_alike_however_they_are_stored(kind: pa.DataType) -> None:
    texts = pa.array(["", "a", "eight888", "nine99999", "x" * 1000, None])
    stored = texts.dictionary_encode() if pa.types.is_dictionary(kind) else texts.cast(kind)
    assert hash_columns([stored]).tolist() == hash_columns([texts]).tolist()


def test_the_order_of_columns_matters() -> None:
    a, b = pa.array([1, 2]), pa.array([2, 1])
    assert hash_columns([a, b])[0] == hash_columns([b, a])[1]
    assert hash_columns([a, b])[0] != hash_columns([b, a])[0]
    assert hash_columns([pa.array(["ab"]), pa.array(["c"])])[0] != hash_columns([pa.array(["a"]), pa.array(["bc"])])[0]


def test_hashes_fill_the_space_evenly() -> None:
    for column in (pa.array(range(100_000)), pa.array([f"user {i}" for i in range(100_000)])):
        hashes = hash_columns([column])
        assert len(np.unique(hashes)) == 100_000
        for bits in (hashes >> np.uint64(56), hashes & np.uint64(255)):
            counts = np.bincount(bits.astype(np.int64), minlength=256)
            assert counts.min() > 250 and counts.max() < 550


def test_hashes_are_the_same_in_every_process() -> None:
    program = (
        "import pyarrow as pa; from midstream.operators.hashing import hash_columns as h;"
        "print(h([pa.array([1, None]), pa.array(['some text', 'x' * 500])]).tolist())"
    )
    here = hash_columns([pa.array([1, None]), pa.array(["some text", "x" * 500])]).tolist()
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=_path())
    assert there.stdout.strip() == str(here)


def _path() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "12345"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.list_(pa.int64()), "list"),
        (pa.struct([("a", pa.int64())]), "struct"),
        (pa.map_(pa.string(), pa.int64()), "map"),
    ],
)
def test_nested_keys_are_refused(kind: pa.DataType, name: str) -> None:
    with pytest.raises(QueryError, match=f"a key column cannot be a {name}"):
        hash_columns([pa.nulls(2, kind)])


def test_no_columns_make_no_key() -> None:
    with pytest.raises(InternalError):
        hash_columns([])
    assert key_validity([]) is None


def test_no_rows_have_no_hashes() -> None:
    for kind in (pa.int64(), pa.string(), pa.float64(), pa.decimal128(5, 1)):
        assert hash_columns([pa.array([], kind)]).tolist() == []
        assert columns_equal([pa.array([], kind)], [pa.array([], kind)], nulls_equal=True).tolist() == []


def test_different_types_are_not_compared() -> None:
    with pytest.raises(InternalError, match="no common type"):
        columns_equal([pa.array([1])], [pa.array([1.0])], nulls_equal=False)
