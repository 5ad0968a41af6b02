"""A source of ours as one of Spark's: Spark's log has its positions, and tasks read the rows between them.

Spark asks for the positions of a batch, writes them down, and has the partitions read by tasks. A batch that it repeats
has the same positions and so the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from midstream.cluster.spark.versions import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
from midstream.connectors.connected import Connected, Span, first
from midstream.connectors.source import Positions


class ConnectedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream, from its first position or from where another cluster has left it.

    Spark before 4.2 does not say where a batch begins: it begins where the last one that was planned ended. Nor does it
    ask again until all is read that was there, so all that is `available` is one batch then.
    """

    def __init__(self, stream: Connected, starts: Positions | None, available: bool) -> None:
        self.stream, self.starts, self.available = stream, starts, available
        self.planned: dict[str, Any] = dict(starts or {})
        """Where the last batch has ended."""
        self.all_there_is: list[Span] | None = None
        """What was there when all of it was asked for and no more."""

    def initialOffset(self) -> dict[str, Any]:
        return dict(self.stream.with_new(self.starts or {}))

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxRows(self.stream.limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self.all_there_is = self.stream.waiting(self.stream.with_new({}))

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        starts = self.stream.with_new(self.planned if start is None else start)
        spans = self.stream.waiting(starts)
        if self.all_there_is is not None:
            last = {span.partition: span.end for span in self.all_there_is}
            until = [Span(s.partition, s.start, first(s.end, last.get(s.partition, s.start))) for s in spans]
            spans = [span for span in until if first(span.start, span.end) != span.end]
        if not (self.available if start is None else isinstance(limit, ReadAllAvailable)):
            spans, _ = self.stream.divided(spans)
        return {**starts, **{span.partition: span.end for span in spans}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        starts, self.planned = self.stream.with_new(start), end
        return [InputPartition(Span(part, starts[part], to)) for part, to in end.items() if starts[part] != to]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self.stream.rows(partition.value).to_batches()

    def commit(self, end: dict[str, Any]) -> None:
        self.stream.asked(lambda: self.stream.source.commit(end))

    def stop(self) -> None:
        self.stream.source.close()


def register(stream: Connected, starts: Positions | None, spark: SparkSession, available: bool) -> str:
    """Makes a stream known to Spark as a format, whose name it gives."""
    columns, format = from_arrow_schema(stream.travelling), f"midstream_{stream.stream}"

    class Registered(DataSource):
        @classmethod
        def name(cls) -> str:
            return format

        def schema(self) -> StructType:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return ConnectedReader(stream, starts, available)

    spark.dataSource.register(Registered)
    return format
