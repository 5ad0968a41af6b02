"""Every kind of operator in one session, as a process: `python -m tests.spark.all_kinds FOLDER MASTER SLOTS`.

Batches are the files under the folder, one of each stream a batch; results are left beside them.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.engine.kinds import KINDS, inputs

import midstream as ms
from midstream.algebra.declarations import ARRIVAL

SCHEMA = "ts BIGINT, k STRING, v BIGINT"


def write_batches(folder: Path, seed: int, count: int = 5) -> None:
    """The streams cut at random into as many files each, some of them empty."""
    random = np.random.default_rng(seed)
    for name, table in inputs().items():
        (folder / name).mkdir(parents=True)
        cuts = np.sort(random.integers(0, table.num_rows + 1, count - 1)).tolist()
        for i, (start, end) in enumerate(zip([0, *cuts], [*cuts, table.num_rows], strict=True)):
            path = folder / name / f"{i:03d}.parquet"
            pq.write_table(table.slice(start, end - start), path)
            at = time.time() - 1000 + i
            os.utime(path, (at, at))


def as_they_came(folder: Path) -> dict[str, pa.Table]:
    """The streams, whose rows come with the numbers of their files: within a batch Spark knows no order of rows."""
    found = {}
    for name in inputs():
        files = [pq.read_table(path) for path in sorted((folder / name).iterdir())]
        came = [file.add_column(0, ARRIVAL, pa.array([i] * len(file), pa.int64())) for i, file in enumerate(files)]
        found[name] = pa.concat_tables(came)
    return found


def run_all(spark: Any, folder: Path, slots: int) -> dict[str, pa.Table]:
    """The results of every kind of query, by a session over the files."""
    with ms.Session(spark, checkpoint=str(folder / "checkpoint"), slots=slots) as session:
        for name in inputs():
            files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
            session.stream(name, files, time="ts")
        queries = {kind: session.query(f"q{i}", KINDS[kind].query) for i, kind in enumerate(KINDS)}
        session.process_available()
        session.finish()
        return {kind: query.table() for kind, query in queries.items()}


def main(folder: Path, master: str, slots: int) -> None:
    """Runs them and leaves their results."""
    from tests.spark.settings import SHORT_LIVED

    from midstream.cluster.spark import spark_session

    spark = spark_session(master, **SHORT_LIVED, **{"spark.driver.memory": "1g"})
    (folder / "results").mkdir()
    for i, table in enumerate(run_all(spark, folder, slots).values()):
        pq.write_table(table, folder / "results" / f"{i}.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
