"""Files mapped into this process's memory, each once.

Files of a checkpoint never change and their names are never used again, so a mapping stays right for as long as it is
kept. Only the files used last are kept: a mapping holds the space of a file that has been deleted since.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import pyarrow as pa

from midstream.runtime.checkpoint.failures import told

MOST_MAPS = 1024
"""How many mappings a process keeps."""

_maps: OrderedDict[str, pa.Buffer] = OrderedDict()
_lock = Lock()


def mapped(path: str) -> pa.Buffer:
    """The content of a local file, mapped."""
    with _lock:
        found = _maps.get(path)
        if found is not None:
            _maps.move_to_end(path)
            return found
    with told("read", path), pa.memory_map(path) as file:
        content = file.read_buffer()
    with _lock:
        _maps[path] = content
        while len(_maps) > MOST_MAPS:
            _maps.popitem(last=False)
    return content


def forget(path: str) -> None:
    """Lets go of a file that is gone; what still uses its content keeps it."""
    with _lock:
        _maps.pop(path, None)
