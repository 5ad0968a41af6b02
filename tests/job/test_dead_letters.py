"""Rows that cannot be used are buried, whatever they hold, and never fail their batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.inputs.test_json_values import ODD
from tests.job.chain import Chain

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.lists import dead_letters_of


def dead_rows(chain: Chain) -> list[dict[str, Any]]:
    """What the dead-letter table has by now."""
    files = chain.driver.files
    return [
        row
        for named in dead_letters_of(files, chain.manifest)
        for row in pq.read_table(pa.BufferReader(files.read(named.path))).to_pylist()
    ]


@pytest.mark.parametrize("name", ODD)
def test_rows_are_put_in_order_whatever_they_hold(name: str, tmp_path: Path) -> None:
    value = ODD[name]
    batch = pa.RecordBatch.from_arrays(
        [pa.concat_arrays([value, pa.nulls(1, value.type), value]), pa.array([5, 5, 5])], names=["x", "ts"]
    )
    question = ask("SELECT x FROM A [NOW]", {"A": batch.slice(0, 0)})
    chain = Chain(question.plan, question.catalog, tmp_path)
    chain.batch({"A": batch})
    chain.batch({}, end=True)
    assert chain.results()["x"].combine_chunks().equals(pa.concat_arrays([pa.nulls(1, value.type), value, value]))


@pytest.mark.parametrize("name", ODD)
def test_a_late_row_is_buried_whatever_it_holds(name: str, tmp_path: Path) -> None:
    value = ODD[name]

    def rows(column: pa.Array, ts: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([column, pa.array([ts])], names=["x", "ts"])

    question = ask("SELECT x FROM A [NOW]", {"A": pa.Table.from_batches([rows(pa.nulls(1, value.type), 0)])})
    chain = Chain(question.plan, question.catalog, tmp_path)
    chain.batch({"A": rows(pa.nulls(1, value.type), 1000)})
    chain.batch({"A": rows(value, 5)})
    (dead,) = dead_rows(chain)
    assert dead["reason"] == "late" and json.loads(dead["row"])["x"]["not_json"] == str(value.type)


WIDE = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("unread", pa.string()), ("w", pa.float64())])


def moment(seconds: float) -> datetime:
    return datetime(2024, 5, 1, tzinfo=UTC) + timedelta(seconds=seconds)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.filterwarnings("ignore::midstream.DeadLetterWarning")
def test_rows_are_buried_whole_whatever_queries_read_of_them(slots: int, tmp_path: Path) -> None:
    session = ms.Session(checkpoint=str(tmp_path), on="local", slots=slots)
    session.stream("A", WIDE, max_ahead="1 hour")
    session.query("q", "SELECT k FROM A [RANGE 5 seconds]")
    session.start()
    session.push("A", pa.Table.from_pylist([row(moment(1000), 1, "usual", 1.0)], WIDE))
    late, timeless = row(moment(2), 2, "late", None), row(None, 3, None, 3.0)
    ahead, usable = row(datetime(9999, 1, 1, tzinfo=UTC), 4, "ahead", 4.0), row(moment(1001), 5, None, None)
    session.push("A", pa.Table.from_pylist([late, timeless, ahead, usable], WIDE))
    dead = session.dead_letters().to_pylist()
    session.stop()
    assert {letter["reason"]: json.loads(letter["row"]) for letter in dead} == {
        "late": {"ts": "2024-05-01T00:00:02+00:00", "k": 2, "unread": "late", "w": None},
        "null time": {"ts": None, "k": 3, "unread": None, "w": 3.0},
        "too far ahead": {"ts": "9999-01-01T00:00:00+00:00", "k": 4, "unread": "ahead", "w": 4.0},
    }


def row(ts: datetime | None, k: int, unread: str | None, w: float | None) -> dict[str, Any]:
    return {"ts": ts, "k": k, "unread": unread, "w": w}


def test_a_query_that_reads_a_further_column_is_added_without_a_restart_in_this_process(tmp_path: Path) -> None:
    session = ms.Session(checkpoint=str(tmp_path), on="local")
    session.stream("A", pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())]), max_ahead="any")
    session.query("q", "SELECT k FROM A [RANGE 5]")
    session.start()
    session.push("A", [{"ts": 1, "k": 1, "v": 1}])
    session.query("values", "SELECT v FROM A [RANGE 5]")
    session.push("A", [{"ts": 2, "k": 1, "v": 7}])
    session.finish()
    assert 7 in session.results("values")["v"].to_pylist()
    session.stop()
