"""Fingerprints of users' functions: equal for equal code, whatever file or line it stands on.

What a function does follows from its byte code with its constants and names, its defaults, what its closure holds, and
the functions and values of its own package that it refers to. Comments, docstrings and positions do not matter, nor
does what the function writes to while it runs. Byte code depends on Python's version, so a fingerprint names it and the
format of the description, and fingerprints of two versions say nothing about each other.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

from midstream.algebra.fingerprints.first_format import first_digest
from midstream.algebra.fingerprints.walk import Walk, packages
from midstream.algebra.fingerprints.written_names import written_by_run

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
VERSION = f"{PYTHON}/2"
"""Python's version and the format of fingerprints; the first format has no number."""


def fingerprint(function: Callable[..., Any]) -> str:
    """The fingerprint of a function, a class or a callable object.

    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda y: y + 1)
    True
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
    False
    """
    own = packages(function)
    walk = Walk(own)
    digest = _digest(walk, function)
    named = {code: name for code, name in walk.methods.items() if code not in walk.called}
    state = written_by_run(walk.codes, named)
    return f"{VERSION}:{_digest(Walk(own, state), function) if state else digest}"


def has_changed(recorded: str, function: Callable[..., Any], now: str) -> bool:
    """Whether a function with the fingerprint `now` has other code than the recorded one, where that can be told."""
    version, _, digest = recorded.partition(":")
    if version == PYTHON:
        return first_digest(function) not in (None, digest)
    return differ(recorded, now)


def differ(old: str, new: str) -> bool:
    """Whether two fingerprints are of different code; those of different versions cannot tell."""
    return old != new and old.partition(":")[0] == new.partition(":")[0]


def _digest(walk: Walk, function: Callable[..., Any]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for text in walk.texts(function):
        digest.update(text.encode(errors="surrogatepass"))
        digest.update(b"\x00")
    return digest.hexdigest()
