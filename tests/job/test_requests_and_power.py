"""Requests on a machine that loses power, where a file that was removed may be there again, each one on its own."""

from __future__ import annotations

import itertools
from threading import RLock
from typing import Any

from midstream.checkpoint.control import ANSWERS, path_of, send
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import Asked
from midstream.cluster.simulated.storage import SimulatedFiles, VolatileDisk, insert
from midstream.errors import JobError
from midstream.job.requests import Requests

REQUEST = {"command": "cancel", "query": "q"}


def refusing(request: Any) -> None:
    raise JobError("not now")


def at_every_operation() -> list[VolatileDisk]:
    """What the disk is before every operation while a request is refused, and after the last one."""
    moments: list[VolatileDisk] = []
    disk = VolatileDisk()
    files = SimulatedFiles(insert("refusing", disk))
    send(files, REQUEST)
    disk.before = lambda number: moments.append(VolatileDisk(dict(disk.seen), dict(disk.safe)))
    Requests(files, RLock()).answer_all(refusing)
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
            again = Requests(SimulatedFiles(insert("again", left)), RLock())
            again.go_on(None, done.append)
            again.answer_all(done.append)
            assert not (answered and done), chosen
            lost += 1
    assert lost > 20


def test_a_refusal_that_comes_back_is_told_once():
    disk = VolatileDisk()
    files = SimulatedFiles(insert("told", disk))
    number = send(files, REQUEST)
    first = Requests(files, RLock())
    assert first.request_log.take(number, REQUEST)
    first.request_log.rule_out(number, {"error": {"message": "not now"}})
    told = Manifest("q", 0, asked=Asked(({"id": number, "refused": "not now", "batch": 0},)))
    first.go_on(told, refusing)
    assert first.given_up == []
    assert files.exists(path_of(ANSWERS, number))


def test_a_promise_that_is_given_up_is_kept_until_a_manifest_tells_of_it():
    files = SimulatedFiles(insert("promised", VolatileDisk()))
    number = send(files, REQUEST)
    Requests(files, RLock()).answer_all(lambda request: "done")
    for _ in range(2):  # a process that dies before its first manifest
        again = Requests(files, RLock())
        again.go_on(None, refusing)
        assert [record["id"] for record in again.given_up] == [number]
    again.committed()
    last = Requests(files, RLock())
    assert last.go_on(None, refusing) == [] and last.given_up == []
