"""What all tests share: how they are spread over processes, and how many examples property tests draw.

A JVM is shared by a process, and two of them would fight over the machine: one process runs all tests that need Spark.
They are known by the path of their file, because xdist's own groups are silently without effect from pytest 9.2 on
(pytest-xdist issue 1386).
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings
from tests import longer
from xdist.scheduler import LoadGroupScheduling

import midstream.interface.cli.output  # noqa: F401  (else collecting doctests loads it once more beside the program)

# Timings never decide a test, and neither does chance: a commit that passed once passes again. `--hypothesis-profile`
# `random` draws other cases every time, `long` many more of them; both print how to replay a failure.
settings.register_profile("random", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", settings.get_profile("random"), derandomize=True, max_examples=40)
settings.register_profile("long", settings.get_profile("random"), max_examples=3000)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which simulations to run."""
    parser.addoption("--seed", type=int, action="append", help="run just this seed of the simulated jobs")
    parser.addoption("--seeds", type=int, help="how many seeds the slow test of simulated jobs runs")


# What is imported is compiled once, and not again by every process that tests start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

MOST_WORKERS = 4
SPARK_WORDS = ("spark", "cluster")
SHARING = (
    "tests/connectors/",
    "tests/dashboard/",
    "tests/generators/",
    "tests/interface/test_balancing_experiments.py",
    "tests/interface/test_migration_experiments.py",
    "tests/test_site.py",
    "tests/test_structure.py",
)
"""Where what a file's tests share is costly: a server, a browser, cases that are drawn, runs, a site, parsed files."""


def needs_spark(nodeid: str) -> bool:
    """Whether a test belongs to the process that has the JVM."""
    path = nodeid.partition("::")[0]
    return any(word in path for word in SPARK_WORDS)


class OneProcessForSpark(LoadGroupScheduling):
    """Tests go wherever there is room, but all that need Spark go to one place, and files that share stay whole."""

    def _split_scope(self, nodeid: str) -> str:
        if needs_spark(nodeid):
            return "spark"
        return nodeid.partition("::")[0] if nodeid.startswith(SHARING) else str(super()._split_scope(nodeid))

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forgets units that are done, all of which the parent class counts after every test."""
        super().mark_test_complete(node, item_index, duration)
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneProcessForSpark:
    """The scheduler of parallel runs."""
    return OneProcessForSpark(config, log)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are processors, to have work where tests wait for processes, pages and the JVM.

    No workers for one file or one test, where starting them would cost more than they save.
    """
    narrow = len(config.args) == 1 and config.args_source is pytest.Config.ArgsSource.ARGS and ".py" in config.args[0]
    return 0 if narrow else min(MOST_WORKERS, (os.cpu_count() or 1) + 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps modules and tests, which stay until the end, out of every search for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Lets modules go in order: extensions report what is left of theirs as leaks."""
    gc.unfreeze()


class ExamplesWhereThereAreSome:
    """Searches for examples in those files alone that have any, of the package as well as of its tests."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """What a file is collected as."""
        found = yield
        return [each for each in found if not isinstance(each, DoctestModule) or ">>>" in file_path.read_text("utf-8")]


def pytest_configure(config: pytest.Config) -> None:
    """What holds for all folders, and not for that of this file alone."""
    config.pluginmanager.register(ExamplesWhereThereAreSome())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves cases to the longer profile; holds marks and paths together, so that no Spark test strays elsewhere."""
    seen: Counter[tuple[str, str]] = Counter()
    for item in items:
        file = item.path.with_suffix("").as_posix().removeprefix(f"{Path(__file__).parent.as_posix()}/")
        name = item.name.partition("[")[0]
        kept = 0 if file in longer.NONE else longer.CASES.get(file, {}).get(name)
        if kept is not None and not item.get_closest_marker("slow"):
            seen[file, name] += 1
            if seen[file, name] > kept:
                item.add_marker(pytest.mark.slow)
        marked = any(item.get_closest_marker(word) for word in SPARK_WORDS)
        if marked and not needs_spark(item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} needs Spark: give its file or folder a name with spark or cluster")


@pytest.fixture(autouse=True, scope="session")
def impatient() -> Iterator[None]:
    """Has what fails outside of a job be tried again at once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("midstream.connectors.retrying.PAUSES", (0.0, 0.0))
        yield


@pytest.fixture(autouse=True, scope="session")
def syncing() -> Iterator[Callable[[int], None]]:
    """Has nothing in this process wait for the disk, and gives what would.

    A process that is killed loses nothing that it wrote, and losses of power are simulated by a disk in memory. Tests
    of the checkpoint's own files, and processes that tests start, sync as ever.
    """
    with pytest.MonkeyPatch.context() as patched:
        truly = os.fsync
        patched.setattr(os, "fsync", _check_handle)
        yield truly


def _check_handle(handle: int) -> None:
    os.fstat(handle)
