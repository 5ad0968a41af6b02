"""Spark's hash of keys, without Spark: the values below are what `xxhash64` gave for the same columns."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from midstream.operators.arrival_hash import arrival_hash

LONGEST = {
    "-5": -459432569088617147,
    "0": -8959994473701255385,
    "-99999999999999999999999999999999999999": -2254039905620870768,
    "12345678901234567890123456789012345678": -4207986725797954644,
}


def test_decimals_of_up_to_38_digits_hash_as_on_spark():
    keys = pa.array([None, *map(Decimal, LONGEST)], pa.decimal128(38, 0))
    assert arrival_hash([keys])[1:].view(np.int64).tolist() == list(LONGEST.values())
    assert arrival_hash([keys.slice(1)]).view(np.int64).tolist() == list(LONGEST.values())


def test_decimals_that_agree_in_28_digits_have_hashes_of_their_own():
    keys = pa.array([Decimal(f"{10**37 + i}") for i in range(100)], pa.decimal128(38, 0))
    assert len(set(arrival_hash([keys]).tolist())) == 100
