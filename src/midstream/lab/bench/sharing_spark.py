"""`midstream bench sharing-on-spark`: fifty queries over the same three windows against one of them, on Spark.

The fifty each select a fiftieth of a three-way join. Their time is held against that of one query that gives the whole
join: the same results in all; their state against that of one of them. Both sides read the same files, one per stream
and trigger, in one Spark session, and take turns.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from midstream.lab.bench import sharing
from midstream.lab.bench.figures import Report

if TYPE_CHECKING:
    from midstream.lab.yardsticks.many_queries import Asked

WARM_UP = 4
"""Batches of a run until the windows are full and the tasks' processes know the plans."""


def bench_sharing_on_spark(repeats: int = 2, seed: int = 11) -> Report:
    """Time, state and output of many queries against those of one."""
    from midstream.cluster.spark.environment import spark_session
    from midstream.lab.yardsticks.many_queries import many_queries

    queries = sharing.QUERIES
    texts = {f"q{i}": f"{sharing.JOIN} AND A.v = {i}" for i in range(queries)}
    sides = {"whole": {"all": sharing.JOIN}, "one": {"q0": texts["q0"]}, "many": texts}
    spark = spark_session()
    found: dict[str, Asked] = {}
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        folders = _write(Path(temporary) / "data", seed)
        for turn in range(repeats + 1):
            for name in ("whole", "one", "many") if turn == 0 else ("whole", "many"):
                work = Path(temporary) / f"{name}-{turn}"
                found[name] = many_queries(spark, folders, sides[name], work)
                if turn:  # Java compiles what has run often enough
                    seconds.setdefault(name, []).extend(found[name].seconds[WARM_UP:])
    whole, one, many = (found[name] for name in ("whole", "one", "many"))
    report = Report("sharing-on-spark")
    report.add("results of the whole join", whole.results, "rows")
    report.add(f"results of {queries} queries / of the whole join", many.results / whole.results, "ratio", 1.0)
    report.add(f"state of {queries} / of one query", many.state_rows / one.state_rows, "ratio", 3.0, "at most")
    times = {name: statistics.median(taken) for name, taken in seconds.items()}
    report.add("a batch of the whole join", times["whole"], "seconds")
    report.add(f"a batch of {queries} queries", times["many"], "seconds")
    report.add(
        f"time of {queries} queries / of one at equal output", times["many"] / times["whole"], "ratio", 5.0, "at most"
    )
    return report


def _write(root: Path, seed: int) -> dict[str, Path]:
    folders = {name: root / name for name in "ABC"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    for number, push in enumerate(sharing._pushes(seed)):
        for name, rows in push.items():
            pq.write_table(rows, folders[name] / f"{number:06d}.parquet")
    return folders
