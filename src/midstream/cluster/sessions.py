"""One name for sessions, wherever they run."""

from __future__ import annotations

from typing import Any

from midstream.errors import InputError


def Session(spark: Any = None, *, checkpoint: Any = None, on: str | None = None, **options: Any) -> Any:  # noqa: N802
    """A session: on a checkpoint on Spark or in this process (`on="local"`), or without one in memory alone.

    With neither a SparkSession nor a checkpoint rows are pushed (`session.push`) and nothing is kept when it ends.
    """
    if spark is None and checkpoint is None and on in (None, "local"):
        from midstream.cluster.local.embedded_session import Session as Embedded

        return Embedded(**options)
    from midstream.cluster.session import Session as OnCheckpoint

    if checkpoint is None:
        raise InputError("a session on Spark needs a checkpoint", hint='Session(spark, checkpoint="path")')
    return OnCheckpoint(spark, checkpoint=checkpoint, on=on or "spark", **options)
