"""The lease: at most one live driver per checkpoint.

Each holder makes a file of the next number; the highest number tells who holds the lease, and only one can make it.
To renew it, the holder writes another file of its number and then removes the one before: no file is ever changed, so
there is always one to read.

The lease is free when it was given back, when its holder was a process of this machine that is no more, or when it was
not renewed for its whole time. Clocks of two machines are never compared: a process that wants the lease of a holder
elsewhere watches it for that time by its own clock. On one boot of one machine all read the same monotonic clock, which
the holder writes down. The number is the epoch of the manifests made under the lease.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from midstream.checkpoint.failures import AlreadyThere, MissingFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.process import Machine, this_process
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError

log = logging.getLogger(__name__)

FOLDER = "lease"
EXPIRES_AFTER = 60.0
"""Seconds without a renewal after which a holder counts as gone."""

LOOK_EVERY = 1.0
"""Seconds between two looks at a holder that is watched."""

STANDBY_EVERY = 0.2
"""Seconds between two looks of a process that waits to take over."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease, and where.

    `renewed` is when, for people (seconds since 1970); `ticked` is the same by the monotonic clock of its machine.
    """

    owner: str
    host: str
    pid: int
    started: str
    renewed: float
    released: bool = False
    ticked: float = 0.0
    machine: Machine = field(default_factory=Machine)
    working: bool = False
    """Whether batches can come: until then it is only starting."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def silent(self, clock: Clock | None = None) -> float | None:
        """For how many seconds it has not renewed; None if its clock is not ours."""
        here = this_process()
        return max(0.0, (clock or here.monotonic)() - self.ticked) if here.machine.has_clock_of(self.machine) else None

    def is_dead(self) -> bool:
        """Whether it was a process of this machine that is no more; unknown of other machines."""
        here = this_process()
        return here.machine.has_processes_of(self.machine) and not here.lives(self.pid, self.started)


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest lease file: it stays the same for as long as the holder is silent."""

    path: str
    number: int
    holder: Holder


class LostLease(JobError):
    """Somebody else drives the job by now."""


class HeldLease(JobError):
    """Another driver runs on the checkpoint."""


class Lease:
    """A lease that is held."""

    def __init__(self, files: Files, number: int, holder: Holder, clock: Clock) -> None:
        self.files = files
        self.number = number
        self.beats = 0
        self.holder = holder
        self.clock = clock
        self._said = _content(holder)
        """What the holder's newest file says; it names the holder, so nobody else writes the same."""

    @classmethod
    def take(
        cls,
        files: Files,
        owner: str | None = None,
        *,
        above: int = 0,
        clock: Clock | None = None,
        sleep: Callable[[float], None] | None = None,
        expires_after: float = EXPIRES_AFTER,
    ) -> Lease:
        """Takes the lease, or says who holds it; of a holder elsewhere this takes until it renews or its time is over.

        The number is more than `above`: the newest manifest's epoch, where lease files may have been removed.
        """
        here = this_process()
        clock = clock or here.monotonic
        number = max(_wait_until_free(files, clock, sleep or here.sleep, expires_after), above) + 1
        holder = Holder(
            owner or here.token(8),
            here.host,
            here.number,
            here.started,
            here.now(),
            ticked=clock(),
            machine=here.machine,
        )
        with suppress(AlreadyThere):  # if another was faster, it is found just below
            files.write_atomic(_path(number, 0), _content(holder), only_if_absent=True, point="lease")
        winner = seen(files)
        if winner is not None and (winner.number, winner.holder.owner) != (number, holder.owner):
            raise _held(files, winner.holder, clock)
        lease = cls(files, number, holder, clock)
        lease._sweep()
        return lease

    def check(self) -> None:
        """Fails if somebody else holds the lease by now."""
        newest = _newest(self.files)
        if newest is not None and newest[1] == self._said:
            return
        present = seen(self.files)
        if present is None or not self._is_mine(present):
            raise LostLease(
                f"the lease of {self.files.uri} is lost",
                detail=f"{present.holder} took it over" if present else "its files are gone",
                hint="this driver was unresponsive for too long; leave the job to the other one",
            )

    def beat(self) -> None:
        """Renews the lease."""
        self.check()
        self._say(self._renewed())

    def work(self) -> None:
        """Says that batches can come from now on."""
        self.check()
        self._say(replace(self._renewed(), working=True))

    def _renewed(self) -> Holder:
        return replace(self.holder, renewed=this_process().now(), ticked=self.clock())

    def release(self) -> None:
        """Gives the lease back; nothing happens if it was lost."""
        present = seen(self.files)
        if present is not None and self._is_mine(present):
            self._say(replace(self._renewed(), released=True))

    def _is_mine(self, present: Seen) -> bool:
        return (present.number, present.holder.owner) == (self.number, self.holder.owner)

    def _say(self, holder: Holder) -> None:
        self.holder, self.beats, self._said = holder, self.beats + 1, _content(holder)
        self.files.write_atomic(_path(self.number, self.beats), self._said, point="lease", sync=False)
        self._sweep()

    def _sweep(self) -> None:
        """Removes what came before, and what a process that died has left unfinished."""
        mine = _path(self.number, self.beats)
        for path in self.files.list(FOLDER):
            if path.replace("/.", "/") < mine:
                self.files.delete(path)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def seen(files: Files) -> Seen | None:
    """The newest lease file; none if nobody ever held the lease."""
    newest = _newest(files)
    if newest is None:
        return None
    path, content = newest
    try:
        number = int(path.rpartition("/")[2].partition("-")[0])
        return Seen(path, number, _holder(json.loads(content)))
    except (ValueError, TypeError, KeyError) as error:
        raise JobError(
            f"the lease file {files.full(path)} is damaged",
            hint="make sure that no driver runs on this checkpoint, then delete the file",
        ) from error


