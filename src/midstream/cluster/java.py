"""The Java that Spark would start, and its version; looked at without Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

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
