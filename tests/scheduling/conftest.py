"""Small tuples, so that small batches already give the tables something to choose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from midstream.scheduling import box_scheduler


@pytest.fixture(autouse=True, scope="module")
def small_tuples() -> Iterator[None]:
    usual, box_scheduler.TUPLE_ROWS = box_scheduler.TUPLE_ROWS, 2
    yield
    box_scheduler.TUPLE_ROWS = usual
