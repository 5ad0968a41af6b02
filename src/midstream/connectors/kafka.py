"""A topic of Kafka. A delivery is one transaction, and each of its messages says whose it is and up to which instant.

So the topic's own tail tells what it has had: of a delivery that was committed, all messages are there, and consumers
that read what is committed see nothing of one that was not. Whoever writes first shuts out all others that write for
the same query, then looks at the tail, then writes; so of two that write the same, one is refused.

Brokers that show what was not committed (and the mock cluster of tests, which keeps no transactions) leave a part of a
delivery behind. The rows that are there are not written again: those that are missing are.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.attempts import Tail, TooLong
from midstream.connectors.fitting import STOP, put_in
from midstream.connectors.forms import Form, require_distinct_names
from midstream.connectors.registry import ON_BAD, Option, form_option
from midstream.connectors.sink import Delivery, raced, require_named
from midstream.connectors.sources.kafka import Kafka
from midstream.connectors.sources.kafka_client import AT_ONCE, PATIENCE, Quiet
from midstream.inputs.json_values import json_texts

HEADER = "midstream"
TIMEOUT = 60.0
"""For how many seconds a transaction may take to be committed."""

USUAL_LONGEST, ROOM = 1_000_000, 1_000
"""How many bytes a message has at most unless settings say otherwise, and how many of these its header may take."""


class KafkaTopic:
    """Messages of JSON in a topic, which is made if brokers make topics."""

    options: ClassVar[Mapping[str, Option]] = {
        "servers": Option(str, "The brokers: host:port, separated by commas.", needed=True),
        "topic": Option(str, "The topic.", needed=True),
        "key": Option(list, "The columns that are the key of a message, as JSON; none by default."),
        "settings": Option(dict, "Settings of the client, such as security.protocol and sasl.password."),
        "form": form_option("rows", "changelog"),
        "on_bad": ON_BAD,
    }
    keeps_types: ClassVar[bool] = False

    def __init__(
        self,
        servers: str,
        topic: str,
        form: Form = "rows",
        key: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        on_bad: str = STOP,
    ) -> None:
        self.servers, self.topic, self.form, self.key, self.on_bad = servers, topic, form, list(key), on_bad
        self.settings, self.refusals = dict(settings or {}), (TooLong,)
        self._longest = int(self.settings.get("message.max.bytes", USUAL_LONGEST)) - ROOM
        self.name = f"kafka topic {topic}"
        self._opened: pa.Schema | None = None
        self._producers: dict[str, Any] = {}
        self._had: dict[str, int] = {}
        """What the topic has had by what this has written itself, whoever's it is."""
        self._tail = Tail(None, Counter())

    def require(self, schema: pa.Schema) -> None:
        """Refuses columns of one name, and a key of columns that results do not have."""
        require_distinct_names(schema, self.name)
        require_named(self, "the key", self.key, schema)

    def open(self, schema: pa.Schema) -> None:
        """Has the topic made, where brokers do so; refuses a key of columns that results do not have."""
        if schema == self._opened:
            return
        from confluent_kafka import Producer

        self.require(schema)
        known = {"bootstrap.servers": self.servers, **self.settings}
        found = Producer(known, logger=Quiet()).list_topics(self.topic, PATIENCE).topics[self.topic]
        if found.error is not None:
            raise OSError(f"{self.name}: {found.error.str()}")  # a topic that is being made is there a moment later
        self._opened = schema

    def last(self, delivery: Delivery) -> int | None:
        """Before which instant the topic has had the query's results, by its tail; None if it has none."""
        if (known := self._had.get(delivery.whose)) is not None:
            return known
        self._tail = Tail.of(self._found(delivery))
        return self._tail.until

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        """Adds the rows that are missing, in one transaction."""
        producer = self._producer(delivery)
        whose = delivery.whose
        messages = list[tuple[bytes | None, bytes]]()
        put_in(self, delivery, table, lambda rows: messages.extend(self._messages_of(rows)))
        missing = [(key, text) for key, text in messages if not self._tail.takes(text)]
        about = {"of": whose, "until": delivery.until, "attempt": secrets.token_hex(8), "rows": len(missing)}
        headers = [(HEADER, json.dumps(about).encode())]
        self._had.pop(whose, None)
        try:
            producer.begin_transaction()
            for key, text in missing:
                self._send(producer, key, text, headers)
            producer.commit_transaction(TIMEOUT)
        except BaseException:
            # It is in the middle of a transaction, which the next producer of the same name ends.
            del self._producers[self._transaction(delivery)]
            producer.purge()
            raise
        self._had[whose] = delivery.until

    def _messages_of(self, table: pa.Table) -> list[tuple[bytes | None, bytes]]:
        """Rows as keys and values; refuses one that is longer than a message may be."""
        texts = [text.encode() for batch in table.to_batches() for text in json_texts(batch)]
        messages = list(zip(self._keys(table), texts, strict=True))
        longest = max((len(key or b"") + len(text) for key, text in messages), default=0)
        if longest > self._longest:
            raise TooLong(f"a message of {longest:,} bytes is longer than {self.name} may have them")
        return messages

    def _send(self, producer: Any, key: bytes | None, text: bytes, headers: list[tuple[str, bytes]]) -> None:
        while True:
            try:
                producer.produce(self.topic, text, key=key, headers=headers)
                return
            except BufferError:
                producer.poll(0.1)

    def _keys(self, table: pa.Table) -> list[bytes | None]:
        if not self.key:
            return [None] * table.num_rows
        return [text.encode() for batch in table.select(self.key).to_batches() for text in json_texts(batch)]

    def _producer(self, delivery: Delivery) -> Any:
        """The producer of a query; the first time, others are shut out, and nothing may have come meanwhile."""
        from confluent_kafka import Producer

        whose = self._transaction(delivery)
        if whose not in self._producers:
            known = {"bootstrap.servers": self.servers, "transactional.id": whose}
            producer = Producer({**known, **self.settings}, logger=Quiet())
            producer.init_transactions(TIMEOUT)
            had = self.last(delivery)
            if had is not None and had > delivery.since:
                raise raced(self, delivery)
            self._producers[whose] = producer
        return self._producers[whose]

    def _transaction(self, delivery: Delivery) -> str:
        return f"midstream/{delivery.history}/{delivery.query}/{self.topic}"

    def _found(self, delivery: Delivery) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The messages of a query that the topic has, with what they say of themselves."""
        for message in self._messages():
            for name, value in message.headers() or ():
                about = json.loads(value) if name == HEADER else {}
                if about.get("of") == delivery.whose:
                    yield about, message.value()

    def _messages(self) -> Iterator[Any]:
        """All messages of the topic."""
        topic = Kafka(self.servers, self.topic, format="raw", settings=self.settings)
        try:
            for partition, start in topic.partitions().items():
                end = int(topic.end(partition, start))
                for since in range(int(start), end, AT_ONCE):
                    yield from topic.between(partition, since, min(end, since + AT_ONCE))
        finally:
            topic.close()
