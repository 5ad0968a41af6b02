"""One Spark session for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _in_executors(monkeypatch):
    """Sessions of these tests run small batches in executors too, unless they say otherwise."""
    from midstream.cluster.spark import backend

    for usual in ("USUAL", "USUAL_ON_ONE_MACHINE"):
        monkeypatch.setattr(backend, usual, 0)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from tests.spark.settings import SHORT_LIVED

    from midstream.cluster.spark import spark_session

    session = spark_session("local[2]", name="tests", **SHORT_LIVED, **{"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
