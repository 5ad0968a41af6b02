"""What Spark alone takes for a batch: the same sources, tagging, shuffle and Python step, which only counts rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from midstream.distribution.fragments import Route
from midstream.inputs import declare
from midstream.runtime.spark.environment import BATCH_SETTINGS
from midstream.runtime.spark.tagging import StreamInput, columns_of_frame, default_routing, slot_of, tagged_union


def run_counting(inputs: Sequence[StreamInput], keys: Mapping[str, str], checkpoint: str, slots: int) -> list[int]:
    """Works through all that the streams have; gives the milliseconds that each batch took in all."""
    routes = {name: Route((key,)) for name, key in keys.items()}
    needed = {s.declaration.name: list(s.declaration.columns.names) for s in inputs}
    union, _ = tagged_union(inputs, routes, needed)

    def on_batch(rows: DataFrame, batch_id: int) -> None:
        for key, value in BATCH_SETTINGS.items():
            rows.sparkSession.conf.set(key, value)
        placed = rows.repartitionById(slots, slot_of(default_routing(slots), slots))
        placed.mapInArrow(_count, "rows bigint").collect()

    writer = union.writeStream.foreachBatch(on_batch).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return batch_milliseconds(query)


def counting_inputs(frames: Mapping[str, DataFrame]) -> list[StreamInput]:
    """Frames with a time column `ts` as streams."""
    return [StreamInput(declare(name, columns_of_frame(name, frame)), frame) for name, frame in frames.items()]


def condition(text: str) -> Column:
    """A condition of Spark SQL."""
    return F.expr(text)


def batch_milliseconds(query: object) -> list[int]:
    """How long each batch of a streaming query took, from one trigger to the next."""
    return [int(p["durationMs"]["triggerExecution"]) for p in query.recentProgress]  # type: ignore[attr-defined]


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})
