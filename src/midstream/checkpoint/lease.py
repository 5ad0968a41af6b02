"""The lease: at most one live driver per checkpoint.

Each holder makes a file of the next number; the highest number tells who holds the lease, and only one can make it.
To renew it, the holder writes another file of its number and then removes the one before: no file is ever changed, so
there is always one to read. The lease is free when it was given back, when its time has run out, or when its holder
was a process of this machine that is no more.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from midstream.checkpoint.failures import AlreadyThere, MissingFile
from midstream.checkpoint.files import Files
from midstream.errors import JobError

FOLDER = "lease"
EXPIRES_AFTER = 60.0
"""Seconds without a renewal after which a holder counts as gone."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease, and when it was last renewed (seconds since 1970)."""

    owner: str
    host: str
    pid: int
    started: str
    renewed: float
    released: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease:
    """A lease that is held."""

    def __init__(
        self, files: Files, number: int, holder: Holder, clock: Callable[[], float], expires_after: float
    ) -> None:
        self.files = files
        self.number = number
        self.beats = 0
        self.holder = holder
        self.clock = clock
        self.expires_after = expires_after

    @classmethod
    def take(
        cls,
        files: Files,
        owner: str | None = None,
        *,
        clock: Callable[[], float] = time.time,
        expires_after: float = EXPIRES_AFTER,
    ) -> Lease:
        """Takes the lease, or says who holds it."""
        number, present = newest(files)
        if present is not None and not is_free(present, clock(), expires_after):
            raise _held(files, present, clock())
        holder = Holder(owner or secrets.token_hex(8), socket.gethostname(), os.getpid(), _started("self"), clock())
        with suppress(AlreadyThere):  # if another was faster, it is found just below
            files.write_atomic(_path(number + 1, 0), _content(holder), only_if_absent=True, point="lease")
        made, winner = newest(files)
        if winner is not None and (made, winner.owner) != (number + 1, holder.owner):
            raise _held(files, winner, clock())
        lease = cls(files, number + 1, holder, clock, expires_after)
        lease._sweep()
        return lease

    def check(self) -> None:
        """Fails if somebody else holds the lease by now."""
        number, present = newest(self.files)
        if present is None or present.owner != self.holder.owner or number != self.number:
            raise JobError(
                f"the lease of {self.files.uri} is lost",
                detail=f"{present} took it over" if present else "its files are gone",
                hint="this driver was silent for too long; let the other one go on, and do not start this one again",
            )

    def beat(self) -> None:
        """Renews the lease."""
        self.check()
        self._say(replace(self.holder, renewed=self.clock()))

    def release(self) -> None:
        """Gives the lease back; nothing happens if it was lost."""
        number, present = newest(self.files)
        if number == self.number and present is not None and present.owner == self.holder.owner:
            self._say(replace(self.holder, released=True))

    def _say(self, holder: Holder) -> None:
        self.holder, self.beats = holder, self.beats + 1
        self.files.write_atomic(_path(self.number, self.beats), _content(holder), point="lease", sync=False)
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


def newest(files: Files) -> tuple[int, Holder | None]:
    """The highest number and who made it; 0 and none if nobody ever held the lease."""
    paths = [path for path in files.list(FOLDER) if not path.rpartition("/")[2].startswith(".")]
    if not paths:
        return 0, None
    try:
        number = int(paths[-1].rpartition("/")[2].partition("-")[0])
        return number, Holder(**json.loads(files.read(paths[-1])))
    except MissingFile:
        return newest(files)  # a newer one has been made, and this one swept away
    except (ValueError, TypeError) as error:
        raise JobError(
            f"the lease file {files.full(paths[-1])} is damaged",
            hint="make sure that no driver runs on this checkpoint, then delete the file",
        ) from error


def _path(number: int, beat: int) -> str:
    return f"{FOLDER}/{number:012d}-{beat:012d}.json"


def _content(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def is_free(holder: Holder, now: float, expires_after: float) -> bool:
    """Whether a lease can be taken: it was given back, not renewed for too long, or its holder is dead."""
    return holder.released or now - holder.renewed > expires_after or _is_dead(holder)


def _is_dead(holder: Holder) -> bool:
    """Whether the holder was a process of this machine that is no more; unknown of other machines."""
    if holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return bool(holder.started) and _started(str(holder.pid)) != holder.started


def _started(pid: str) -> str:
    """When a process started, in the machine's own count, so that a number used again is not taken for it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    except OSError:
        return ""


def _held(files: Files, holder: Holder, now: float) -> JobError:
    return JobError(
        f"another driver is at work on {files.uri}: {holder}",
        detail=f"it renewed its lease {max(0.0, now - holder.renewed):.0f} seconds ago",
        hint="stop that driver first, or give this job a checkpoint of its own",
    )
