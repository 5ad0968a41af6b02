"""A command whose Spark is killed under it: `python killing_process.py FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import typer


def main(folder: Path) -> None:
    """Kills Spark's process with the first batch's results."""
    from pyspark import SparkContext
    from tests.spark.feeding import Feed
    from tests.spark.settings import SHORT_LIVED

    import midstream as ms
    from midstream.cluster.spark import spark_session

    spark = spark_session("local[2]", **SHORT_LIVED, **{"spark.driver.memory": "1g"})
    machine = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
    with ms.Session(spark, checkpoint=str(folder / "checkpoint"), slots=2, small_batches=0) as session:
        session.stream("A", Feed(folder / "A").frame(spark), time="ts")
        session.query("q", "SELECT k FROM A [RANGE 10]")
        session.on_progress(lambda _: os.kill(machine, signal.SIGKILL))
        session.start()
        session.wait()


if __name__ == "__main__":
    from midstream.interface.cli.endings import ends_clearly

    try:
        ends_clearly(main)(Path(sys.argv[1]))
    except typer.Exit as end:
        sys.exit(end.exit_code)
