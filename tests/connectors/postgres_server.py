"""A PostgreSQL server that tests start for themselves; without one, they are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from midstream.errors import JobError
from midstream.lab import servers
from midstream.lab.servers import PostgresServer as Server

__all__ = ["Server", "postgres_server"]


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A server, or a skipped test that says what is missing."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(servers.postgres_server())
        except JobError as error:
            pytest.skip(f"{error.message}: {error.hint}")
        yield made