def _newest(files: Files) -> tuple[str, bytes] | None:
    """The path and the content of the newest lease file; none if there is none."""
    paths = [path for path in files.list(FOLDER) if not path.rpartition("/")[2].startswith(".")]
    if not paths:
        return None
    try:
        return paths[-1], files.read(paths[-1])
    except MissingFile:
        return _newest(files)  # a newer one has been made, and this one swept away


def likely_holder(files: Files) -> Holder | None:
    """Who seems to hold the lease, for those who only look: the clock of a holder elsewhere is believed."""
    present = seen(files)
    return present.holder if present is not None and is_held(present.holder) else None


def is_running(files: Files) -> bool:
    """Whether somebody seems to hold the lease."""
    return likely_holder(files) is not None


def wait_for_release(files: Files, told: Callable[[Holder], None]) -> None:
    """Waits until nobody seems to hold the lease; `told` is told of each holder that is waited for."""
    known: str | None = None
    while (holder := likely_holder(files)) is not None:
        if holder.owner != known:
            known = holder.owner
            told(holder)
        this_process().sleep(STANDBY_EVERY)


def is_held(holder: Holder) -> bool:
    """Whether a holder seems to be at work."""
    if holder.released or holder.is_dead():
        return False
    silent = holder.silent()
    return (this_process().now() - holder.renewed if silent is None else silent) <= EXPIRES_AFTER


def _wait_until_free(files: Files, clock: Clock, sleep: Callable[[float], None], expires_after: float) -> int:
    """The highest number, once its holder has given it back or is gone; raises if it is at work."""
    watched: Seen | None = None
    since = clock()
    while True:
        present = seen(files)
        if present is None:
            return 0
        holder = present.holder
        if holder.released or holder.is_dead():
            return present.number
        silent = holder.silent(clock)
        if silent is not None:
            if silent <= expires_after:
                raise _held(files, holder, clock)
            return present.number
        if watched is None:
            watched, since = present, clock()
            log.warning("%s holds the lease of %s; waiting %.0f s for a sign of it", holder, files.uri, expires_after)
        elif watched.path != present.path:
            raise _held(files, holder, clock)
        elif clock() - since > expires_after:
            return present.number
        sleep(LOOK_EVERY)


def _path(number: int, beat: int) -> str:
    return f"{FOLDER}/{number:012d}-{beat:012d}.json"


def _content(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _holder(record: dict[str, Any]) -> Holder:
    return Holder(**{**record, "machine": Machine(**record.get("machine", {}))})


def _held(files: Files, holder: Holder, clock: Clock) -> HeldLease:
    silent = holder.silent(clock)
    return HeldLease(
        f"another driver runs on {files.uri}: {holder}",
        detail="it renewed its lease " + ("while it was watched" if silent is None else f"{silent:.0f} seconds ago"),
        hint="stop that driver first, wait for its end (run --standby), or give this job a checkpoint of its own",
    )


PAUSE = 20.0
"""Seconds between two renewals: two may fail before the lease runs out."""


class Heartbeat:
    """Holds a checkpoint's lease until it is stopped.

    `on_lost` is called when a renewal finds that somebody else has taken the lease, and again with every later one.
    """

    def __init__(
        self, files: Files, on_lost: Callable[[LostLease], None] = lambda _: None, pause: float = PAUSE
    ) -> None:
        self.lease = Lease.take(files, above=CheckpointStore(files).epoch())
        self.on_lost = on_lost
        self.lost = False
        self.beating = this_process().repeat(self._beat, pause, "midstream-lease")

    @property
    def epoch(self) -> int:
        """The number that manifests made under the lease carry."""
        return self.lease.number

    def check(self) -> None:
        """Fails if somebody else holds the lease by now."""
        self.lease.check()

    def work(self) -> None:
        """Says that batches can come from now on."""
        self.lease.work()

    def stop(self) -> None:
        """Gives the lease back."""
        self.beating.stop()
        self.lease.release()

    def _beat(self) -> None:
        try:
            self.lease.beat()
        except LostLease as error:
            self.lost = True
            self.on_lost(error)
        except (JobError, OSError) as error:
            # Storage that is away may come back.
            log.warning("the lease could not be renewed: %s", error)
