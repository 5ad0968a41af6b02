"""Requests through the control folder: answered, taken back or kept, and never two of these."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.control import ANSWERS, REFUSED, REQUESTS, TAKEN, ask, path_of
from midstream.checkpoint.files import Files
from midstream.checkpoint.process import Process, running_as
from midstream.checkpoint.request_log import RequestLog
from midstream.errors import JobError

MIGRATE = {"command": "migrate", "query": "q", "plan": "(A B)"}
NO = {"error": {"message": "no", "detail": None, "hint": None}}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return files_at(str(tmp_path))


def asked(files: Files, number: str, **request: object) -> None:
    files.write_atomic(path_of(REQUESTS, number), json.dumps(request).encode())


def everything(files: Files) -> list[str]:
    return files.list("control")


def test_a_request_nobody_takes_up_is_taken_back_for_good(files):
    with pytest.raises(JobError, match="no job answers"):
        ask(files, MIGRATE, patience=0.0)
    taken = RequestLog(files)
    assert list(taken.arrived()) == [] and taken.waiting() == []
    taken.tidy()
    assert everything(files) == []


class Meanwhile(Process):
    """A process of whoever asks: while it waits a job acts, and by its clock it has waited for a minute then."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.waited = 0.0

    def sleep(self, seconds: float) -> None:
        self.act()
        self.waited += 60.0

    def monotonic(self) -> float:
        return super().monotonic() + self.waited


def test_a_request_that_was_read_and_then_taken_back_is_not_taken_up(files):
    taken = RequestLog(files)
    found: list[tuple[str, Any]] = []
    with running_as(Meanwhile(lambda: found.extend(taken.arrived()))), pytest.raises(JobError, match="no job answers"):
        ask(files, MIGRATE, patience=1.0)
    assert [request["command"] for _, request in found] == ["migrate"] and not taken.take(*found[0])
    assert everything(files) == []


def test_a_request_that_was_taken_up_cannot_be_taken_back(files):
    taken = RequestLog(files)
    act = Meanwhile(lambda: taken.take(*next(iter(taken.arrived()))))
    with running_as(act), pytest.raises(JobError, match="accepted the request"):
        ask(files, MIGRATE, patience=1.0)
    assert [request["command"] for _, request in taken.waiting()] == ["migrate"]


def test_requests_are_carried_out_in_the_order_they_were_taken_up(files):
    taken = RequestLog(files)
    for number in ("3", "1", "2"):
        assert taken.take(number, {"command": "drop", "query": number})
    assert not taken.take("1", {"command": "drop", "query": "1"})
    assert [number for number, _ in RequestLog(files).waiting()] == ["3", "1", "2"]


def test_a_request_left_beside_its_taken_self_is_not_taken_up_again(files):
    taken = RequestLog(files)
    taken.take("1", MIGRATE)
    asked(files, "1", **MIGRATE)
    taken.tidy()
    assert list(taken.arrived()) == [] and taken.waiting() == [("1", MIGRATE)]


def test_a_refusal_that_was_not_answered_is_answered_by_the_next_process(files):
    taken = RequestLog(files)
    taken.take("1", MIGRATE)
    taken.rule_out("1", NO)
    other = RequestLog(files)
    assert other.tidy() == [("1", MIGRATE, NO)]
    assert path_of(ANSWERS, "1") in everything(files)
    other.forget("1")
    assert everything(files) == [path_of(ANSWERS, "1")]


def test_an_unreadable_request_is_passed_on_as_such(files):
    files.write_atomic(path_of(REQUESTS, "1"), b"{")
    files.write_atomic(path_of(REQUESTS, "2"), b"[1]")
    assert [set(request) for _, request in RequestLog(files).arrived()] == [{"unreadable"}, {"unreadable"}]


def test_answers_that_nobody_has_read_go(files):
    old, new = f"{time.time_ns() - 2 * 3600 * 10**9:020d}-a", f"{time.time_ns():020d}-b"
    taken = RequestLog(files)
    for number in (old, new):
        taken.answer(number, {"result": 1})
    taken.tidy()
    assert everything(files) == [path_of(ANSWERS, new)]
    assert files.list(TAKEN) == files.list(REFUSED) == []
