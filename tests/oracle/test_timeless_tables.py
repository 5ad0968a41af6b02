"""A table without a time column is there at every instant."""

from __future__ import annotations

import pyarrow as pa
import pytest

import midstream as ms

SALES = pa.table({"ts": [5, 9, 11, 12], "item": [1, 2, 2, 3]})
ITEMS = pa.table({"item": [1, 2], "name": ["tea", "salt"]})
TIMES = {"sales": "ts", "items": None}


def test_a_table_without_a_time_is_joined_at_every_instant_and_shows_its_own_columns() -> None:
    query = "SELECT s.ts, i.* FROM sales [NOW] AS s LEFT JOIN items AS i ON s.item = i.item"
    inputs = {"sales": SALES, "items": ITEMS}
    found = ms.run(query, inputs, time=TIMES, batch_rows=2)
    assert [(row["ts"], row["item"], row["name"]) for row in found.to_pylist()] == [
        (5, 1, "tea"),
        (9, 2, "salt"),
        (11, 2, "salt"),
        (12, None, None),
    ]
    assert ms.snapshot_equal(found, ms.reference(query, inputs, time=TIMES))


def test_a_table_without_a_time_takes_no_window_and_some_table_must_have_one() -> None:
    inputs = {"sales": SALES, "items": ITEMS}
    with pytest.raises(ms.QueryError, match="they take no window"):
        ms.run("SELECT name FROM items [RANGE 5]", inputs, time=TIMES)
    with pytest.raises(ms.InputError, match="no table has a time column"):
        ms.run("SELECT name FROM items", {"items": ITEMS}, time={"items": None})
