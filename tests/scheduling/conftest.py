"""Small tuples, so that small batches already give the tables something to choose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from midstream.scheduling import scheduler


@pytest.fixture(autouse=True, scope="module")
def small_tuples() -> Iterator[None]:
    usual, scheduler.TUPLE_ROWS = scheduler.TUPLE_ROWS, 2
    yield
    scheduler.TUPLE_ROWS = usual
