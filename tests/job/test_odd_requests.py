"""Anybody can leave a file in the control folder: whatever it says, the job answers the next request."""

from __future__ import annotations

import json
import tempfile
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.commands import CHANGING
from midstream.checkpoint.control import ANSWERS, REFUSED, REQUESTS, TAKEN, path_of
from midstream.checkpoint.request_format import LARGEST
from midstream.checkpoint.request_log import RequestLog
from midstream.errors import JobError
from midstream.job.gate import Gate
from midstream.job.requests import Requests

ODD = {
    "no JSON": b"{",
    "no text": b"\xff\xfe{}",
    "a list": b"[1]",
    "null": b"null",
    "a command that is a list": b'{"command": []}',
    "a command that is an object": b'{"command": {"a": 1}}',
    "no command": b"{}",
    "until as text": b'{"command": "status", "until": "x"}',
    "until as NaN": b'{"command": "status", "until": NaN}',
    "until as an object": b'{"command": "add", "until": {}}',
    "deep nesting": b'{"command": "add", "query": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nesting that JSON can read": b'{"command": "add", "query": ' + b"[" * 300 + b"]" * 300 + b"}",
    "much": b'{"command": "' + b"x" * LARGEST + b'"}',
    "a number of many digits": b'{"command": "status", "until": ' + b"9" * 5000 + b"}",
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "command": st.sampled_from([*sorted(CHANGING), "status", "stop"]) | VALUES,
        "until": VALUES,
        "query": VALUES,
        "order": VALUES,
        "request": VALUES | st.fixed_dictionaries({"command": VALUES}),
        "error": VALUES | st.fixed_dictionaries({"message": VALUES}),
    },
)
CONTENTS = st.binary(max_size=20) | (VALUES | OBJECTS).map(lambda value: json.dumps(value).encode())


def handle(request: dict[str, Any]) -> Any:
    return {"done": request["command"]}


def asked_after(folder: str, where: str, content: bytes) -> dict[str, Any]:
    """The answer to a request that comes after a file, in a job that is started twice."""
    files = files_at(folder)
    files.write_atomic(path_of(where, "1"), content)
    for number in ("2", "3"):
        job = Requests(files, Gate())
        job.go_on(None, handle)
        files.write_atomic(path_of(REQUESTS, number), b'{"command": "status"}')
        job.answer_all(handle)
        answer = json.loads(files.read(path_of(ANSWERS, number)))
    assert files.list(REQUESTS) == []
    return dict(answer)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_request_is_refused_and_the_next_one_answered(name, tmp_path):
    assert asked_after(str(tmp_path), REQUESTS, ODD[name]) == {"result": {"done": "status"}}
    refused = json.loads(files_at(str(tmp_path)).read(path_of(ANSWERS, "1")))["error"]
    assert refused["message"] == "the request cannot be read" and refused["detail"]


@given(st.sampled_from([REQUESTS, TAKEN, REFUSED]), CONTENTS)
@example(TAKEN, b'{"order": "x", "request": {"command": "add"}}')
@example(TAKEN, b'{"request": {"command": "add"}}')
@example(REFUSED, b'{"error": "x"}')
def test_no_file_in_the_control_folder_makes_a_job_deaf(where, content):
    with tempfile.TemporaryDirectory() as folder:
        assert asked_after(folder, where, content) == {"result": {"done": "status"}}


def test_a_request_that_the_storage_does_not_give_keeps_no_other_waiting(tmp_path, monkeypatch):
    files = files_at(str(tmp_path))
    read = files.read

    def refusing(path: str) -> bytes:
        if path == path_of(REQUESTS, "1"):
            raise JobError("cannot read it")
        return bytes(read(path))

    for number in "12":
        files.write_atomic(path_of(REQUESTS, number), b'{"command": "status"}')
    monkeypatch.setattr(type(files), "read", lambda self, path: refusing(path))
    assert [number for number, _ in RequestLog(files).arrived()] == ["2"]
