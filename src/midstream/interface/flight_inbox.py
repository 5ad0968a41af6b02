"""Rows that are pushed over Arrow Flight into the folders of streams: what is put is one file, and is then answered."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from midstream.interface.flight_access import AccessFactory, Handshake, serving
from midstream.interface.inbox import ARROW, LARGEST, TOKEN, Inbox, Refused


class FlightInbox(flight.FlightServerBase):  # type: ignore[misc]
    """Takes what is put under the path of a stream, or of a stream and a key, under which it is written once."""

    def __init__(self, location: str, inbox: Inbox, token: str) -> None:
        super().__init__(location, auth_handler=Handshake(), middleware={"access": AccessFactory(token)})
        self.inbox = inbox

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Takes rows, and answers with the name of their file."""
        stream, *key = [part.decode("utf-8", "replace") for part in descriptor.path or [b""]]
        content = pa.BufferOutputStream()
        try:
            with pa.ipc.new_stream(content, reader.schema) as writing:
                for chunk in reader:
                    writing.write_batch(chunk.data)
                    if content.tell() > LARGEST:
                        raise Refused(413, f"what is put may have {LARGEST:,} bytes")
            name = self.inbox.take(stream, content.getvalue().to_pybytes(), ARROW, key[0] if key else None)
        except Refused as error:
            away = error.status == 507
            raise flight.FlightUnavailableError(str(error)) if away else pa.ArrowInvalid(str(error)) from None
        writer.write(name.encode())


@contextmanager
def listening_flight(inbox: Inbox, host: str, port: int) -> Iterator[tuple[str, str]]:
    """Takes rows while inside; gives the address and the token."""
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(32)
    with serving(host, port, lambda location: FlightInbox(location, inbox, token)) as found:
        yield f"grpc://{host}:{found}", token
