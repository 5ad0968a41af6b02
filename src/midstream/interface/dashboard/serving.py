"""Serving the dashboard: until Ctrl-C, or beside a job in a thread of its process."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from midstream.errors import InputError, JobError

PORT = 8321

TOKEN = "MIDSTREAM_DASHBOARD_TOKEN"
"""The variable of the environment that can give the token, for programs that must know it in advance."""

SHORTEST_TOKEN = 16


@contextmanager
def served(checkpoint: str, host: str, port: int, names: Sequence[str] = ()) -> Iterator[tuple[str, threading.Thread]]:
    """Serves while inside; gives the link with the token, and the thread that serves.

    With port 0, one that is free.
    """
    uvicorn, dashboard, connections = _libraries()
    limit = connections.connection_limit()
    with _bound(connections.LimitedSocket, host, port) as listening:
        listening.limit = limit
        port = listening.getsockname()[1]
        access = dashboard.Access(host, port, frozenset(name.lower() for name in names), _token())
        shown = dashboard.Dashboard(checkpoint, access, most_pages=limit // 2)
        config = uvicorn.Config(
            shown.app,
            http=connections.TimelyProtocol,
            ws="none",
            loop="asyncio",  # others accept connections past the socket
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="midstream-dashboard", daemon=True
        )
        thread.start()
        try:
            yield access.link, thread
        finally:
            shown.feed.close()
            server.should_exit = True
            thread.join(timeout=5)


def _token() -> str:
    given = os.environ.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(32)
    if len(given) < SHORTEST_TOKEN or not given.isascii() or not given.isprintable():
        raise InputError(f"{TOKEN} must have at least {SHORTEST_TOKEN} characters, all of them plain")
    return given


def _libraries() -> tuple[Any, Any, Any]:
    try:
        import uvicorn

        from midstream.interface.dashboard import connections, server
    except ImportError as error:
        raise InputError(
            f"the dashboard needs {error.name}", hint="install it with: pip install 'midstream[dashboard]'"
        ) from error
    return uvicorn, server, connections


def _bound(made: Any, host: str, port: int) -> Any:
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = made(kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise JobError(
            f"cannot listen on {host}, port {port}",
            detail=error.strerror or str(error),
            hint="choose another port; 0 picks a free one",
        ) from error
    listening.listen(64)
    return listening
