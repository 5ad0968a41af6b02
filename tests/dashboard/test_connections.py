"""What connections to the dashboard may take from the process that serves it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

pytest.importorskip("uvicorn", reason="the dashboard needs uvicorn: pip install 'midstream[dashboard]'")

from midstream.interface.dashboard import connections
from midstream.interface.dashboard.access import Access
from midstream.interface.dashboard.connections import LimitedSocket, TimelyProtocol, connection_limit
from midstream.interface.dashboard.relations import Relations
from midstream.interface.dashboard.server import Dashboard
from midstream.interface.dashboard.serving import served


def address_of(link: str) -> tuple[str, int]:
    host, _, port = link.removeprefix("http://").partition("/")[0].partition(":")
    return host, int(port)


def is_closed(connection: socket.socket) -> bool:
    """Waits for the other side to close, or for an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_the_limit_is_a_small_part_of_the_descriptors_of_the_process(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    assert connection_limit() == 32
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_000_000, 1_000_000))
    assert connection_limit() == connections.MOST_CONNECTIONS


def test_a_connection_above_the_limit_is_closed_and_leaves_no_descriptor():
    listening = LimitedSocket()
    listening.limit = 2
    with listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        clients = [socket.create_connection(listening.getsockname()) for _ in range(3)]
        held = [listening.accept()[0] for _ in range(2)]
        with pytest.raises(BlockingIOError):
            listening.accept()
        assert is_closed(clients[2]) and len(listening.accepted) == 2
        held[0].close()
        clients.append(socket.create_connection(listening.getsockname()))
        held.append(listening.accept()[0])
        for connection in (*clients, *held):
            connection.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: x", b"POST /api/ask HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]
)
def test_a_connection_whose_request_does_not_arrive_is_closed(sent, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(TimelyProtocol, "arrival", 0.05)
    with served(str(tmp_path), "127.0.0.1", 0) as (link, _), socket.create_connection(address_of(link)) as connection:
        connection.settimeout(30)
        connection.sendall(sent)
        answer = b""
        with suppress(ConnectionResetError):
            while part := connection.recv(1000):
                answer += part
        assert b" 200 " not in answer


def test_a_subscriber_that_reads_nothing_is_closed_and_nothing_more_is_made_for_it(tmp_path: Path, monkeypatch):
    made, closed = list[int](), threading.Event()

    async def endless(*_: object) -> AsyncIterator[str]:
        try:
            while True:
                made.append(1)
                await asyncio.sleep(0)
                yield "x" * 100_000
        finally:
            closed.set()

    monkeypatch.setattr(Relations, "changes", endless)
    monkeypatch.setattr(TimelyProtocol, "reading", 0.1)
    with served(str(tmp_path), "127.0.0.1", 0) as (link, _), socket.create_connection(address_of(link)) as connection:
        connection.sendall(b"GET /queries/q/changes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert closed.wait(30) and len(made) < 1000


def test_a_client_that_reads_slowly_is_not_closed():
    slow = object.__new__(TimelyProtocol)
    slow.transport, slow.loop = Mock(), Mock()
    slow.transport.get_write_buffer_size.return_value = 7
    slow._require_less(8)
    slow.transport.abort.assert_not_called()
    slow.loop.call_later.assert_called_once_with(slow.reading, slow._require_less, 7)
    slow._require_less(7)
    slow.transport.abort.assert_called_once()


def test_pages_that_listen_for_news_are_counted(tmp_path: Path):
    dashboard = Dashboard(str(tmp_path), Access("127.0.0.1", 8321), most_pages=1)

    async def listened() -> tuple[int, int]:
        page = dashboard._counted(dashboard.feed.events(-1))
        waiting = asyncio.ensure_future(anext(page))
        await asyncio.sleep(0)
        opened = dashboard.pages
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        return opened, dashboard.pages

    with ThreadPoolExecutor(1) as apart:  # a browser of other tests may have left a loop running in this thread
        assert apart.submit(lambda: asyncio.run(listened())).result() == (1, 0)
