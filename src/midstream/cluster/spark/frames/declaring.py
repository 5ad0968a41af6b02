"""From a DataFrame to a stream: what is declared of it, and its rows stamped with a time where they have none."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from midstream.algebra.declarations import Timestamps
from midstream.algebra.time import TimeDomain, ticks
from midstream.cluster.spark.frames.tagging import StreamInput, columns_of_frame
from midstream.errors import InputError
from midstream.inputs import Duration, declare


def stream_input(
    name: str,
    frame: DataFrame,
    columns: pa.Schema | None,
    time: str,
    lateness: Duration,
    timestamps: Timestamps,
    skew: Duration | None,
) -> StreamInput:
    """A streaming DataFrame as a stream of a session."""
    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        raise InputError(
            f"stream {name} must be a streaming DataFrame", hint="make it with spark.readStream, not spark.read"
        )
    if timestamps not in ("external", "internal", "latent"):
        raise InputError(f"timestamps are external, internal or latent, not {timestamps!r}")
    stamped = timestamps != "external"
    if stamped:
        # Within a streaming query this is the batch's time, which Spark logs with the offsets: a replay sees it again.
        frame = frame.withColumn(time, F.current_timestamp())
    schema = columns_of_frame(name, frame) if columns is None else columns
    declared = declare(name, schema, time, lateness)
    if stamped and not pa.types.is_timestamp(declared.columns.field(time).type):
        raise InputError(f"stream {name} is stamped with timestamps, which its time column {time} cannot hold")
    behind = _skew(name, skew, declared.domain)
    willing = stamped or skew is not None
    return StreamInput(replace(declared, timestamps=timestamps, skew=behind, on_demand=willing), frame)


def _skew(name: str, skew: Duration | None, domain: TimeDomain) -> int:
    behind = 0 if skew is None or skew == 0 else ticks(skew, domain)
    if behind < 0:
        raise InputError(f"stream {name} cannot have a negative skew: {skew}")
    return behind
