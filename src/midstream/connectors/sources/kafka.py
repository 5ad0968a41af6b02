"""The messages of a Kafka topic: a partition is one of the topic's, a position the offset of the next message.

Offsets are kept in manifests; no consumer group is joined, and nothing is committed to Kafka. What was written in a
transaction is read once the transaction is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.messages import FORMATS, WITH_REGISTRY, Messages
from midstream.connectors.registry import Option
from midstream.connectors.source import Position, Positions, Source
from midstream.connectors.sources.kafka_client import PATIENCE, KafkaFailure, TopicReader, has_controller
from midstream.errors import JobError

FORMAT = "What a message is: an object of JSON by default, a change, a row of Avro or Protobuf, or bytes."

ABOUT = pa.schema(
    [
        ("kafka_key", pa.binary()),
        ("kafka_timestamp", pa.timestamp("us", "UTC")),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)
"""What is known of a message besides its value; a schema may name these columns."""


class Kafka(Source):
    """A topic of Kafka."""

    options: ClassVar[Mapping[str, Option]] = {
        "servers": Option(str, "The brokers: host:port, separated by commas.", needed=True),
        "topic": Option(str, "The topic.", needed=True),
        "format": Option(str, FORMAT, (*FORMATS, *WITH_REGISTRY)),
        "schema": Option(str, "The columns of the stream: its key `schema`; raw messages have none."),
        "registry": Option(str, "The schema registry of Avro and Protobuf: http://user:password@host:8081."),
        "settings": Option(dict, "Settings of the client, such as security.protocol and sasl.password."),
    }

    def __init__(
        self,
        servers: str,
        topic: str,
        format: str = "json",
        schema: str | None = None,
        settings: Mapping[str, str] | None = None,
        registry: str | None = None,
    ) -> None:
        self.servers, self.topic, self.settings = servers, topic, dict(settings or {})
        self._messages = Messages.of(format, schema, ABOUT, self.name, registry)
        self._reader: TopicReader | None = None
        self._ends: dict[str, int] = {}
        self._firsts: dict[str, int] = {}
        """The offsets after the last message of each partition, as last seen, and of the first one, as first seen."""

    @property
    def name(self) -> str:
        return f"kafka topic {self.topic}"

    def identity(self) -> str:
        reader = self._topic()
        known = reader.asking.list_topics(self.topic, PATIENCE)
        made = reader.made() if has_controller(known) else ""
        return f"cluster {known.cluster_id}" + (f", topic {made}" if made else "")

    def schema(self) -> pa.Schema:
        return self._messages.schema

    def partitions(self) -> Positions:
        found = self._topic().asking.list_topics(self.topic, PATIENCE).topics[self.topic]
        if found.error is not None or not found.partitions:
            raise JobError(f"{self.name} cannot be read: {found.error or 'it has no partitions'}")
        names = map(str, sorted(found.partitions))
        return {name: self._firsts[name] if name in self._firsts else self._bounds(name)[0] for name in names}

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        high = self._ends.get(partition, 0)
        if limit is None or high <= int(start):
            _, high = self._bounds(partition)
        return max(int(start), high if limit is None else min(high, int(start) + limit))

    def expect(self, starts: Positions) -> None:
        for partition, start in starts.items():
            self._topic().expect(int(partition), int(start))

    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        found = self.between(partition, int(start), int(end))
        return self._messages.rows(
            [message.value() for message in found],
            lambda n: {"topic": self.topic, "partition": int(partition), "offset": found[n].offset()},
            {
                "kafka_key": lambda: [message.key() for message in found],
                "kafka_timestamp": lambda: [message.timestamp()[1] * 1000 for message in found],
                "kafka_partition": lambda: [int(partition)] * len(found),
                "kafka_offset": lambda: [message.offset() for message in found],
            },
        )

    def require(self, starts: Positions) -> None:
        for partition, start in starts.items():
            low, high = self._bounds(partition)
            if not low <= int(start) <= high:
                there = f"has messages {low} to {high} in partition {partition}"
                raise JobError(
                    f"{self.name} {there}, and {start} is the next to read",
                    detail="messages that were not read are gone" if int(start) < low else "the topic was made again",
                    hint="give the stream another name, or the job a new checkpoint, to read what there is",
                )

    def lag(self, partition: str, start: Position) -> int:
        known = self._ends.get(partition, 0)
        return max(0, (known if known > int(start) else self._bounds(partition)[1]) - int(start))

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None, "_ends": {}, "_firsts": {}}

    def between(self, partition: str, start: int, end: int) -> list[Any]:
        """The messages from an offset up to before another."""
        try:
            return self._topic().between(int(partition), start, end)
        except KafkaFailure:
            self.require({partition: start})  # the offset may be out of range by now
            raise

    def _topic(self) -> TopicReader:
        if self._reader is None:
            self._reader = TopicReader(self.topic, {"bootstrap.servers": self.servers, **self.settings})
        return self._reader

    def _bounds(self, partition: str) -> tuple[int, int]:
        """The offset of the first message, and the one after the last."""
        reader = self._topic()
        low, high = reader.asking.get_watermark_offsets(reader.part(int(partition)), PATIENCE, cached=False)
        self._ends[partition], _ = int(high), self._firsts.setdefault(partition, int(low))
        return int(low), int(high)
