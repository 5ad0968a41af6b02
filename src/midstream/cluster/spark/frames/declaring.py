"""From a DataFrame to a stream: what is declared of it, and its rows stamped with a time where they have none."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from midstream.cluster.spark.frames.tagging import StreamInput, columns_of_frame
from midstream.connectors.files.bad_rows import BAD
from midstream.errors import InputError
from midstream.inputs import StreamSettings


def stream_input(name: str, frame: DataFrame, columns: pa.Schema | None, settings: StreamSettings) -> StreamInput:
    """A streaming DataFrame as a stream of a session."""
    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        raise InputError(
            f"stream {name} must be a streaming DataFrame", hint="make it with spark.readStream, not spark.read"
        )
    if settings.stamped:
        # Within a streaming query this is the batch's time, which Spark logs with the offsets: a replay sees it again.
        frame = frame.withColumn(settings.time, F.current_timestamp())
    schema = columns_of_frame(name, frame.drop(BAD)) if columns is None else columns
    return StreamInput(settings.declaration(name, schema), frame)
