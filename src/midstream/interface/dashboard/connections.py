"""How many connections the dashboard holds, and how long it waits for a request, and for an answer to be read.

The page may be served by the process that runs a job, and every connection takes one of its file descriptors. So a
connection above the limit is closed as it is accepted, before anything is known of it, and one whose request does not
arrive in time is closed too: whoever can connect can keep others from the page, but takes nothing from the job. Nor
does a client that does not read what it is sent: nothing more is made for it, and after a while it is closed.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64
SHARE_OF_DESCRIPTORS = 8
"""At most one in so many of the descriptors that the process may have."""

ARRIVAL = 10.0
"""Within how many seconds a request must have arrived, from the connection or the request's first byte on."""

READING = 30.0
"""Within how many seconds a client must read some of what it is sent."""


def connection_limit() -> int:
    """How many connections are held at a time."""
    try:
        import resource
    except ImportError:  # not on every system
        return MOST_CONNECTIONS
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(4, min(MOST_CONNECTIONS, soft // SHARE_OF_DESCRIPTORS))


class LimitedSocket(socket.socket):
    """A listening socket that closes what it accepts above a limit."""

    limit = MOST_CONNECTIONS
    accepted: tuple[socket.socket, ...] = ()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; if there are too many, as if there were none."""
        connection, address = super().accept()
        self.accepted = tuple(known for known in self.accepted if known.fileno() >= 0)
        if len(self.accepted) >= self.limit:
            connection.close()
            raise BlockingIOError("too many connections")
        self.accepted += (connection,)
        return connection, address


class TimelyProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, with times by which a request must have arrived, and an answer be read."""

    arrival, reading = ARRIVAL, READING
    waiting: asyncio.TimerHandle | None = None
    unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._wait()
        else:
            self._stop_waiting()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_again()

    def _look_again(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self.unread = self.loop.call_later(self.reading, self._require_less, unread)

    def _require_less(self, unread: int) -> None:
        self.transport.abort() if self.transport.get_write_buffer_size() >= unread else self._look_again()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_looking()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_looking()
        super().connection_lost(exc)

    def _stop_looking(self) -> None:
        if self.unread is not None:
            self.unread.cancel()

    def _wait(self) -> None:
        if self.waiting is None:
            self.waiting = self.loop.call_later(self.arrival, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None
