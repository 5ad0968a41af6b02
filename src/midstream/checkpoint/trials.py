"""The last trial of a change beside a job, kept with its checkpoint so that others can look at it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from midstream.checkpoint.files import Files

FILE = "trials/last.json"


def keep_trial(files: Files, record: Mapping[str, Any]) -> None:
    """Keeps what a trial found, in place of the one before."""
    files.make(FILE.partition("/")[0])
    files.write_atomic(FILE, json.dumps(record, default=str, ensure_ascii=False).encode())


def last_trial(files: Files) -> dict[str, Any] | None:
    """What the last trial found, if there was one."""
    return json.loads(files.read(FILE)) if files.exists(FILE) else None
