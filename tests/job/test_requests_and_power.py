"""Requests on machines that lose power, where each removed file may be there again, or of drivers that stood still."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from midstream.checkpoint.control import ANSWERS, TAKEN, WITHDRAWN, path_of, send
from midstream.checkpoint.control import REQUESTS as ARRIVED
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import Asked, StoredRequest
from midstream.checkpoint.request_log import RequestLog
from midstream.errors import JobError
from midstream.job.gate import Gate
from midstream.job.requests import Requests
from midstream.lab.simulated_cluster.storage import SimulatedFiles, VolatileDisk, insert

REQUEST = {"command": "cancel", "query": "q"}


def refusing(request: Any) -> None:
    raise JobError("not now")


def never(request: Any) -> None:
    pytest.fail(f"{request} was carried out")


def at_every_operation() -> list[VolatileDisk]:
    """What the disk is before every operation while a request is refused, and after the last one."""
    moments: list[VolatileDisk] = []
    disk = VolatileDisk()
    files = SimulatedFiles(insert("refusing", disk))
    send(files, REQUEST)
    disk.before = lambda number: moments.append(VolatileDisk(dict(disk.seen), dict(disk.safe)))
    Requests(files, Gate()).answer_all(refusing)
    return [*moments, VolatileDisk(dict(disk.seen), dict(disk.safe))]


def test_what_was_answered_with_a_refusal_is_never_carried_out_whatever_comes_back():
    lost = 0
    for disk in at_every_operation():
        answered = any(path.startswith(f"{ANSWERS}/0") for path in disk.seen)
        unsafe = [path for path in sorted({*disk.seen, *disk.safe}) if disk.seen.get(path) is not disk.safe.get(path)]
        for survivors in itertools.product([False, True], repeat=len(unsafe)):
            chosen = dict(zip(unsafe, survivors, strict=True))
            left = disk.after_power_loss(lambda path, chosen=chosen: chosen[path])  # type: ignore[misc]
            done: list[Any] = []
            again = Requests(SimulatedFiles(insert("again", left)), Gate())
            again.go_on(None, done.append)
            again.answer_all(done.append)
            assert not (answered and done), chosen
            lost += 1
    assert lost > 20


def test_a_refusal_that_comes_back_is_told_once():
    disk = VolatileDisk()
    files = SimulatedFiles(insert("told", disk))
    number = send(files, REQUEST)
    first = Requests(files, Gate())
    assert first.request_log.take(number, REQUEST)
    first.request_log.rule_out(number, {"error": {"message": "not now"}})
    told = Manifest("q", 0, asked=Asked((StoredRequest(number, batch=0, refused="not now"),)))
    first.go_on(told, refusing)
    assert first.news == {}
    assert files.exists(path_of(ANSWERS, number))


def test_a_promise_that_is_given_up_is_kept_until_a_manifest_tells_of_it():
    files = SimulatedFiles(insert("promised", VolatileDisk()))
    number = send(files, REQUEST)
    Requests(files, Gate()).answer_all(lambda request: "done")
    for _ in range(2):  # a process that dies before its first manifest
        again = Requests(files, Gate())
        again.go_on(None, refusing)
        assert [number for number, record in again.news.items() if record.refused] == [number]
    again.committed()
    last = Requests(files, Gate())
    assert last.go_on(None, refusing) == [] and last.news == {}


@pytest.mark.parametrize("seen_first", [False, True])
def test_what_a_driver_took_up_that_has_lost_its_lease_is_carried_out_once_by_the_one_that_has_it(seen_first):
    files = SimulatedFiles(insert("left behind", VolatileDisk()))
    holder, done = Requests(files, Gate()), list[Any]()
    holder.go_on(None, done.append)
    number = send(files, REQUEST)
    content = files.read(path_of(ARRIVED, number))
    assert RequestLog(files).take(number, REQUEST)
    if seen_first:  # the other one stood still before it removed the request
        files.write_atomic(path_of(ARRIVED, number), content)
    for _ in range(3):
        holder.answer_all(done.append)
    assert len(done) == 1 and files.exists(path_of(ANSWERS, number))
    assert list(holder.news) == [number]
    holder.committed()
    holder.answer_all(done.append)
    assert len(done) == 1 and not files.exists(path_of(TAKEN, number)) and not files.exists(path_of(ARRIVED, number))


def test_a_request_whose_taking_up_was_interrupted_is_carried_out_at_the_next_look(monkeypatch):
    files = SimulatedFiles(insert("interrupted", VolatileDisk()))
    job, done = Requests(files, Gate()), list[Any]()
    send(files, REQUEST)

    def failing(path: str) -> None:
        raise JobError("the device reports a fault")

    with monkeypatch.context() as patched:
        patched.setattr(SimulatedFiles, "delete", lambda self, path: failing(path))
        with pytest.raises(JobError):
            job.answer_all(done.append)
    assert not done
    job.answer_all(done.append)
    job.answer_all(done.append)
    assert len(done) == 1


def test_nobody_carries_out_what_another_took_up_without_the_lease():
    files = SimulatedFiles(insert("without lease", VolatileDisk()))
    assert RequestLog(files).take(send(files, REQUEST), REQUEST)

    def lost() -> None:
        raise JobError("the lease is lost")

    with pytest.raises(JobError, match="lost"):
        Requests(files, Gate()).answer_all(never, lost)


def test_a_request_that_was_taken_back_or_ruled_out_is_not_taken_over():
    files = SimulatedFiles(insert("taken back", VolatileDisk()))
    back, ruled_out = send(files, REQUEST), send(files, REQUEST)
    files.write_atomic(path_of(TAKEN, back), WITHDRAWN)
    assert RequestLog(files).take(ruled_out, REQUEST)
    RequestLog(files).rule_out(ruled_out, {"error": {"message": "not now"}})
    Requests(files, Gate()).answer_all(never)
    assert not files.exists(path_of(TAKEN, back)) and not files.exists(path_of(ARRIVED, back))
    assert files.exists(path_of(TAKEN, ruled_out))
