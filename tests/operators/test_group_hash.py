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


def test_a_type_without_a_hash_is_refused_by_name():
    with pytest.raises(QueryError, match="a key column cannot be a struct"):
        group_hash([pa.array([{"a": 1}])])
