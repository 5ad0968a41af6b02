"""What all tests share: how they are spread over processes."""

from __future__ import annotations

import os

import pytest

MOST_WORKERS = 4


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """No workers for one file or one test, where starting them would cost more than they save."""
    narrow = len(config.args) == 1 and config.args_source is pytest.Config.ArgsSource.ARGS and ".py" in config.args[0]
    return 0 if narrow else min(MOST_WORKERS, os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs all Spark tests: a JVM is shared by a process, and two of them would fight over the machine."""
    for item in items:
        if item.get_closest_marker("spark") or item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.xdist_group("spark"))
