"""Files mapped into this process's memory, each once, and what of them has been verified.

Files of a checkpoint never change and their names are never used again, so a mapping stays right for as long as it is
kept. Its length is compared with the file's at every use: reading a mapping past the end of a file that was cut would
kill the process. Mappings of files that are gone are let go from time to time, because they hold their space.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa

from midstream.checkpoint.failures import storage_errors

MOST_MAPS = 4096
"""How many mappings a process keeps."""

SWEEP_EVERY = 64
"""After how many new mappings those of deleted files are looked for."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapped file; `verified` are the offsets of what this process has compared with its checksum."""

    content: pa.Buffer
    verified: set[int] = field(default_factory=set)


_maps: OrderedDict[str, Mapped] = OrderedDict()
_lock = Lock()
_made = 0


def mapped(path: str) -> Mapped:
    """A local file, mapped."""
    with storage_errors("read", path):
        size = os.stat(path).st_size
        with _lock:
            found = _maps.get(path)
            if found is not None and found.content.size == size:
                _maps.move_to_end(path)
                return found
        made = Mapped(_map(path) if size else pa.py_buffer(b""))
    with _lock:
        _keep(path, made)
    return made


def forget(path: str) -> None:
    """Lets go of a file that is gone; what still uses its content keeps it."""
    with _lock:
        _maps.pop(path, None)


def _map(path: str) -> pa.Buffer:
    with pa.memory_map(path) as file:
        return file.read_buffer()


def _keep(path: str, made: Mapped) -> None:
    global _made
    _maps[path] = made
    _made += 1
    while len(_maps) > MOST_MAPS:
        _maps.popitem(last=False)
    if _made % SWEEP_EVERY == 0:
        for gone in [known for known in _maps if not os.path.exists(known)]:
            del _maps[gone]
