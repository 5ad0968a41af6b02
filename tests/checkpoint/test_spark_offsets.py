"""Offsets of Spark's sources say how many rows a batch has, where they count rows."""

from __future__ import annotations

import pytest

from midstream.checkpoint.spark_offsets import rows_between

HEAD = 'v1\n{"batchTimestampMs":1}\n'


@pytest.mark.parametrize(
    ("earlier", "later", "rates", "rows"),
    [
        ('{"logOffset":3}', '{"logOffset":4}', {}, 0),
        ('{"t":{"0":5,"1":2}}', '{"t":{"0":9,"1":2}}', {}, 4),
        ("3\n7", "5\n7", {"0": 10, "1": 1}, 20),
        ('{"logOffset":3}\n4', '{"logOffset":4}\n6', {"1": 1}, 2),
        ("-\n0", '{"logOffset":0}\n2', {"1": 3}, 6),
    ],
)
def test_rows_are_counted(earlier, later, rates, rows):
    assert rows_between(HEAD + earlier, HEAD + later, rates) == rows


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("3", "5"),  # seconds, and nobody knows how many rows a second
        ('{"t":{"0":5}}', '{"t":{"0":9,"1":2}}'),  # a partition that was not there before
        ('{"seen":"x"}', '{"seen":"y"}'),
        ("not json", "not json"),
        ("-", '{"t":{"0":9}}'),
    ],
)
def test_what_does_not_count_rows_is_unknown(earlier, later):
    assert rows_between(HEAD + earlier, HEAD + later, {}) is None


def test_sources_that_have_names_are_known_by_them():
    before, after = ("v2\n{}\n" + f'A:{{"logOffset":{n}}}\nclock:{n}' for n in (1, 4))
    assert rows_between(before, after, {"clock": 2}) == 6
