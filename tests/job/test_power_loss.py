"""Power is lost at every operation of the storage in a short run: the job goes on, and gives the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.threadless import AtLast, AtOnce

import midstream as ms
from midstream.api import ask
from midstream.checkpoint import lists, merging, metrics
from midstream.checkpoint.check import check
from midstream.checkpoint.collect import collect
from midstream.checkpoint.process import running_as
from midstream.cluster.local.cluster import LocalCluster
from midstream.job import commits
from midstream.lab.simulated_cluster.storage import EVERYTHING, NOTHING, SimulatedFiles, VolatileDisk, at_random, insert

QUERY = "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k"
STAGES = "SELECT DISTINCT A.v FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.v = C.v"
MIGRATING = "SELECT A.v AS a, C.v AS c FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
SURVIVING = {"nothing": NOTHING, "everything": EVERYTHING}


def tables(names: str, rows: int = 24) -> dict[str, pa.Table]:
    random = np.random.default_rng(3)

    def table() -> pa.Table:
        columns = {"k": random.integers(0, 4, rows), "v": random.integers(0, 9, rows)}
        return pa.table({**columns, "ts": np.sort(random.integers(0, 80, rows))})

    return {name: table() for name in names}


@pytest.fixture(autouse=True)
def _in_order(monkeypatch):
    """One operation after the other, and everything that is done now and then done all the time."""
    monkeypatch.setattr(merging, "FEWEST", 2)
    monkeypatch.setattr(merging, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(metrics, "RECENT", 3)
    monkeypatch.setattr(metrics, "TIER", 2)
    monkeypatch.setattr(lists, "MOST_NAMED", 2)
    monkeypatch.setattr(commits, "_let_others_first", lambda: None)
    with running_as(AtOnce()):
        yield


class Run:
    """A run of a query on a disk, with what the disk was before every operation."""

    def __init__(self, name: str, query: str, shuffled: bool = True) -> None:
        self.name = name
        self.shuffled = shuffled
        self.plan = "((A B) C)" if query is MIGRATING else None
        self.inputs = tables("ABC" if "C [" in query else "AB")
        self.question = ask(query, self.inputs)
        self.expected = ms.run(query, self.inputs)
        self.migrations = {2: ("(A (B C))", "genmig")} if query is MIGRATING else {}
        self.moments: list[VolatileDisk] = []

    def whole(self) -> pa.Table:
        disk = VolatileDisk()
        disk.before = lambda number: self.moments.append(VolatileDisk(dict(disk.seen), dict(disk.safe)))
        return self.on(disk)

    def on(self, disk: VolatileDisk) -> pa.Table:
        place = insert(self.name, disk)
        chain = Chain(self.question.plan, self.question.catalog, place, slots=2, plan=self.plan, shuffled=self.shuffled)
        if chain.driver.manifest is not None and min(chain.driver.manifest.streams.registers.values()) > 10**12:
            return chain.results()  # the last batch was done
        if chain.driver.manifest is not None:
            assert check(chain.driver.files, chain.driver.manifest) == []
        got = chain.run(self.question.tables, 8, self.migrations)
        assert check(chain.driver.files, chain.manifest) == []
        collect(chain.driver.store, chain.driver.files)
        assert check(chain.driver.files, chain.manifest) == []
        return got

    def after(self, number: int, survives: Any) -> pa.Table:
        return self.on(self.moments[number].after_power_loss(survives))


def lose_power_everywhere(query: str, *survivals: str, shuffled: bool = True, every: int = 1) -> None:
    """At every operation, or every so many, with another survival at each."""
    run = Run("power", query, shuffled)
    assert ms.snapshot_equal(run.whole(), run.expected)
    assert len(run.moments) > 100
    for number in range(0, len(run.moments), every):
        what = survivals[number % len(survivals)]
        got = run.after(number, SURVIVING.get(what) or at_random(number))
        assert ms.snapshot_equal(got, run.expected), f"{what} survived operation {number}"


def test_a_loss_of_power_at_any_operation_changes_no_result():
    lose_power_everywhere(QUERY, "nothing", "some", "everything", every=2)


def test_a_loss_of_power_while_files_of_a_batch_are_being_written_changes_no_result():
    with running_as(AtLast()):
        lose_power_everywhere(QUERY, "nothing", "some", "everything", shuffled=False, every=2)


def test_a_manifest_that_does_not_wait_for_the_files_of_its_batch_is_found_out(monkeypatch):
    """What the test above rests on."""
    monkeypatch.setattr(LocalCluster, "wait_for_files", lambda self: None)
    with running_as(AtLast()):
        run = Run("early", QUERY, shuffled=False)
        run.whole()
        with pytest.raises((ms.errors.JobError, AssertionError)):
            for number in range(len(run.moments)):
                assert ms.snapshot_equal(run.after(number, EVERYTHING), run.expected)


@pytest.mark.slow
@pytest.mark.parametrize("query", [QUERY, STAGES, MIGRATING], ids=["join", "stages", "migrating"])
@pytest.mark.parametrize("what", ["nothing", "everything", "some"])
def test_a_loss_of_power_at_any_operation_changes_no_result_whatever_survives(query, what):
    lose_power_everywhere(query, what)


def test_the_disk_loses_what_was_not_synced():
    disk = VolatileDisk()
    files = SimulatedFiles(insert("unsynced", disk))
    files.write_atomic("a/kept", b"1")
    files.write_atomic("a/lost", b"2", sync=False)
    files.delete("a/kept")
    assert disk.after_power_loss(NOTHING).seen == {"a/kept": b"1"}
    assert disk.after_power_loss(EVERYTHING).seen == {"a/lost": b"2"}
    files.sync("a")
    assert disk.after_power_loss(NOTHING).seen == {"a/lost": b"2"}


class Guarded(dict[str, bytes]):
    """Files that change only while whoever lists them waits."""

    lock: Any

    def __setitem__(self, path: str, content: bytes) -> None:
        assert self.lock._is_owned()
        super().__setitem__(path, content)

    def pop(self, path: str, *default: Any) -> Any:
        assert self.lock._is_owned()
        return super().pop(path, *default)


def test_threads_may_change_files_while_others_list_them():
    seen = Guarded()
    disk = VolatileDisk(seen)
    seen.lock = disk.lock
    files = SimulatedFiles(insert("guarded", disk))
    files.write_atomic("a/one", b"1", only_if_absent=True)
    with pytest.raises(ms.errors.JobError, match="already there"):
        files.write_atomic("a/one", b"2", only_if_absent=True)
    files.write_atomic("a/two", b"2")
    files.delete("a/one")
    assert files.list("a") == ["a/two"]


@pytest.mark.parametrize("forgotten", ["state", "results/q"])
def test_a_folder_that_is_not_synced_before_the_manifest_is_found_out(monkeypatch, forgotten):
    """What the tests above rest on: they fail if the store forgets to sync."""
    sync = SimulatedFiles.sync
    monkeypatch.setattr(SimulatedFiles, "sync", lambda self, dir: None if dir == forgotten else sync(self, dir))
    run = Run("forgotten", QUERY)
    run.whole()
    with pytest.raises((ms.errors.JobError, AssertionError)):
        for number in range(len(run.moments)):
            assert ms.snapshot_equal(run.after(number, NOTHING), run.expected)
