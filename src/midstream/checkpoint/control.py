"""Talking to a running job through a folder of its checkpoint: a request is a file, and so is its answer.

Any process that can reach the checkpoint can send requests to the job, from any machine. A job answers between two
batches or while it waits for rows. A request that changes something belongs to the job from the moment it has taken it
up, which is a file too: either the job or the sender that stops waiting makes it, so a request is never both taken back
and carried out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from midstream.checkpoint.commands import CHANGING
from midstream.checkpoint.failures import AlreadyThere
from midstream.checkpoint.files import Files
from midstream.checkpoint.process import this_process
from midstream.errors import JobError, MidstreamError, QueryError

REQUESTS, TAKEN, REFUSED, ANSWERS = (f"control/{kind}" for kind in ("requests", "taken", "refused", "answers"))

WITHDRAWN = b"null"
"""What stands in the place of a request that was taken back before the job took it up."""

UNTIL = "until"
"""Until when the sender waits for the answer, in seconds since 1970."""

Request = dict[str, Any]
Reply = dict[str, Any]


def ask(files: Files, request: Request, *, patience: float = 60.0, pause: float = 0.2) -> Any:
    """Sends a request to the job and waits for its answer."""
    here = this_process()
    number = send(files, request, patience)
    until = here.monotonic() + patience
    while here.monotonic() < until:
        if files.exists(path_of(ANSWERS, number)):
            return _answer(files, number)
        here.sleep(pause)
    taken_back = _withdraw(files, number, request)
    if files.exists(path_of(ANSWERS, number)):
        return _answer(files, number)
    raise _unanswered(files, patience) if taken_back else _unfinished(files, patience)


def send(files: Files, request: Request, patience: float = 60.0) -> str:
    """Leaves a request for the job, for whose answer somebody waits so many seconds; gives its number."""
    here = this_process()
    number = f"{int(here.now() * 1e9):020d}-{here.token(4)}"
    files.make(REQUESTS)
    files.make(ANSWERS)
    sent = {**request, UNTIL: here.now() + patience}
    files.write_atomic(path_of(REQUESTS, number), json.dumps(sent).encode(), point="request")
    return number


def path_of(folder: str, number: str) -> str:
    """Where a request, or what became of it, is."""
    return f"{folder}/{number}.json"


def numbers_in(files: Files, folder: str) -> Iterator[str]:
    """The requests that a folder has, by their numbers, in order."""
    for path in files.list(folder):
        name = path.rpartition("/")[2]
        if name.endswith(".json") and not name.startswith("."):
            yield name.removesuffix(".json")


def refusal(error: MidstreamError) -> Reply:
    """The answer to a request that is not carried out; of a wrong query with the place in its text."""
    place = {"text": error.text, "position": error.position} if isinstance(error, QueryError) else {}
    return {"error": {"message": error.message, "detail": error.detail, "hint": error.hint, **place}}


def _answer(files: Files, number: str) -> Any:
    record = json.loads(files.read(path_of(ANSWERS, number)))
    files.delete(path_of(ANSWERS, number))
    if "error" in record:
        error = record["error"]
        if error.get("text") is not None:
            raise QueryError(**error)
        raise JobError(error["message"], detail=error["detail"], hint=error["hint"])
    return record["result"]


def _withdraw(files: Files, number: str, request: Request) -> bool:
    """Takes a request back; False if the job has taken it up already."""
    if request.get("command") in CHANGING:
        try:
            files.write_atomic(path_of(TAKEN, number), WITHDRAWN, only_if_absent=True, point="withdrawn")
        except AlreadyThere:
            return False
    files.delete(path_of(REQUESTS, number))
    return True


def _unanswered(files: Files, patience: float) -> JobError:
    return JobError(
        f"no job answers at {files.uri}",
        detail=f"a request was left there for {patience:.0f} s",
        hint="is the job running on this checkpoint? Batches that take long delay the answer",
    )


def _unfinished(files: Files, patience: float) -> JobError:
    return JobError(
        f"the job at {files.uri} accepted the request and has not answered for {patience:.0f} s",
        detail="the request is kept: the job carries it out, or refuses it, when it continues",
        hint="midstream status shows pending requests",
    )
