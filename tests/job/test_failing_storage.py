"""The storage fails at every operation of a short run: the job ends with our own error or goes on, and gives the same.

The run has all that writes: state, results, dead letters, requests, lists, merges, metrics, retention and the lease.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from tests.job.threadless import AtOnce

import midstream as ms
from midstream.checkpoint import lists, merging, metrics
from midstream.checkpoint.check import check
from midstream.checkpoint.control import send
from midstream.checkpoint.lease import EXPIRES_AFTER
from midstream.checkpoint.lists import dead_letters_of
from midstream.checkpoint.process import running_as, this_process
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import MidstreamError
from midstream.job import commits
from midstream.lab.simulated_cluster.storage import SimulatedFiles, VolatileDisk, insert

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
QUERIES = {
    "joined": "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k",
    "grouped": "SELECT k, COUNT(*) AS n FROM A [RANGE 10] GROUP BY k",
}
ADDED = {"command": "add", "query": "added", "cql": "SELECT DISTINCT k FROM B [RANGE 30]"}
BATCHES = 7
CODES = (errno.EIO, errno.ENOSPC)


@pytest.fixture(autouse=True)
def _in_order(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One operation after the other, and everything that is done now and then done all the time."""
    monkeypatch.setattr(merging, "FEWEST", 2)
    monkeypatch.setattr(merging, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(metrics, "RECENT", 3)
    monkeypatch.setattr(metrics, "TIER", 2)
    monkeypatch.setattr(lists, "MOST_NAMED", 2)
    monkeypatch.setattr(commits, "_let_others_first", lambda: None)
    with running_as(Waiting()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rows(batch: int) -> dict[str, pa.Table]:
    """A batch's rows; one of them is late."""
    times = [10 * batch, 10 * batch + 3, max(0, 10 * batch - 40)]
    return {name: pa.table({"k": [batch % 3, 1, 2], "v": [batch, 7, 8], "ts": times}, SCHEMA) for name in "AB"}


def opened(uri: str) -> ms.Session:
    session = ms.Session(checkpoint=uri, on="local", slots=2, retained=2, retention={"dead_letters": "3 batches"})
    for name in "AB":
        session.stream(name, SCHEMA)
    for name, cql in QUERIES.items():
        session.query(name, cql)
    return session


class Waiting(AtOnce):
    """A process in which a job is started again only after a lease that nobody gave back has run out."""

    waited = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.waited


class Run:
    """A run on a disk, which goes on after every error; says how often it was started."""

    def __init__(self, disk: VolatileDisk, name: str) -> None:
        self.disk = disk
        self.uri = insert(name, disk)
        self.starts = 0
        self.asked = False
        self.errors: list[str] = []

    def whole(self) -> dict[str, Any]:
        while not self._went_on():
            assert self.starts < 4, self.errors
        return self.outcome()

    def _went_on(self) -> bool:
        self.starts += 1
        process = this_process()
        assert isinstance(process, Waiting)
        process.waited += EXPIRES_AFTER + 1
        session = None
        try:
            session = opened(self.uri)
            session.start()
            for batch in range(self._done() + 1, BATCHES):
                if batch == 2 and not self.asked:
                    send(SimulatedFiles(self.uri), ADDED)
                    self.asked = True
                session.push(rows(batch))
            return True
        except MidstreamError as error:
            self.errors.append(str(error))
            return False
        finally:
            if session is not None:
                self._stop(session)

    def _stop(self, session: ms.Session) -> None:
        try:
            session.stop()
        except MidstreamError as error:
            assert str(error)

    def _done(self) -> int:
        last = CheckpointStore(self.uri).latest()
        return -1 if last is None else last.batch_id

    def outcome(self) -> dict[str, Any]:
        """What there is in the end."""
        self.disk.before, self.disk.looking = (lambda number: None), (lambda path: None)
        files = SimulatedFiles(self.uri)
        manifest = CheckpointStore(self.uri).latest()
        assert manifest is not None and check(files, manifest) == []
        job = ms.open(self.uri)
        removed = manifest.outputs.removed_dead_letters or {"rows": 0}
        letters = removed["rows"] + sum(file.rows for file in dead_letters_of(files, manifest))
        return {"letters": letters, **{name: job.results(name) for name in QUERIES}}


def fail(run: Run, number: int, code: int, for_good: bool) -> None:
    """Lets one operation fail, or all from it on until the job is started again."""

    failed: list[int] = []

    def before(operation: int) -> None:
        if (operation == number and not failed) or (for_good and failed and run.starts == 1):
            failed.append(operation)
            raise OSError(code, os.strerror(code))

    run.disk.before = before


def fail_reading(run: Run, number: int, code: int) -> None:
    """Lets one look at a file fail."""
    looks = count()

    def looking(path: str) -> None:
        if next(looks) == number:
            raise OSError(code, os.strerror(code))

    run.disk.looking = looking


@pytest.fixture(name="whole")
def _whole() -> tuple[dict[str, Any], int, int]:
    """What a run gives that nothing happens to, how often it changes something on the disk and how often it reads."""
    disk, looked = VolatileDisk(), list[str]()
    disk.looking = looked.append
    run = Run(disk, "whole")
    found = run.whole()
    assert run.starts == 1 and found["letters"] > 0 and len(found["joined"]) > 0
    return found, disk.operations, len(looked)


def check_all(whole: tuple[dict[str, Any], int, int], chosen: slice) -> None:
    """Lets chosen operations fail, one in a run, in different ways."""
    expected, operations, looks = whole
    writes = [(number, True) for number in range(operations)]
    for place, (number, writing) in enumerate([*writes, *((number, False) for number in range(looks))][chosen]):
        run = Run(VolatileDisk(), "failing")
        code = CODES[place % 2]
        if writing:
            fail(run, number, code, for_good=place % 3 == 0)
        else:
            fail_reading(run, number, code)
        found, what = run.whole(), f"{'change' if writing else 'look'} {number}, {errno.errorcode[code]}"
        assert found["letters"] == expected["letters"], what
        for query in QUERIES:
            difference = ms.snapshot_equal(found[query], expected[query])
            assert difference, f"{what}: {difference}"


def test_an_operation_that_fails_ends_the_job_with_our_own_error_or_changes_nothing(whole):
    check_all(whole, slice(5, None, 41))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_operation_that_fails_ends_the_job_with_our_own_error_or_changes_nothing(whole, part):
    check_all(whole, slice(part, None, 8))
