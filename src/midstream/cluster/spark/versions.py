"""What differs between the versions of Spark that jobs run on: 4.0 to 4.3.

Everything that a version lacks, and what is done instead, is here; the rest of the package calls the names below.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from midstream.cluster.spark_version import version_of

VERSION = version_of(pyspark.__version__)

NAMES_SOURCES = VERSION >= (4, 3)
"""Whether Spark's log knows the sources of a query by their names; else it knows them by their order."""

COUNTS_LAST_ATTEMPTS = VERSION >= (4, 3)
"""Whether what tasks observe counts once, if a task runs again."""

if TYPE_CHECKING or VERSION >= (4, 2):
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
else:  # Spark does not ask, so nobody has to answer
    ReadAllAvailable = ReadMaxRows = SupportsTriggerAvailableNow = type("NotYet", (), {})


def arrow_schema(schema: StructType, zone: str | None) -> pa.Schema:
    """The Arrow schema of a DataFrame; before 4.2, times with a zone are in UTC whatever the session's zone is."""
    return to_arrow_schema(schema, timezone=zone) if VERSION >= (4, 2) else to_arrow_schema(schema)


def repartition_by_id(rows: DataFrame, partitions: int, by: Column) -> DataFrame:
    """Rows in the partitions of their numbers.

    Before 4.1, Spark only has partitions by hash: a number stands for each partition whose hash falls there.
    """
    if VERSION >= (4, 1):
        return rows.repartitionById(partitions, by)
    numbers = F.array(*(F.lit(number) for number in numbers_in_partitions(partitions)))
    return rows.repartition(partitions, F.get(numbers, by))


@cache
def numbers_in_partitions(partitions: int) -> tuple[int, ...]:
    """For each partition a number that Spark's partitioning by hash puts there.

    >>> [murmur3(number) % 3 for number in numbers_in_partitions(3)]
    [0, 1, 2]
    """
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(murmur3(number) % partitions, number)
        if len(found) == partitions:
            return tuple(found[partition] for partition in range(partitions))
    raise AssertionError("numbers do not end")


def murmur3(number: int) -> int:
    """Spark's hash of an integer, as `hash(number)` gives it.

    >>> murmur3(0), murmur3(1), murmur3(7)
    (933211791, -559580957, 1079293707)
    """
    key = _rotated(number * 0xCC9E2D51, 15) * 0x1B873593
    value = (_rotated((42 ^ key) & 0xFFFFFFFF, 13) * 5 + 0xE6546B64) ^ 4
    for shift, factor in _FINISH:
        value = ((value ^ (value & 0xFFFFFFFF) >> shift) * factor) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


_FINISH = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))


def _rotated(value: int, by: int) -> int:
    value &= 0xFFFFFFFF
    return (value << by | value >> 32 - by) & 0xFFFFFFFF
