"""The client that reads a topic of Kafka: partitions that were read once are fetched ahead, for whoever goes on there.

The client gives messages of all its partitions mixed, each partition's in order. They wait here by partition, until
those between two offsets are asked for. Offsets may have gaps (of compacted topics and transactions), so what is known
of a partition ends at its last message, or at its end, which the client tells.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

PATIENCE = 5.0
"""For how many seconds an answer of a broker is waited for."""

SILENCE = 30.0
"""For how many seconds messages are waited for that the broker says are there."""

AT_ONCE, MOMENT = 10_000, 0.1
"""How many messages are asked for at once, and for how many seconds the client then waits for all of them."""

HELD_BYTES = 64 * 2**20
"""How many bytes of messages wait here before partitions that nobody reads are not fetched further."""

SETTINGS: Mapping[str, Any] = {
    "group.id": "midstream",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 20,
}
"""How the client works; a fetch that waits for more messages would delay that of another partition."""


@dataclass(slots=True)
class Ahead:
    """Messages of a partition from `start` on; all those before `following` are here, unless it has failed."""

    start: int
    following: int
    messages: list[Any] = field(default_factory=list)
    failure: Any = None


class TopicReader:
    """A consumer of some partitions of a topic; it joins no group."""

    def __init__(self, topic: str, settings: Mapping[str, Any]) -> None:
        from confluent_kafka import Consumer

        self.topic, self._settings = topic, settings
        self.consumer, self.asking = (Consumer({**SETTINGS, **settings}, logger=Quiet()) for _ in range(2))
        """One fetches, the other asks: over the same connection, a question would wait for the fetch before it."""
        self._ahead: dict[int, Ahead] = {}
        self._held = 0
        self._paused: list[Any] = []

    def close(self) -> None:
        """Ends the connections."""
        self.consumer.close()
        self.asking.close()

    def part(self, partition: int, offset: int = 0) -> Any:
        """A partition in the words of the client."""
        from confluent_kafka import TopicPartition

        return TopicPartition(self.topic, partition, offset=offset)

    def made(self) -> str:
        """What tells the topic from others of its name, made before or after; empty if its brokers do not know."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AdminClient

        client = AdminClient(dict(self._settings), logger=Quiet())
        asked = client.describe_topics(TopicCollection([self.topic]), request_timeout=PATIENCE)
        known = asked[self.topic].result(PATIENCE + 1).topic_id
        return str(known) if known.get_most_significant_bits() or known.get_least_significant_bits() else ""

    def between(self, partition: int, start: int, end: int) -> list[Any]:
        """The messages from an offset up to before another."""
        ahead = self.expect(partition, start)
        reached, heard = ahead.following, time.monotonic()
        while ahead.following < end:
            self._receive(partition, end - ahead.following)
            if ahead.failure is not None:
                self._forget(partition)
                raise KafkaFailure(str(ahead.failure))
            if ahead.following > reached:
                reached, heard = ahead.following, time.monotonic()
            elif time.monotonic() - heard > SILENCE:
                self._forget(partition)
                raise TimeoutError(f"no message of partition {partition} came for {SILENCE:g} seconds")
        cut = bisect_left(ahead.messages, end, key=_offset)
        found, ahead.messages, ahead.start = ahead.messages[:cut], ahead.messages[cut:], end
        self._held -= sum(map(len, found))
        return found

    def expect(self, partition: int, start: int) -> Ahead:
        """Fetches a partition from an offset on."""
        ahead = self._ahead.get(partition)
        if ahead is None or ahead.start != start:
            self._forget(partition)
            self.consumer.incremental_assign([self.part(partition, start)])
            ahead = self._ahead[partition] = Ahead(start, start)
        return ahead

    def _forget(self, partition: int) -> None:
        known = self._ahead.pop(partition, None)
        if known is not None:
            self._held -= sum(map(len, known.messages))
            self._paused = [part for part in self._paused if part.partition != partition]
            self.consumer.incremental_unassign([self.part(partition)])

    def _receive(self, wanted: int, missing: int) -> None:
        """Takes what the client has, for a partition that lacks some messages at most."""
        from confluent_kafka import KafkaError, Message

        self._fetch_what_fits(wanted)
        given: list[Any] = self.consumer.consume(min(AT_ONCE, missing), MOMENT)
        good = [message for message in given if message.error() is None]
        for run in (list(some) for _, some in groupby(good, Message.partition)):
            ahead = self._ahead[run[0].partition()]
            ahead.messages += run
            ahead.following = run[-1].offset() + 1
            self._held += sum(map(len, run))
        for message in given if len(good) < len(given) else ():
            error, ahead = message.error(), self._ahead.get(message.partition(), self._ahead[wanted])
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                ahead.following = max(ahead.following, message.offset())
            elif error is not None:
                ahead.failure = error

    def _fetch_what_fits(self, wanted: int) -> None:
        """While much waits here, only the partition that is read is fetched further."""
        if self._held > HELD_BYTES and not self._paused:
            self._paused = [self.part(number) for number in self._ahead if number != wanted]
            self.consumer.pause(self._paused)
        elif self._paused and (self._held <= HELD_BYTES or wanted in {part.partition for part in self._paused}):
            self.consumer.resume(self._paused)
            self._paused = []


def has_controller(cluster: Any) -> bool:
    """Whether a cluster has a broker that knows its topics by more than their names; a mock cluster has none."""
    return cluster.controller_id in cluster.brokers


class KafkaFailure(Exception):
    """What a broker answered instead of messages."""


class Quiet:
    """Takes what the client logs: errors come as answers, too."""

    def log(self, *_: Any) -> None:
        """Says nothing."""

    debug = info = warning = error = critical = log


def _offset(message: Any) -> int:
    return int(message.offset())
