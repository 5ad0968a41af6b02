"""Two drivers on one checkpoint, and slots that say nothing: nothing is committed or removed that does not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.job.chain import Chain

from midstream.api import ask
from midstream.checkpoint.check import check
from midstream.checkpoint.lease import EXPIRES_AFTER, Heartbeat, Lease
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import InternalError, JobError
from midstream.job.commits import Commits

QUERY = "SELECT A.k, A.v FROM A [NOW]"
STAGES = "SELECT DISTINCT A.v FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.v = C.v"


def rows(start: int, count: int = 1) -> pa.RecordBatch:
    values = list(range(start, start + count))
    return pa.RecordBatch.from_pydict({"k": values, "v": values, "ts": values})


def chain_on(folder: Path, query: str = QUERY, slots: int = 1, **options: Any) -> Chain:
    empty = pa.table({name: pa.array([], pa.int64()) for name in ("k", "v", "ts")})
    question = ask(query, {name: empty for name in "ABC" if f" {name} [" in query})
    return Chain(question.plan, question.catalog, folder, slots=slots, **options)


def test_manifests_carry_the_number_of_their_lease(tmp_path):
    for number in (1, 2, 3):
        chain = chain_on(tmp_path)
        chain.driver.commits.lease = Heartbeat(chain.driver.files)
        chain.batch({"A": rows(number)})
        chain.driver.commits.lease.stop()
        assert chain.manifest.epoch == number == CheckpointStore(str(tmp_path)).epoch()


def test_epochs_go_on_where_lease_files_were_removed(tmp_path):
    chain = chain_on(tmp_path)
    chain.driver.commits.lease = Heartbeat(chain.driver.files)
    chain.batch({"A": rows(1)})
    chain.driver.commits.lease.stop()
    for path in chain.driver.files.list("lease"):
        chain.driver.files.delete(path)
    again = chain_on(tmp_path)
    again.driver.commits.lease = Heartbeat(again.driver.files)
    again.batch({"A": rows(2)})
    again.driver.commits.lease.stop()
    assert again.manifest.epoch == 2


def test_a_driver_that_could_not_remove_old_manifests_gives_its_lease_back(tmp_path, monkeypatch):
    chain = chain_on(tmp_path)
    chain.driver.commits.lease = Heartbeat(chain.driver.files)
    for number in range(6):
        chain.batch({"A": rows(number)})

    def refuse(gone: list[int]) -> None:
        raise JobError("the storage is away")

    monkeypatch.setattr(chain.driver.store, "_remove", refuse)
    monkeypatch.setattr(Commits, "_collect", lambda commits, newest: None)  # which would wait for the removal
    chain.batch({"A": rows(6)})
    with pytest.raises(JobError, match="the storage is away"):
        chain.driver.commits.stop()
    with Lease.take(chain.driver.files) as free:
        assert free.number == 2


def taken_over(folder: Path, awake: Chain) -> Chain:
    """A second driver, once the first has been silent for its whole lease; the first does not know."""
    assert awake.driver.commits.lease is not None
    awake.driver.commits.lease.beating.stop()
    now = awake.driver.commits.lease.lease.clock
    other = chain_on(folder)
    lease = Lease.take(other.driver.files, clock=lambda: now() + EXPIRES_AFTER + 1)
    other.driver.commits.lease = Heartbeat.__new__(Heartbeat)
    other.driver.commits.lease.lease = lease
    return other


def test_a_driver_whose_batch_was_committed_and_dropped_meanwhile_is_refused(tmp_path):
    """Its manifest's name is free again, because a later driver went on and retains only the newest."""
    zombie = chain_on(tmp_path)
    zombie.driver.commits.lease = Heartbeat(zombie.driver.files)
    zombie.batch({"A": rows(0)})
    other = taken_over(tmp_path, zombie)
    for i in range(1, 8):
        other.batch({"A": rows(i)})
    zombie.driver.commits.lease = None  # what a check just before the pause would have said
    assert 1 not in zombie.driver.store.batch_ids()
    with pytest.raises(JobError, match="another driver has continued"):
        zombie.batch({"A": rows(1)})
    assert other.driver.store.batch_ids() == [4, 5, 6, 7]
    assert other.results().num_rows == 7


def test_a_commit_of_an_earlier_epoch_is_refused(tmp_path):
    zombie = chain_on(tmp_path)
    zombie.driver.commits.lease = Heartbeat(zombie.driver.files)
    zombie.batch({"A": rows(0)})
    other = taken_over(tmp_path, zombie)
    other.batch({"A": rows(1)})
    manifest = zombie.manifest
    later = type(manifest)(manifest.query_id, 2, epoch=manifest.epoch)
    with pytest.raises(JobError, match="in epoch 2; this driver's is 1"):
        zombie.driver.store.commit(later)


