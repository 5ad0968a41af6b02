"""A subject of a NATS stream. Each message says whose it is, and how far the delivery goes that it belongs to.

A query's results have a subject of their own below the declared one, so that its last message is found at once, and
the messages since the delivery before tell what is there. The first message of a portion is taken only if no other has
come to the subject since it was asked, and each has an id by which the server knows a repeat; so of two that write the
same, one is refused. A delivery that was interrupted is there in part until it is completed.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.attempts import Tail, TooLong
from midstream.connectors.fitting import STOP, put_in
from midstream.connectors.forms import Form, require_distinct_names
from midstream.connectors.registry import ON_BAD, Option, form_option
from midstream.connectors.sink import Delivery, raced
from midstream.connectors.sources.nats import NatsStream
from midstream.inputs.json_values import json_texts

HEADER = "Midstream"
AT_ONCE = 1000
"""How many messages are sent before their acknowledgements are waited for."""

LONGEST = 2**20 - 1000
"""How many bytes a row may have: a message has a MiB, unless the server is told otherwise, and its header some."""


class NatsSubject:
    """Messages of JSON in a stream of NATS JetStream, which must be there."""

    options: ClassVar[Mapping[str, Option]] = {
        "servers": Option(str, "The servers: nats://host:4222, separated by commas.", needed=True),
        "stream": Option(str, "The stream.", needed=True),
        "subject": Option(str, "The subject: messages have subjects below it, one for each query.", needed=True),
        "settings": Option(dict, "Settings of the connection: user, password, token or user_credentials."),
        "form": form_option("rows", "changelog"),
        "on_bad": ON_BAD,
    }
    keeps_types: ClassVar[bool] = False
    refusals = (TooLong,)

    def __init__(
        self,
        servers: str,
        stream: str,
        subject: str,
        form: Form = "rows",
        settings: Mapping[str, str] | None = None,
        on_bad: str = STOP,
    ) -> None:
        self.stream, self.subject, self.form, self.on_bad = stream, subject, form, on_bad
        self.name = f"nats subject {subject} of stream {stream}"
        self._known = {"servers": servers, "stream": stream, "format": "raw", "settings": settings}
        self._subjects: dict[str, _Subject] = {}

    def require(self, schema: pa.Schema) -> None:
        """Refuses columns that the objects of messages cannot tell apart."""
        require_distinct_names(schema, self.name)

    open = require

    def last(self, delivery: Delivery) -> int | None:
        """Before which instant the stream has had the query's results; None if it has none."""
        return self._asked(delivery).tail.until

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        """Adds the messages that are missing, in portions."""
        subject = self._asked(delivery)
        del self._subjects[subject.name]  # it is asked again if this fails
        texts = list[bytes]()
        put_in(self, delivery, table, lambda rows: texts.extend(_texts(rows)))
        missing = [text for text in texts if not subject.tail.takes(text)]
        rest = any(subject.tail.rows.values())
        about = {"until": delivery.until, "attempt": secrets.token_hex(8), "rows": len(missing)}
        about |= {"after": subject.after, "had": subject.tail.until}
        sent = list(zip(_ids(subject.name, delivery.until, texts, missing), missing, strict=True))
        for start in range(0, len(sent), AT_ONCE):
            subject.last = self._send(subject, json.dumps(about), sent[start : start + AT_ONCE], delivery)
        subject.tail.until, subject.after = delivery.until, subject.after if rest else subject.last
        self._subjects[subject.name] = subject

    def _asked(self, delivery: Delivery) -> _Subject:
        """What the stream has of a query; it is asked once, as long as all goes well."""
        name = f"{self.subject}.{delivery.key}"
        if name not in self._subjects:
            stream = NatsStream(subject=name, **self._known)  # type: ignore[arg-type]
            last, after, had = stream.run(lambda client: _newest(client, self.stream, name))
            found = stream.run(stream.between(after, last)) if last else []
            tail = Tail.of((json.loads(message.headers[HEADER]), message.data) for message in found)
            tail.until = had if tail.until is None else tail.until
            self._subjects[name] = _Subject(name, tail, last, last if not any(tail.rows.values()) else after)
        return self._subjects[name]

    def _send(self, subject: _Subject, about: str, messages: list[tuple[str, bytes]], delivery: Delivery) -> int:
        """Sends messages; gives the sequence number of the last one, and fails if somebody else has sent some."""
        from nats.js.errors import APIError

        async def send(client: Any) -> int:
            expected = {"Nats-Expected-Last-Subject-Sequence": str(subject.last)}
            waiting = []
            for number, (known, text) in enumerate(messages):
                headers = {HEADER: about, "Nats-Msg-Id": known, **(expected if number == 0 else {})}
                if number == 0:
                    first = await client.publish(subject.name, text, stream=self.stream, headers=headers)
                else:
                    waiting.append(await client.publish_async(subject.name, text, headers=headers))
            answers = [first, *[await answer for answer in waiting]]
            if any(answer.duplicate for answer in answers):
                raise raced(self, delivery)
            return int(answers[-1].seq)

        try:
            return int(NatsStream(subject=subject.name, **self._known).run(send))  # type: ignore[arg-type]
        except APIError as error:
            if error.err_code in WRONG_LAST:
                raise raced(self, delivery) from None
            raise


WRONG_LAST = (10071, 10164)
"""What the server answers if another message has come to a subject than was expected last."""


class _Subject:
    """What a query's subject has: the tail, the number of its last message, and of the one before the tail."""

    def __init__(self, name: str, tail: Tail, last: int, after: int) -> None:
        self.name, self.tail, self.last, self.after = name, tail, last, after


async def _newest(client: Any, stream: str, subject: str) -> tuple[int, int, int | None]:
    """The numbers of a subject's last message and of the one after which its tail begins, and what was had up to it."""
    from nats.js.errors import NotFoundError

    await client.stream_info(stream)
    try:
        found = await client.get_last_msg(stream, subject)
    except NotFoundError:
        return 0, 0, None
    about = json.loads(found.headers[HEADER])
    return int(found.seq), int(about["after"]), about["had"]


def _texts(rows: pa.Table) -> list[bytes]:
    texts = [text.encode() for batch in rows.to_batches() for text in json_texts(batch)]
    if max(map(len, texts), default=0) > LONGEST:
        raise TooLong(f"a row of {max(map(len, texts)):,} bytes is longer than a message may be")
    return texts


def _ids(subject: str, until: int, texts: list[bytes], missing: list[bytes]) -> Iterator[str]:
    """An id for each message that is missing: the same whenever the same row of the same delivery is sent."""
    counts = Counter(texts) - Counter(missing)
    for text in missing:
        counts[text] += 1
        yield f"{subject}/{until}/{blake2b(text, digest_size=12).hexdigest()}/{counts[text]}"
