"""Talking to a running job through a folder of its checkpoint: a request is a file, and so is its answer.

Whoever can reach the checkpoint can talk to the job, from any machine. A job answers between two batches or while it
waits for rows; a request that nobody answers is taken back.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from typing import Any

from midstream.errors import JobError, MidstreamError
from midstream.runtime.checkpoint.failures import MissingFile
from midstream.runtime.checkpoint.files import Files

REQUESTS, ANSWERS = "control/requests", "control/answers"

Request = dict[str, Any]
Handler = Callable[[Request], Any]


def ask(files: Files, request: Request, *, patience: float = 60.0, pause: float = 0.2) -> Any:
    """Sends a request to the job and waits for its answer."""
    number = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
    files.make(REQUESTS)
    files.make(ANSWERS)
    files.write_atomic(f"{REQUESTS}/{number}.json", json.dumps(request).encode())
    answer = f"{ANSWERS}/{number}.json"
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if files.exists(answer):
            told = json.loads(files.read(answer))
            files.delete(answer)
            return _result(told)
        time.sleep(pause)
    files.delete(f"{REQUESTS}/{number}.json")
    raise JobError(
        f"no job answers at {files.uri}",
        detail=f"a request was left there for {patience:.0f} seconds",
        hint="is the job running on this checkpoint? Batches that take long delay the answer",
    )


def answer_all(files: Files, handle: Handler) -> int:
    """Answers all requests that wait; gives how many."""
    waiting = [path for path in files.list(REQUESTS) if path.endswith(".json") and "/." not in path]
    for path in waiting:
        try:
            request = json.loads(files.read(path))
        except MissingFile:
            continue
        reply = _reply(request, handle)
        files.write_atomic(f"{ANSWERS}/{path.rpartition('/')[2]}", json.dumps(reply).encode())
        files.delete(path)
    return len(waiting)


def _reply(request: Request, handle: Handler) -> dict[str, Any]:
    try:
        return {"result": handle(request)}
    except MidstreamError as error:
        return {"error": {"message": error.message, "detail": error.detail, "hint": error.hint}}


def _result(told: dict[str, Any]) -> Any:
    if "error" in told:
        error = told["error"]
        raise JobError(error["message"], detail=error["detail"], hint=error["hint"])
    return told["result"]
