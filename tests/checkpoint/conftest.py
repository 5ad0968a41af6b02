"""Files are synced, and copies of remote files go where the tests leave them."""

from __future__ import annotations

import os

import pytest

from midstream.checkpoint import fetched


@pytest.fixture(autouse=True, scope="session")
def _copies_apart(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(fetched.CACHE_DIR, str(tmp_path_factory.mktemp("copies")))
        yield


@pytest.fixture(autouse=True)
def _synced(syncing, monkeypatch):
    monkeypatch.setattr(os, "fsync", syncing)
