"""Whether there is a Spark that can run a job, and which Java it would start; looked at without importing it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from midstream.errors import JobError

OLDEST_SPARK = (4, 0)

EXTRA = "pip install 'midstream[spark]', or run in this process: --on local"
"""What to do where Spark is missing, or too old."""


def installed_spark() -> str | None:
    """The version of the package; None if Spark comes without one, as on a cluster's own machines."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def is_there() -> bool:
    """Whether Python finds Spark, from a package or from a cluster's own machines."""
    return find_spec("pyspark") is not None if "pyspark" not in sys.modules else sys.modules["pyspark"] is not None


def version_of(found: str) -> tuple[int, ...]:
    """The first two numbers of a version.

    >>> version_of("4.1.4"), version_of("4.10.0"), version_of("5.0.0.dev1")
    ((4, 1), (4, 10), (5, 0))
    """
    return tuple(int(part) for part in found.split(".")[:2] if part.isdigit())


def is_too_old(found: str) -> bool:
    """Whether a version is older than jobs need."""
    return version_of(found) < OLDEST_SPARK


def require_spark() -> None:
    """Refuses to go on where Spark is missing or too old; one whose version is not known is let through."""
    if not is_there():
        raise JobError("Spark is not installed", hint=EXTRA)
    require_version(installed_spark())


def require_version(found: str | None) -> None:
    """Refuses a Spark that is too old."""
    if found is not None and is_too_old(found):
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise JobError(f"jobs need Spark {oldest} or later, and this is Spark {found}", hint=EXTRA)


OLDEST_JAVA = 17


def java_program(environment: Mapping[str, str] = os.environ) -> str | None:
    """The program that Spark would start: that of JAVA_HOME, else the first on the PATH; None if there is none."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    return java if java is not None and Path(java).exists() else None


def java_version(java: str) -> int | None:
    """The feature release of a Java, such as 17; None if it does not say."""
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None
