"""The requests that a job has taken up: each is kept until a manifest shows its effect or its refusal was answered.

A request is accepted, carried out in memory, answered, and then waits for a manifest. A process that resumes the
checkpoint after a crash finds it here and carries it out again, unless the manifest has its number: then only this file
was left. A refusal is kept too until it was answered, because what is refused now might be possible later.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from midstream.checkpoint.control import (
    ANSWERS,
    REFUSED,
    TAKEN,
    WITHDRAWN,
    Reply,
    Request,
    numbers_in,
    path_of,
)
from midstream.checkpoint.control import REQUESTS as ARRIVED
from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.failures import AlreadyThere, MissingFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.process import this_process
from midstream.checkpoint.records import StoredRequest
from midstream.checkpoint.request_format import parsed, refusal_in, taken_in
from midstream.errors import MidstreamError

log = logging.getLogger(__name__)

UNREAD_FOR = 3600.0
"""After how many seconds an answer that nobody has read goes."""


@dataclass(slots=True)
class RequestLog:
    """The files of requests, as the job sees them."""

    files: Files
    _last: int = field(default=0)

    def arrived(self) -> Iterator[tuple[str, Request]]:
        """The requests that nobody has taken up yet, in the order of their numbers."""
        for number in numbers_in(self.files, ARRIVED):
            try:
                content = self.files.read(path_of(ARRIVED, number))
            except MissingFile:
                continue
            except MidstreamError as error:  # those after it do not wait for it
                log.warning("request %s cannot be read for now: %s", number, error)
                continue
            yield number, parsed(content)

    def take(self, number: str, request: Request) -> bool:
        """Takes a request up; False if it was taken back, or up, before."""
        # The order in which requests are carried out, which clocks of other machines do not tell.
        self._last = max(self._last + 1, int(this_process().now() * 1e9))
        content = json.dumps({"order": self._last, "request": request}).encode()
        try:
            self.files.write_atomic(path_of(TAKEN, number), content, only_if_absent=True, point="taken")
        except AlreadyThere:
            self._clear(number)
            return False
        self.files.delete(path_of(ARRIVED, number))
        return True

    def waiting(self) -> list[tuple[str, Request]]:
        """The requests that were taken up and not forgotten, in the order in which they were."""
        found = []
        for number in numbers_in(self.files, TAKEN):
            try:
                record = taken_in(self.files.read(path_of(TAKEN, number)))
            except MissingFile:
                continue  # its batch was committed just now
            if record is not None:
                found.append((record[0], number, record[1]))
        return [(number, request) for _, number, request in sorted(found, key=lambda one: one[:2])]

    def taken_by_others(self, known: Callable[[str], bool]) -> Iterator[tuple[str, Request]]:
        """The requests that were taken up, are not `known` here, and are not ruled out."""
        for number in numbers_in(self.files, TAKEN):
            if known(number) or self.files.exists(path_of(REFUSED, number)):
                continue
            try:
                self._clear(number)
                record = taken_in(self.files.read(path_of(TAKEN, number)))
            except MissingFile:
                continue
            if record is not None:
                yield number, record[1]

    def answer(self, number: str, reply: Reply) -> None:
        """Answers a request, perhaps once more."""
        self.files.write_atomic(path_of(ANSWERS, number), json.dumps(reply).encode(), point="answer")

    def refuse(self, number: str, reply: Reply) -> None:
        """Answers that a request is not carried out, and makes sure that it never will be."""
        self.rule_out(number, reply)
        self.answer(number, reply)
        self.forget(number)

    def rule_out(self, number: str, reply: Reply) -> None:
        """Makes sure that a request is never carried out; tidying up answers it."""
        self.files.write_atomic(path_of(REFUSED, number), json.dumps(reply).encode(), point="refused")

    def forget(self, number: str) -> None:
        """Lets go of a request whose effect is in a manifest, or that was refused."""
        reach("taken.before_delete")
        self.files.delete(path_of(ARRIVED, number))
        self.files.delete(path_of(TAKEN, number))
        if self.files.exists(path_of(REFUSED, number)):
            # A machine that loses power may bring removed files back: then the refusal must be there too.
            for folder in (ARRIVED, TAKEN):
                self.files.make(folder)
                self.files.sync(folder)
            self.files.delete(path_of(REFUSED, number))

    def tidy(self) -> list[tuple[str, Request, Reply]]:
        """Ends what an earlier process had left half done, while nothing else is at work here.

        Gives the requests that are refused by now, with the reasons; they stay until they are forgotten.
        """
        asked = dict(self.waiting())
        refused = [
            (n, asked.get(n, {}), refusal_in(self.files.read(path_of(REFUSED, n))))
            for n in numbers_in(self.files, REFUSED)
        ]
        for number, _, reply in refused:
            self.answer(number, reply)
        for number in numbers_in(self.files, TAKEN):
            self._clear(number)
        for number in numbers_in(self.files, ANSWERS):
            if _age(number) > UNREAD_FOR:
                self.files.delete(path_of(ANSWERS, number))
        return refused

    def _clear(self, number: str) -> None:
        """Removes a request that was taken up or back; of one taken back, or that says nothing, nothing stays."""
        # Who made the mark may have died before it was safe, and without both the request would be lost.
        self.files.sync(TAKEN)
        # The request goes first: without the mark it would count again.
        self.files.delete(path_of(ARRIVED, number))
        content = self.files.read(path_of(TAKEN, number))
        if taken_in(content) is None:
            if content != WITHDRAWN:
                log.warning("%s is not the file of a request, and is removed", path_of(TAKEN, number))
            self.files.delete(path_of(TAKEN, number))


def _age(number: str) -> float:
    made = number.partition("-")[0]
    return this_process().now() - int(made) / 1e9 if len(made) == 20 and made.isdecimal() else 0.0


def record_of(number: str, request: Request) -> StoredRequest:
    """What manifests and `status` tell of a request."""
    named = ("query", "plan", "scheduling", "mode")
    about = {key: request[key] for key in named if isinstance(request.get(key), str)}
    return StoredRequest(number, str(request.get("command")), about)


def waiting_requests(files: Files, manifest: Manifest) -> Iterator[StoredRequest]:
    """The requests that have arrived, or were taken up, and of which a manifest does not tell yet."""
    known = {record.id for record in manifest.asked.requests}
    yield from (StoredRequest(number) for number in numbers_in(files, ARRIVED))
    for number, request in RequestLog(files).waiting():
        if number not in known:
            yield record_of(number, request)