@pytest.mark.parametrize("wakes", ["retain", "collect"])
def test_a_driver_that_wakes_after_its_commit_removes_nothing_of_its_successor(wakes, tmp_path, monkeypatch):
    zombie = chain_on(tmp_path)
    zombie.driver.commits.retained = 1 if wakes == "collect" else 2
    zombie.driver.commits.lease = Heartbeat(zombie.driver.files)
    for i in range(4):
        zombie.batch({"A": rows(i)})
    others: list[Chain] = []
    store, asked = zombie.driver.store, 0
    look, retain = store.batch_ids, store.retain

    def looking() -> list[int]:
        nonlocal asked
        asked += 1
        if asked == 2:  # the first look is the commit's own
            others.append(_successor(tmp_path, zombie))
        return look()

    def retaining(*arguments: Any) -> list[int]:
        others.append(_successor(tmp_path, zombie))
        return retain(*arguments)

    if wakes == "collect":
        monkeypatch.setattr(store, "batch_ids", looking)
    else:
        monkeypatch.setattr(store, "retain", retaining)
    with pytest.raises(JobError, match="is lost"):
        zombie.batch({"A": rows(4)})
    monkeypatch.undo()
    (other,) = others
    other.batch({"A": rows(15)})  # adopts what was merged
    assert check(other.driver.files, other.manifest) == []
    assert other.results().num_rows == 15


def _successor(folder: Path, zombie: Chain) -> Chain:
    """A driver that has merged small files and not adopted them yet."""
    other = taken_over(folder, zombie)
    other.driver.commits.retained = 100
    take = other.driver.commits.compactor.take
    other.driver.commits.compactor.take = lambda wait=False: []  # type: ignore[method-assign]
    for i in range(5, 15):
        other.batch({"A": rows(i)})
    assert other.driver.commits.compactor.round is not None
    other.driver.commits.compactor.round.result()
    assert other.driver.commits.compactor.done
    other.driver.commits.compactor.take = take  # type: ignore[method-assign]
    return other


@pytest.mark.parametrize("lost", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_batch_of_which_a_slot_did_not_report_is_not_committed(lost, tmp_path):
    chain = chain_on(tmp_path, STAGES, slots=2)
    chain.batch({name: rows(0, 10) for name in "ABC"})
    run = chain.cluster.run
    chain.cluster.run = lambda batch, rows: [  # type: ignore[method-assign]
        report for report in run(batch, rows) if (report.stage, report.slot) != lost
    ]
    with pytest.raises(InternalError, match=f"slot {lost[1]} in stage {lost[0]} did not report"):
        chain.batch({name: rows(10, 10) for name in "ABC"})
    assert chain.driver.store.batch_ids() == [0]
    chain.cluster.run = run  # type: ignore[method-assign]
    chain.batch({name: rows(10, 10) for name in "ABC"})
    assert chain.driver.store.batch_ids() == [0, 1]


def test_a_move_of_which_a_slot_did_not_report_is_not_committed(tmp_path):
    chain = chain_on(tmp_path, STAGES, slots=2)
    chain.batch({name: rows(0, 10) for name in "ABC"})
    real = chain.cluster.move
    chain.migrate("(A (B C))", "moving_state")
    chain.cluster.move = lambda move: [r for r in real(move) if r.slot != 1]  # type: ignore[method-assign]
    with pytest.raises(InternalError, match="slot 1 in stage 0"):
        chain.batch({name: rows(10, 10) for name in "ABC"})
    assert chain.driver.store.batch_ids() == [0]


@pytest.mark.parametrize("retained", [1, 2])
def test_sinks_that_failed_are_called_again_however_few_manifests_are_retained(retained, tmp_path):
    chain = chain_on(tmp_path)
    chain.driver.commits.retained = retained
    given: list[tuple[int, int]] = []

    def sink(table: pa.Table, batch_id: int) -> None:
        if batch_id == 3 and not failed:
            failed.append(batch_id)
            raise OSError("once")
        given.append((batch_id, table.num_rows))

    failed: list[int] = []
    chain.driver.deliveries.sinks["q"] = [sink]
    for i in range(3):
        chain.driver.on_batch({"A": rows(i)}, i)
    with pytest.raises(OSError, match="once"):
        chain.driver.on_batch({"A": rows(3)}, 3)
    again = chain_on(tmp_path)
    again.driver.commits.retained = retained
    again.driver.deliveries.sinks["q"] = [sink]
    again.driver.on_batch({"A": rows(3)}, 3)
    again.driver.on_batch({"A": rows(4)}, 4)
    assert [batch_id for batch_id, _ in given] == [0, 1, 2, 3, 4]
    assert sum(count for _, count in given) == again.results().num_rows
