"""The messages of a Kafka topic: a partition is one of the topic's, a position the offset of the next message.

Offsets are kept in manifests; no consumer group is joined, and nothing is committed to Kafka. What was written in a
transaction is read once the transaction is committed. Offsets may have gaps (of compacted topics and transactions), so
reading ends at a message beyond the last position, or at the end of the partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.messages import FORMATS, Messages
from midstream.connectors.registry import Option
from midstream.connectors.source import Position, Positions, Source
from midstream.errors import JobError

PATIENCE = 5.0
"""For how many seconds an answer of a broker is waited for."""

SILENCE = 30.0
"""For how many seconds messages are waited for that the broker says are there."""

AT_ONCE, MOMENT = 10_000, 0.1
"""How many messages are asked for at once, and for how many seconds the client then waits for all of them."""

ABOUT = pa.schema(
    [
        ("kafka_key", pa.binary()),
        ("kafka_timestamp", pa.timestamp("us", "UTC")),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)
"""What is known of a message besides its value; a schema may name these columns."""

SETTINGS: Mapping[str, Any] = {
    "group.id": "midstream",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 20,
}
"""How the client works; a fetch that waits for more messages would delay that of another partition."""


class Kafka(Source):
    """A topic of Kafka."""

    options: ClassVar[Mapping[str, Option]] = {
        "servers": Option(str, "The brokers: host:port, separated by commas.", needed=True),
        "topic": Option(str, "The topic.", needed=True),
        "format": Option(str, "What a message is: an object of JSON by default, a change, or bytes.", False, FORMATS),
        "schema": Option(str, "The columns of the stream: its key `schema`; raw messages have none."),
        "settings": Option(dict, "Settings of the client, such as security.protocol and sasl.password."),
    }

    def __init__(
        self,
        servers: str,
        topic: str,
        format: str = "json",
        schema: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.servers, self.topic, self.settings = servers, topic, dict(settings or {})
        self._messages = Messages.of(format, schema, ABOUT, self.name)
        self._client: Any = None
        self._at: tuple[str, int] | None = None
        """The partition that the client reads, and the offset of the message that it gives next."""

    @property
    def name(self) -> str:
        return f"kafka topic {self.topic}"

    def schema(self) -> pa.Schema:
        return self._messages.schema

    def partitions(self) -> Positions:
        found = self._consumer().list_topics(self.topic, PATIENCE).topics[self.topic]
        if found.error is not None or not found.partitions:
            raise JobError(f"{self.name} cannot be read: {found.error or 'it has no partitions'}")
        return {str(number): self._bounds(str(number))[0] for number in sorted(found.partitions)}

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        _, high = self._bounds(partition)
        return max(int(start), high if limit is None else min(high, int(start) + limit))

    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        found = list(self.between(partition, int(start), int(end)))
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
        return self._bounds(partition)[1] - int(start)

    def close(self) -> None:
        client, self._client, self._at = self._client, None, None
        if client is not None:
            client.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_at": None}

    def _consumer(self) -> Any:
        if self._client is None:
            from confluent_kafka import Consumer

            known = {"bootstrap.servers": self.servers, **SETTINGS}
            self._client = Consumer({**known, **self.settings}, logger=Quiet())
        return self._client

    def _bounds(self, partition: str) -> tuple[int, int]:
        """The offset of the first message, and the one after the last."""
        low, high = self._consumer().get_watermark_offsets(self._part(partition), PATIENCE, cached=False)
        return int(low), int(high)

    def _part(self, partition: str, offset: int = 0) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self.topic, int(partition), offset=offset)

    def between(self, partition: str, start: int, end: int) -> Iterator[Any]:
        """The messages from an offset up to before another."""
        from confluent_kafka import KafkaError, KafkaException

        client = self._consumer()
        if self._at != (partition, start):
            client.assign([self._part(partition, start)])
        self._at = None  # whatever happens, until the end is reached
        following, heard = start, time.monotonic()
        while following < end:
            found = client.consume(min(AT_ONCE, end - following), MOMENT)
            if not found and time.monotonic() - heard > SILENCE:
                raise TimeoutError(f"no message of partition {partition} came for {SILENCE:g} seconds")
            heard = time.monotonic() if found else heard
            for message in found:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    following = max(following, message.offset())
                elif error is not None:
                    self.require({partition: start})  # the offset may be out of range by now
                    raise KafkaException(error)
                elif message.offset() >= end:
                    return
                else:
                    following = message.offset() + 1
                    yield message
        self._at = (partition, end)


class Quiet:
    """Takes what the client logs: errors come as answers, too."""

    def log(self, *_: Any) -> None:
        """Says nothing."""

    debug = info = warning = error = critical = log
