"""Targets whose disk is full: an error that says so, and once there is room each result is there once.

No file may grow beyond some size, so writing fails in the system, whoever writes: Python, SQLite, DuckDB or Delta's own
library.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from midstream.cluster import sinks
from midstream.connectors import retrying
from midstream.connectors.sink import Delivery, deliver
from midstream.errors import JobError

resource = pytest.importorskip("resource", reason="this system has no limits of resources")

PAUSES = (0.1, 0.3, 1.0, 3.0)
ROOM = 60_000


def made(kind: str, folder: Path) -> tuple[dict[str, Any], Callable[[], list[int]]]:
    """How a sink is declared, and what reads the keys that its target has."""
    path = str(folder / "out")
    if kind in ("sqlite", "duckdb"):
        opened: Any = {"sqlite": sqlite3.connect, "duckdb": duckdb.connect}[kind]

        def read() -> list[int]:
            with closing(opened(path)) as connection:
                return [k for (k,) in connection.execute("SELECT k FROM t").fetchall()]

        return {"path": path, "table": "t"}, read
    if kind == "delta":
        deltalake = pytest.importorskip("deltalake", reason="it is not installed: pip install 'midstream[delta]'")
        return {"path": path}, lambda: deltalake.DeltaTable(path).to_pyarrow_table()["k"].to_pylist()
    if kind == "iceberg":
        catalogs = pytest.importorskip("pyiceberg.catalog", reason="pip install 'midstream[iceberg]'")
        known = {"type": "sql", "uri": f"sqlite:///{path}.db", "warehouse": f"file://{path}"}
        return {
            "catalog": known,
            "table": "sales.t",
        }, lambda: catalogs.load_catalog("default", **known).load_table("sales.t").scan().to_arrow()["k"].to_pylist()
    options = {"by": ["part"]} if kind == "hive" else {}
    return {"path": path, **options}, lambda: ds.dataset(path, partitioning="hive").to_table()["k"].to_pylist()


def rows(since: int, until: int) -> pa.Table:
    """Rows that do not become small, but for those of one part, which come first."""
    random = np.random.default_rng(since)
    text = [random.bytes(20).hex() for _ in range(since, until)]
    times = range(since, until)
    parts = ["small" if n < 5 else "large" for n in range(len(times))]
    return pa.table({"k": times, "part": parts, "text": text, "valid_from": times, "valid_to": times})


def give(sink: Any, since: int, until: int) -> None:
    table = rows(since, until)
    delivery = Delivery("q", "i", "c", "h", until, since, until, table.schema, since or None)
    sink.deliver(table, delivery) if hasattr(sink, "deliver") else deliver(sink, table, delivery)


@contextmanager
def full() -> Iterator[Callable[[], None]]:
    """No file grows any more, until the function is called that this gives."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def make_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield make_room
    finally:
        make_room()


@pytest.mark.parametrize(
    "kind", ["sqlite", "duckdb", "delta", "folder", "hive", pytest.param("iceberg", marks=pytest.mark.slow)]
)
def test_a_target_whose_disk_was_full_has_each_result_once(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    options, read = made(kind, tmp_path)
    sink = sinks.connect(kind, **options)
    give(sink, 0, 10)
    pauses: list[float] = []
    monkeypatch.setattr(retrying, "PAUSES", PAUSES)
    monkeypatch.setattr(retrying, "time", SimpleNamespace(sleep=pauses.append))
    with full(), pytest.raises(JobError, match=r"does not take results of query q|cannot write .*\n.*too large"):
        give(sink, 10, 5_000)
    begun = range(10, 15) if kind == "hive" else ()  # files of the last attempt, which the next one removes
    assert pauses == list(PAUSES) and sorted(read()) == [*range(10), *begun]
    with full() as make_room:
        monkeypatch.setattr(retrying, "time", SimpleNamespace(sleep=lambda _: make_room()))
        give(sink, 10, 5_000)
    for again in (sink, sinks.connect(kind, **options)):
        give(again, 10, 5_000)
    give(sink, 5_000, 5_010)
    assert sorted(read()) == list(range(5_010))
