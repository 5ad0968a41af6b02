"""What people ask of a running job: carried out between two batches, and never lost or done twice.

A request is carried out in memory, while no batch is under way, so the next manifest shows its effect; that manifest
also has the request's number, and until it is there the checkpoint keeps the request. A session that goes on after a
crash carries out, before its first batch, what was kept and has no number in the manifest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.checkpoint.commands import CHANGING
from midstream.checkpoint.control import UNTIL, Reply, Request, refusal
from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.process import this_process
from midstream.checkpoint.records import StoredRequest
from midstream.checkpoint.request_format import UNREADABLE
from midstream.checkpoint.request_log import RequestLog, record_of
from midstream.errors import InputError, InternalError, JobError, MidstreamError, MigrationError, QueryError
from midstream.job.gate import Gate

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0
"""After how many seconds a driver looks again for requests that another one has left behind."""

Handler = Callable[[Request], Any]


@dataclass(slots=True)
class Requests:
    """The requests to a job; `gate` is held while a batch is under way."""

    files: Files
    gate: Gate
    news: dict[str, StoredRequest] = field(default_factory=dict)
    """What the next manifest tells of, by number: requests whose effect it shows, and promised ones that failed."""
    shown: set[str] = field(default_factory=set)
    """The numbers of those whose effects manifests have shown."""
    request_log: RequestLog = field(init=False)
    _next_look: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.request_log = RequestLog(self.files)

    def go_on(self, manifest: Manifest | None, handle: Handler) -> list[str]:
        """Carries out what was asked of an earlier process and is not in the manifest; gives the numbers."""
        self.shown |= {record.id for record in ([] if manifest is None else manifest.asked.requests)}
        refused = self.request_log.tidy()
        for number, request, reply in refused:
            if number in self.shown:
                self.request_log.forget(number)
            else:
                self._give_up(number, request, reply)
        ruled_out = {number for number, _, _ in refused}
        done = []
        for number, request in self.request_log.waiting():
            if number in self.shown:
                self.request_log.forget(number)
            elif number not in self.news and number not in ruled_out:
                log.info("resumes request %s: %s", number, _request_text(request))
                self._carry_out(number, request, handle, promised=True)
                done.append(number)
        return done

    def answer_all(self, handle: Handler, check: Callable[[], None] = lambda: None) -> int:
        """Answers all requests that have arrived; gives how many. `check` fails if they are no longer ours to take."""
        count = 0
        for number, request in self.request_log.arrived():
            count += 1
            if number in self.news:
                continue
            if number in self.shown:  # a machine that loses power may bring a removed file back
                self.request_log.forget(number)
                continue
            if "command" not in request:
                log.warning("request %s is refused: %s", number, request[UNREADABLE])
                self.request_log.answer(number, refusal(_not_understood(request[UNREADABLE])))
                self.request_log.forget(number)
                continue
            if request.get("command") not in CHANGING:
                self._answer_at_once(number, request, handle)
                continue
            check()
            if self.request_log.take(number, request):
                self._carry_out(number, request, handle)
        if count or this_process().monotonic() >= self._next_look:
            self._take_over(handle, check)
        return count

    def _take_over(self, handle: Handler, check: Callable[[], None]) -> None:
        """Carries out what was taken up and nobody is at.

        A driver that stood still as it took a request up may have lost its lease meanwhile, or its storage failed.
        """
        for number, request in self.request_log.taken_by_others(self._is_known):
            check()
            log.info("takes over request %s: %s", number, _request_text(request))
            self._carry_out(number, request, handle, promised=True)
        self._next_look = this_process().monotonic() + LOOK_EVERY

    def _is_known(self, number: str) -> bool:
        # In this order: what a manifest shows is in `shown` before it leaves the others.
        return number in self.news or number in self.shown

    def _answer_at_once(self, number: str, request: Request, handle: Handler) -> None:
        # What nobody waits for any more was asked of another run of the job.
        now = this_process().now()
        if now <= request.get(UNTIL, now):
            self.request_log.answer(number, _reply(request, handle))
        self.request_log.forget(number)

    def _carry_out(self, number: str, request: Request, handle: Handler, promised: bool = False) -> None:
        """Carries a request out and answers it, before a batch can begin."""
        with self.gate:
            reply = _reply(request, handle)
            reach("request.carried_out")
            if "error" not in reply:
                self.news[number] = record_of(number, request)
                self.request_log.answer(number, reply)
                return
            if promised:  # the sender was told otherwise: it is kept until a manifest names it
                self.request_log.rule_out(number, reply)
                self.request_log.answer(number, reply)
                self._give_up(number, request, reply)
            else:
                self.request_log.refuse(number, reply)

    def _give_up(self, number: str, request: Request, reply: Reply) -> None:
        reason = reply["error"]["message"]
        log.warning("request %s (%s) is given up: %s", number, _request_text(request), reason)
        self.news[number] = replace(record_of(number, request), refused=reason)

    def committed(self) -> None:
        """Lets go of the requests that a manifest tells of now."""
        for number in list(self.news):
            self.request_log.forget(number)
            self.shown.add(number)
            del self.news[number]

    def failed(self, error: BaseException) -> None:
        """Gives up the requests that may have made a batch fail, so that the job can be started again without them.

        Storage that refuses and processes that die are no fault of theirs: these requests stay.
        """
        if not isinstance(error, (InputError, QueryError, MigrationError, InternalError)):
            return
        reason = refusal(JobError("the batch that it came with failed", detail=str(error)))
        for number, record in list(self.news.items()):
            if record.refused is None and record.command in ("add", "migrate", "replace"):
                with suppress(MidstreamError):
                    self.request_log.rule_out(number, reason)
                del self.news[number]


def _not_understood(why: str) -> JobError:
    return JobError(
        "the request cannot be read", detail=why, hint='a request is a JSON object such as {"command": "status"}'
    )


def without_deadline(request: Request) -> Request:
    """A request as its sender wrote it."""
    return {key: value for key, value in request.items() if key != UNTIL}


def _request_text(request: Request) -> str:
    return record_of("", request).text


def _reply(request: Request, handle: Handler) -> Reply:
    try:
        return {"result": handle(request)}
    except MidstreamError as error:
        return refusal(error)
    except Exception as error:
        log.exception("the request %s failed", request)
        failure = f"the job cannot do {without_deadline(request)}"
        return refusal(JobError(failure, detail=f"{type(error).__name__}: {error}"))
