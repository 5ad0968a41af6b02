"""The messages of a stream of NATS JetStream: a position is the sequence number of the last message that was read.

Messages are read by a consumer that lives as long as it is needed and acknowledges nothing. With a subject, numbers
have gaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.messages import FORMATS, Messages
from midstream.connectors.registry import Option
from midstream.connectors.source import Position, Positions, Source
from midstream.errors import JobError

PART = "messages"
PATIENCE = 5.0
"""For how many seconds an answer of the server is waited for."""

AT_ONCE = 1000

ABOUT = pa.schema(
    [("nats_subject", pa.string()), ("nats_sequence", pa.int64()), ("nats_time", pa.timestamp("us", "UTC"))]
)
"""What is known of a message besides its bytes; a schema may name these columns."""


class NatsStream(Source):
    """A stream of NATS JetStream."""

    options: ClassVar[Mapping[str, Option]] = {
        "servers": Option(str, "The servers: nats://host:4222, separated by commas.", needed=True),
        "stream": Option(str, "The stream.", needed=True),
        "subject": Option(str, "Which subjects of the stream are read; all of them by default."),
        "format": Option(str, "What a message is: an object of JSON by default, a change, or bytes.", FORMATS),
        "schema": Option(str, "The columns of the stream: its key `schema`; raw messages have none."),
        "settings": Option(dict, "Settings of the connection: user, password, token or user_credentials."),
    }

    def __init__(
        self,
        servers: str,
        stream: str,
        subject: str | None = None,
        format: str = "json",
        schema: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.servers, self.stream, self.subject = servers.split(","), stream, subject
        self.settings = dict(settings or {})
        self._messages = Messages.of(format, schema, ABOUT, self.name)

    @property
    def name(self) -> str:
        return f"nats stream {self.stream}" + (f", subject {self.subject}" if self.subject else "")

    def identity(self) -> str:
        return f"made {self._info().created}"

    def schema(self) -> pa.Schema:
        return self._messages.schema

    def partitions(self) -> Positions:
        return {PART: self._bounds()[0] - 1}

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        _, last = self._bounds()
        return max(int(start), last if limit is None else min(last, int(start) + limit))

    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        found = self.run(self.between(int(start), int(end)))
        return self._messages.rows(
            [message.data for message in found],
            lambda n: {"stream": self.stream, "sequence": found[n].metadata.sequence.stream},
            {
                "nats_subject": lambda: [message.subject for message in found],
                "nats_sequence": lambda: [message.metadata.sequence.stream for message in found],
                "nats_time": lambda: [message.metadata.timestamp for message in found],
            },
        )

    def require(self, starts: Positions) -> None:
        first, last = self._bounds()
        start = int(starts[PART])
        if not first - 1 <= start <= last:
            raise JobError(
                f"{self.name} has messages {first} to {last}, and {start + 1} is the next to read",
                detail="messages that were not read are gone" if start < first else "the stream was made again",
                hint="give the stream another name to read what there is",
            )

    def lag(self, partition: str, start: Position) -> int:
        return self._bounds()[1] - int(start)

    def _bounds(self) -> tuple[int, int]:
        """The numbers of the first and the last message."""
        state = self._info().state
        return int(state.first_seq), int(state.last_seq)

    def _info(self) -> Any:
        """What the server knows of the stream."""
        return self.run(lambda stream: stream.stream_info(self.stream))

    def between(self, start: int, end: int) -> Any:
        """Gives the messages after a number up to another."""

        async def ask(stream: Any) -> list[Any]:
            from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

            if start >= end:
                return []
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=start + 1, ack_policy=AckPolicy.NONE
            )
            reading = await stream.pull_subscribe(self.subject or ">", stream=self.stream, config=config)
            found: list[Any] = []
            waiting = (await reading.consumer_info()).num_pending
            while waiting:
                some = await reading.fetch(min(AT_ONCE, waiting), timeout=PATIENCE)
                found += [message for message in some if message.metadata.sequence.stream <= end]
                waiting = some[-1].metadata.num_pending if some[-1].metadata.sequence.stream < end else 0
            await reading.unsubscribe()
            return found

        return ask

    def run(self, ask: Any) -> Any:
        """What the server answers, over a connection of its own; it is not waited for one that is not there."""
        import nats
        from nats.errors import NoServersError
        from nats.js.errors import NotFoundError

        failures = list[Exception]()

        async def failed(error: Exception) -> None:
            failures.append(error)

        async def asked() -> Any:
            once = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
            known = {"connect_timeout": PATIENCE, "error_cb": failed, **once}
            try:
                client = await nats.connect(self.servers, **known, **self.settings)
            except NoServersError:
                raise ConnectionError(f"{failures[-1]}") from None
            try:
                return await ask(client.jetstream(timeout=PATIENCE))
            except NotFoundError:
                raise JobError(f"{self.name} is not there") from None
            finally:
                await client.close()

        with ThreadPoolExecutor(1) as apart:  # a loop may run in this thread already, as in notebooks
            return apart.submit(lambda: asyncio.run(asked())).result()
