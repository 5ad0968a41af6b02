"""From when until when tuples count, under every window."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.algebra.semantics.values import time_ticks


def intervals(window: str, table: pa.Table, column: str = "v") -> list[tuple[Any, ...]]:
    """(value, valid_from, valid_to) of every tuple under a window."""
    found = ms.reference(f"SELECT {column} FROM S {window}", {"S": table})
    return [tuple(row.values()) for row in found.to_pylist()]


NUMBERS = pa.table({"ts": [3, 7, 7, 20], "v": [1, 2, 3, 4]})


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("", [(1, 3, 4), (2, 7, 8), (3, 7, 8), (4, 20, 21)]),
        ("[NOW]", [(1, 3, 4), (2, 7, 8), (3, 7, 8), (4, 20, 21)]),
        ("[RANGE 10]", [(1, 3, 14), (2, 7, 18), (3, 7, 18), (4, 20, 31)]),
        ("[UNBOUNDED]", [(1, 3, None), (2, 7, None), (3, 7, None), (4, 20, None)]),
        ("[TUMBLE 10]", [(1, 10, 20), (2, 10, 20), (3, 10, 20), (4, 30, 40)]),
        ("[TUMBLE 10 OFFSET 7]", [(1, 7, 17), (2, 17, 27), (3, 17, 27), (4, 27, 37)]),
        ("[HOP 10, 5]", [(1, 5, 15), (2, 10, 20), (3, 10, 20), (4, 25, 35)]),
        ("[CUMULATE 10, 5]", [(1, 5, 15), (2, 10, 15), (3, 10, 15), (4, 25, 35)]),
        ("[SESSION 4]", [(1, 11, 12), (2, 11, 12), (3, 11, 12), (4, 24, 25)]),
        ("[SESSION 3]", [(1, 6, 7), (2, 10, 11), (3, 10, 11), (4, 23, 24)]),
        ("[ROWS 2 SLIDE 2]", [(1, 7, 20), (2, 7, 20), (3, 20, None), (4, 20, None)]),
        ("[HOP 8, 5]", [(1, 5, 15), (2, 10, 20), (3, 10, 20), (4, 25, 30)]),
    ],
)
def test_validity_under_time_windows(window: str, expected: list[tuple[object, ...]]) -> None:
    assert intervals(window, NUMBERS) == expected


def test_row_windows_end_at_the_nth_successor_and_ties_follow_all_columns() -> None:
    assert intervals("[ROWS 1]", NUMBERS) == [(1, 3, 7), (3, 7, 20), (4, 20, None)]
    assert intervals("[ROWS 2]", NUMBERS) == [(1, 3, 7), (2, 7, 20), (3, 7, None), (4, 20, None)]
    assert intervals("[ROWS 3]", NUMBERS) == [(1, 3, 20), (2, 7, None), (3, 7, None), (4, 20, None)]


def test_an_order_says_which_row_of_a_time_is_newer() -> None:
    tied = pa.table({"ts": [5, 5, 5, 9], "v": [2, None, 1, 7], "n": [3, 1, 2, 4]})
    assert intervals("[ROWS 2 ORDER BY n]", tied) == [(1, 5, 9), (2, 5, None), (7, 9, None)]
    assert intervals("[ROWS 2 ORDER BY n DESC]", tied) == [(None, 5, None), (1, 5, 9), (7, 9, None)]
    assert intervals("[ROWS 1 ORDER BY v]", tied) == [(None, 5, 9), (7, 9, None)]


def test_of_rows_of_one_time_those_count_that_came_last() -> None:
    tied = pa.table({"ts": [5, 5, 5, 9], "v": [2, None, 1, 7]})
    assert set(intervals("[ROWS 2]", tied)) == {(None, 5, 9), (1, 5, None), (7, 9, None)}
    assert set(intervals("[ROWS 2]", tied.take([3, 2, 1, 0]))) == {(None, 5, 9), (2, 5, None), (7, 9, None)}


def test_rows_of_which_nobody_knows_the_order_are_ordered_by_their_values() -> None:
    tied = pa.table({"#arrival": [0, 0, 0, 0], "ts": [5, 5, 5, 9], "v": [2, None, 1, 7]})
    # Nulls come first: the last two of the three at 5 are 1 and 2.
    expected = [(1, 5, 9), (2, 5, None), (7, 9, None)]
    assert intervals("[ROWS 2]", tied) == expected
    assert intervals("[ROWS 2]", tied.take([3, 2, 1, 0])) == expected
    tied = pa.table({"#arrival": [0, 0], "ts": [5, 5], "a": ["x", "x"], "v": [float("nan"), 1.0]})
    ((kept, *_),) = intervals("[ROWS 1]", tied)
    assert kept != kept, "NaN is greater than every number, so it comes last"


def test_partitioned_row_windows_hold_nulls_equal() -> None:
    table = pa.table({"ts": [1, 2, 3, 4], "k": ["a", None, None, "a"], "v": [1, 2, 3, 4]})
    assert intervals("[PARTITION BY k ROWS 1]", table) == [(1, 1, 4), (2, 2, 3), (3, 3, None), (4, 4, None)]


def test_tuples_without_a_time_are_left_out() -> None:
    table = pa.table({"ts": [None, 2], "v": [1, 2]})
    assert intervals("[RANGE 1]", table) == [(2, 2, 4)]


def test_an_empty_stream_has_no_elements_but_types() -> None:
    empty = pa.table({"ts": pa.array([], pa.int32()), "v": pa.array([], pa.float32())})
    found = ms.reference("SELECT v FROM S [RANGE 5]", {"S": empty})
    assert found.schema == pa.schema([("v", pa.float32()), ("valid_from", pa.int64()), ("valid_to", pa.int64())])


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def stamped(*texts: str, zone: str = "UTC", unit: str = "us") -> pa.Table:
    times = pa.array([utc(t) for t in texts], pa.timestamp("us", zone)).cast(pa.timestamp(unit, zone))
    return pa.table({"ts": times, "v": list(range(len(texts)))})


def hours(window: str, *texts: str) -> list[tuple[str, ...]]:
    """The validity of each tuple, in UTC, to the minute."""
    found = intervals(window, stamped(*texts))
    return [tuple(moment.strftime("%d %H:%M") for moment in row[1:]) for row in found]


BERLIN_DAY = "[TUMBLE 1 DAY ZONE 'Europe/Berlin']"


def test_days_follow_the_zones_clock_when_it_is_set_forward() -> None:
    # On 31 March 2024 Berlin's clocks went from 02:00 to 03:00: that day has 23 hours, from 23:00 to 22:00 UTC.
    found = hours(BERLIN_DAY, "2024-03-30 22:59", "2024-03-30 23:00", "2024-03-31 21:59", "2024-03-31 22:00")
    assert found == [
        ("30 23:00", "31 22:00"),
        ("31 22:00", "01 22:00"),
        ("31 22:00", "01 22:00"),
        ("01 22:00", "02 22:00"),
    ]


def test_days_follow_the_zones_clock_when_it_is_set_back() -> None:
    # On 27 October 2024 they went from 03:00 back to 02:00: 25 hours, from 22:00 to 23:00 UTC.
    found = hours(BERLIN_DAY, "2024-10-26 22:00", "2024-10-27 22:59", "2024-10-27 23:00")
    assert found == [("27 23:00", "28 23:00"), ("27 23:00", "28 23:00"), ("28 23:00", "29 23:00")]


def test_hours_that_the_zone_skips_move_to_the_end_of_the_gap() -> None:
    # The boundaries of 02:00 and 03:00 both fall on 01:00 UTC, and no tuple is lost between them.
    found = hours("[TUMBLE 1 HOUR ZONE 'Europe/Berlin']", "2024-03-31 00:30", "2024-03-31 01:30")
    assert found == [("31 01:00", "31 02:00"), ("31 02:00", "31 03:00")]


def test_hours_that_the_zone_repeats_count_the_first_time() -> None:
    # 02:00 to 03:00 happens twice: the window of that hour takes two hours.
    found = hours("[TUMBLE 1 HOUR ZONE 'Europe/Berlin']", "2024-10-26 23:30", "2024-10-27 00:30", "2024-10-27 01:30")
    assert found == [("27 00:00", "27 02:00"), ("27 02:00", "27 03:00"), ("27 02:00", "27 03:00")]


def test_offsets_are_on_the_zones_clock_too() -> None:
    found = hours("[TUMBLE 1 DAY OFFSET 6 HOURS ZONE 'Europe/Berlin']", "2024-03-31 03:59", "2024-03-31 04:00")
    assert found == [("31 04:00", "01 04:00"), ("01 04:00", "02 04:00")]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_tick_in_microseconds(unit: str) -> None:
    found = ms.reference("SELECT v FROM S [RANGE 1 SECOND]", {"S": stamped("2024-01-01 00:00", unit=unit)})
    assert found.schema.field("valid_to").type == pa.timestamp("us", "UTC")
    assert found["valid_to"][0].as_py() == utc("2024-01-01 00:00:01.000001")


def test_instants_finer_than_a_microsecond_are_refused() -> None:
    with pytest.raises(ms.InputError, match="finer than a microsecond"):
        time_ticks(pa.array([1000, 1001], pa.timestamp("ns")), "ts")
