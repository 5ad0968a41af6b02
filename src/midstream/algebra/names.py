"""What can name a stream, a query or a site, wherever the name comes from.

A name becomes part of file names, of plan texts and of what commands show, so the same rule holds for programs, job
files, the shell and requests to a running job: what one of them accepts, all of them can write down.
"""

from __future__ import annotations

import re

from midstream.errors import InputError

LONGEST = 200
"""How many characters a name has at most: with what is added to it, it fits into the name of a file."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")


def check_name(kind: str, name: object) -> str:
    """The name; refuses one that nothing of this kind can have.

    >>> check_name("query", "hot-keys_2")
    'hot-keys_2'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{name!r:.80} cannot name a {kind}", hint="use letters, digits, _ and -, no digit or - first")
    if len(name) > LONGEST:
        raise InputError(
            f"{name[:20]}… cannot name a {kind}: it has {len(name):,} characters",
            hint=f"use at most {LONGEST} letters, digits, _ and -",
        )
    return name
