"""Places where a process may be made to die, so that tests can see what a crash there leaves behind.

`MIDSTREAM_CRASH_AT=name` kills the process when it first reaches the point of that name, `name:3` when it reaches it
the third time. `MIDSTREAM_CRASH_ONCE=file` lets one process die only: the file is made before the kill, and while it
exists nobody else dies. Without the variables, reaching a point does nothing.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

CRASH_AT = "MIDSTREAM_CRASH_AT"
CRASH_ONCE = "MIDSTREAM_CRASH_ONCE"

STEPS = ("before_write", "within_write", "after_write", "before_rename", "after_rename")
"""What every written file passes, in this order; a point's name is `kind.step`. Object stores rename nothing."""

KINDS = ("pack", "results", "dead_letters", "merge", "metrics", "list", "manifest", "lease", "file")
ASKED = ("request", "withdrawn", "taken", "refused", "answer")
"""What the kinds of files call themselves; the second are about requests to a running job."""

OTHERS = ("commit.before_sync", "retain.before_delete", "retain.after_delete", "collect.before_delete")
"""Points that are not about writing a file."""

OF_REQUESTS = ("request.carried_out", "taken.before_delete")
"""Points of requests that are not about writing a file."""

POINTS = (*(f"{kind}.{step}" for kind in (*KINDS, *ASKED) for step in STEPS), *OTHERS, *OF_REQUESTS)
"""All points of the checkpoint."""

_reached: Counter[str] = Counter()


def reach(name: str) -> None:
    """Says that a point has been reached; kills the process if it was asked for."""
    wanted = os.environ.get(CRASH_AT)
    if not wanted:
        return
    point, _, count = wanted.partition(":")
    if point != name:
        return
    _reached[name] += 1
    if _reached[name] == int(count or 1) and _first_to_die():
        os.kill(os.getpid(), signal.SIGKILL)


def reset() -> None:
    """Restarts the count of how often each point is reached."""
    _reached.clear()


def _first_to_die() -> bool:
    marker = os.environ.get(CRASH_ONCE)
    if not marker:
        return True
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
