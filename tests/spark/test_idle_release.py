"""On Spark, which calls nobody without rows, an idle job releases what is complete as well."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import midstream as ms
from midstream.cluster.spark import backend


def write(folder: Path, name: str, *times: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("".join(f"{time},1\n" for time in times))
    (folder / f".{name}").rename(folder / f"{name}.csv")


def counting(spark: Any, root: Path) -> Any:
    session = ms.Session(spark, checkpoint=str(root / "checkpoint"))
    session.open_stream("A", "csv", path=str(root / "A"), schema="ts BIGINT, k BIGINT", max_ahead="any")
    session.query("q", "SELECT k, count(*) AS n FROM A [TUMBLE 10] GROUP BY k")
    return session


def test_an_idle_job_on_spark_releases_what_is_complete_once_and_goes_on(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "QUIET", 0.2)
    batches: list[int] = []
    released = {0: threading.Event(), 1: threading.Event()}

    def told(event: dict[str, Any]) -> None:
        batches.append(sum(event["rows"].values()))
        if batches[-1] == 0:
            released[batches.count(0) - 1].set()

    write(tmp_path / "A", "first", 1, 2, 25)
    with counting(spark, tmp_path) as session:
        session.on_progress(told)
        session.start()
        assert released[0].wait(120)
        write(tmp_path / "A", "second", 26, 45)
        assert released[1].wait(120)
    assert batches == [3, 0, 2, 0]
    write(tmp_path / "A", "third", 61)
    with counting(spark, tmp_path) as session:
        session.process_available(finish=True)
        rows = session.results("q").toArrow().sort_by("valid_from")
        assert rows["n"].to_pylist() == [2, 2, 1, 1]
