"""One name for sessions, wherever they run."""

from __future__ import annotations

from typing import Any


def Session(spark: Any = None, *, checkpoint: Any = None, **options: Any) -> Any:  # noqa: N802
    """A session: in this process if there is neither a SparkSession nor a checkpoint, else on Spark.

    In this process rows are pushed (`session.push`) and nothing is kept when it ends. On Spark streams are streaming
    DataFrames, and the checkpoint lets a job go on where it was.
    """
    if spark is None and checkpoint is None:
        from midstream.cluster.local.embedded_session import Session as Embedded

        return Embedded(**options)
    from midstream.cluster.spark import Session as OnSpark

    return OnSpark(spark, checkpoint=checkpoint, **options)
