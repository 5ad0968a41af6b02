"""Which Spark can run a job; looked at without importing it, so that an older one is refused before it fails."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from midstream.errors import JobError

OLDEST_SPARK = (4, 3)
NEWER = f"pip install -U 'pyspark>={'.'.join(map(str, OLDEST_SPARK))}', or run in this process: --on local"
"""What to do about a Spark that is too old."""


def installed_spark() -> str | None:
    """The version of the package; None if Spark comes without one, as on a cluster's own machines."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def is_too_old(found: str) -> bool:
    """Whether a version is older than jobs need.

    >>> [is_too_old(found) for found in ("4.1.4", "4.2.1", "4.3.0", "4.10.0", "5.0.0.dev1")]
    [True, True, False, False, False]
    """
    return tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < OLDEST_SPARK


def require_spark(found: str | None) -> None:
    """Refuses a Spark that is too old; one whose version is not known is let through."""
    if found is not None and is_too_old(found):
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise JobError(f"jobs need Spark {oldest} or later, and this is Spark {found}", hint=NEWER)
