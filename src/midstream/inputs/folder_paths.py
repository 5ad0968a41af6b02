"""The folder that a stream's path names, spelled as Spark spells it: absolute, `.` and `..` resolved as text."""

from __future__ import annotations

import os
import re
from pathlib import Path


def is_local(path: str) -> bool:
    """Whether a path or address is that of this machine's files.

    >>> is_local("/data"), is_local("file:///data"), is_local("s3a://bucket/data")
    (True, True, False)
    """
    return "://" not in path or path.startswith("file:/")


def local_folder(path: str) -> Path:
    """The absolute path of a path or an address of this machine's files.

    >>> str(local_folder("file:/data/in/../rows/"))
    '/data/rows'
    """
    return Path(os.path.abspath(re.sub("^file:/+", "/", path)))
