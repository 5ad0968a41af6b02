"""How many connections the dashboard holds, and how long it waits for a request.

The page may be served by the process that runs a job, and every connection takes one of its file descriptors. So a
connection above the limit is closed as it is accepted, before anything is known of it, and one whose request does not
arrive in time is closed too: whoever can connect can keep others from the page, but takes nothing from the job.
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
    """HTTP as uvicorn speaks it, with a time by which a request must have arrived."""

    arrival = ARRIVAL
    waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self.waiting is None:
            self.waiting = self.loop.call_later(self.arrival, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None
