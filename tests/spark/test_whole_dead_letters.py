"""Rows that a job on Spark cannot use are buried as they came, and other rows come without what nobody reads."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.spark.push_down import PushDown

pytestmark = pytest.mark.spark

SCHEMA = "ts TIMESTAMP, k BIGINT, note STRING, size BIGINT, tags ARRAY<STRING>, place STRUCT<x: DOUBLE, y: DOUBLE>"
PLAIN, COUNTED = "SELECT k FROM A [NOW] WHERE k > 0", "SELECT size, count(*) AS n FROM B [RANGE 1 MINUTE] GROUP BY size"
DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def put(folder: Path, name: str, *minutes: int | None) -> None:
    rows = [
        {
            "ts": None if minute is None else DAY + dt.timedelta(minutes=minute),
            "k": number,
            "note": None if number % 2 else f"{name} \u2028{number}",
            "size": number * 7,
            "tags": ["a", None] if number % 3 else None,
            "place": {"x": number / 3, "y": None},
        }
        for number, minute in enumerate(minutes)
    ]
    kinds = [pa.timestamp("us", "UTC"), pa.int64(), pa.string(), pa.int64(), pa.list_(pa.string())]
    place = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    schema = pa.schema(list(zip(rows[0], [*kinds, place], strict=True)))
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{name}.parquet")


def buried(spark: object | None, base: Path, small: int | None = None) -> list[tuple[str, ...]]:
    base.mkdir()
    batches: list[tuple[int | None, ...]] = [(10, 12, None, 11), (20, 3, None, 10**7, 4, 21)]
    for number, minutes in enumerate(batches):
        for stream in "AB":
            put(base / stream, str(number), *minutes)
        on = "local" if spark is None else "spark"
        with CheckpointSession(spark, checkpoint=base / "job", on=on, slots=2, small_batches=small) as session:
            for stream in "AB":
                session.open_stream(stream, "parquet", path=str(base / stream), schema=SCHEMA)
            session.query("plain", PLAIN)
            session.query("counted", COUNTED)
            session.process_available()
    letters = ms.open(base / "job").dead_letters().to_pylist()
    return sorted((letter["stream"], letter["reason"], letter["row"]) for letter in letters)


def test_dead_letters_are_whole_wherever_rows_are_read(spark, tmp_path, monkeypatch):
    narrowed: list[bool] = []
    select = PushDown.select

    def noted(self: PushDown, *given: Any) -> Any:
        narrowed.append(bool(self.unread))
        return select(self, *given)

    monkeypatch.setattr(PushDown, "select", noted)
    local = buried(None, tmp_path / "local")
    assert [reason for _, reason, _ in local] == [*["late"] * 2, *["null time"] * 2, "too far ahead"] * 2
    assert all('"place"' in row and '"note"' in row for _, _, row in local)
    assert buried(spark, tmp_path / "driver", 1_000_000) == local
    assert not narrowed
    assert buried(spark, tmp_path / "executors", 0) == local
    assert narrowed == [True, False] * 2  # the second is a batch without rows
