"""Files that are there and wait for later batches: a stream does not promise what they already break."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.connectors.files import contents

QUERY = "SELECT k, count(*) AS n FROM A [RANGE 5] GROUP BY k"


def write(folder: Path, format: str, first: int, age: int) -> pa.Table:
    """A file with ten rows from an instant on, so many seconds old."""
    rows = pa.table({"k": [i % 3 for i in range(10)], "ts": [first + i for i in range(10)]})
    path = folder / f"{first}.{format}"
    folder.mkdir(exist_ok=True)
    if format == "parquet":
        pa.parquet.write_table(rows, path)
    elif "csv" in format:
        with pa.output_stream(path, compression="detect") as file:
            pa.csv.write_csv(rows, file, pa.csv.WriteOptions(include_header=True))
    else:
        path.write_text("".join(f'{{"k":{row["k"]},"ts":{row["ts"]}}}\n' for row in rows.to_pylist()))
    os.utime(path, (10**9 - age,) * 2)
    return rows


def batches(
    folder: Path, format: str, firsts: Sequence[int], spark: object | None = None
) -> tuple[pa.Table, pa.Table, list[int], int]:
    """The rows of files, one a batch in this order; results, how many each batch released, and how many were late."""
    fed = [write(folder / "in", format, first, len(firsts) - place) for place, first in enumerate(firsts)]
    format = format.removesuffix(".gz")
    options = {"maxFilesPerTrigger": "1"} | ({"header": "true"} if format == "csv" else {})
    released: list[int] = []
    on = "local" if spark is None else "spark"
    with CheckpointSession(spark, checkpoint=str(folder / "checkpoint"), on=on) as session:
        session.open_stream("A", format, path=str(folder / "in"), schema="k BIGINT, ts BIGINT", options=options)
        session.query("q", QUERY)
        session.on_progress(lambda event: released.append(event["queries"]["q"]["results"]))
        session.process_available(finish=True)
        letters = ms.open(folder / "checkpoint").dead_letters()
        return pa.concat_tables(fed), session.queries["q"].table(), released, letters.num_rows


@pytest.mark.parametrize("format", ["parquet", "csv", "csv.gz", "json"])
def test_rows_of_a_backlog_whose_files_are_out_of_order_are_not_late(format: str, tmp_path: Path) -> None:
    fed, found, _, late = batches(tmp_path, format, [40, 0, 30, 10, 20])
    assert late == 0
    assert ms.snapshot_equal(found, ms.reference(QUERY, {"A": fed}, time="ts"))


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_a_backlog_in_order_releases_results_before_its_end(format: str, tmp_path: Path) -> None:
    fed, found, released, late = batches(tmp_path, format, [0, 10, 20, 30, 40])
    assert late == 0
    assert sum(released[:3]) > 0
    assert ms.snapshot_equal(found, ms.reference(QUERY, {"A": fed}, time="ts"))


@pytest.mark.parametrize("name", ["long.csv", "long.csv.gz"])
def test_of_a_long_text_the_first_and_the_last_rows_tell_its_times(name: str, tmp_path: Path) -> None:
    lines = [f"{i % 3},{i}\n" for i in [*range(500, 20_000), 7]]
    with pa.output_stream(tmp_path / name, compression="detect") as file:
        file.write("".join(lines).encode())
    times = contents.FileContents("A", "csv", pa.schema([("k", pa.int64()), ("ts", pa.int64())])).some_of(
        tmp_path / name, "ts"
    )
    assert times is not None
    assert (min(times.to_pylist()), max(times.to_pylist())) == (7, 19_999)
    assert len(times) < len(lines)


def test_a_file_that_cannot_be_read_is_named_when_it_is_its_turn(tmp_path: Path) -> None:
    write(tmp_path / "in", "parquet", 0, 9)
    (tmp_path / "in" / "broken.parquet").write_text("no Parquet")
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        session.open_stream(
            "A",
            "parquet",
            path=str(tmp_path / "in"),
            schema="k BIGINT, ts BIGINT",
            options={"maxFilesPerTrigger": "1"},
        )
        session.query("q", QUERY)
        with pytest.raises(ms.InputError, match=r"cannot read .*broken\.parquet"):
            session.process_available()
        assert session.job.batch == 0
