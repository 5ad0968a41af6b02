"""What the storage says when it refuses, in the user's words: the path, the reason, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from midstream.errors import JobError

_HINTS = {
    errno.ENOSPC: "free space on that device, then start the job again: it resumes where it was",
    errno.EDQUOT: "raise the quota or free space, then start the job again: it resumes where it was",
    errno.EACCES: "give the job's user the right to read and write there, then start it again",
    errno.EPERM: "give the job's user the right to read and write there, then start it again",
    errno.EROFS: "mount that device writable, or use another checkpoint",
    errno.ENAMETOOLONG: "use a checkpoint with a shorter path",
    errno.EIO: "the device reports a fault: check it, then start the job again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class StorageFailure(JobError):
    """What the storage has refused, and may not refuse a moment later: a full disk, a server that is away."""


class MissingFile(JobError):
    """A file of the checkpoint that is not there."""


class NotRetained(MissingFile):
    """A batch, or results for a subscriber, that the checkpoint no longer keeps."""


class AlreadyThere(JobError):
    """A file that must be new and is not."""


@contextmanager
def storage_errors(action: str, path: str) -> Iterator[None]:
    """Turns the storage's errors inside into a `StorageFailure` that names the path."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingFile(f"cannot {action} {path}: it is missing", hint=_MISSING) from error
    except OSError as error:
        raise StorageFailure(
            f"cannot {action} {path}", detail=reason(error), hint=_HINTS.get(error.errno or 0, _OTHERWISE)
        ) from error


def reason(error: OSError) -> str:
    """What the storage gave as its reason."""
    return error.strerror or str(error)


_MISSING = "restore the checkpoint from a copy, or start with a new checkpoint"
_OTHERWISE = "make the storage reachable, then start the job again: it resumes where it was"


_SPOKEN = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Permission denied": errno.EACCES,
}


def storage_refusal(text: str, place: str) -> JobError | None:
    """What the storage refused to Spark, from what Spark says of it; None if that was not the trouble."""
    for spoken, number in _SPOKEN.items():
        if spoken in text:
            line = next(line for line in text.splitlines() if spoken in line)
            return JobError(f"Spark cannot write at {place}: {spoken.lower()}", detail=line, hint=_HINTS[number])
    return None
