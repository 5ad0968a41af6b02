"""Fixtures for pytest. Nothing of Midstream is imported before a test asks for one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from midstream.testing.clocks import FakeClock


@pytest.fixture
def midstream_clock() -> Iterator[FakeClock]:
    """A clock that stands still; sessions that are opened in the test stamp rows with its time."""
    from midstream.testing.clocks import FakeClock

    with FakeClock() as clock:
        yield clock


@pytest.fixture
def midstream_session() -> Iterator[Any]:
    """A session in memory, which is stopped after the test."""
    import midstream as ms

    with ms.Session() as session:
        yield session


@pytest.fixture
def midstream_job(tmp_path: Path) -> Iterator[Any]:
    """A session on a checkpoint of its own in this process, which is stopped after the test."""
    import midstream as ms

    with ms.Session(checkpoint=tmp_path / "midstream.checkpoint", on="local") as session:
        yield session
