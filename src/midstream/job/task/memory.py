"""How much memory a slot may take, and how it is shared out.

What a step holds at once is a few times what it is given at once: rows are sorted, hashed, gathered and written, and
each of these makes a copy. So input, results, new state and merges each get a small share of the whole, and what is
more than its share goes through files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite

from midstream.errors import JobError

LEAST = 16 * 2**20
"""The least that can be asked for; a Python process with Arrow takes more before it does anything."""

LEAST_ROWS, MOST_ROWS = 1_000, 200_000
"""Between these is how many rows cross into Python in one batch of columns: few, large ones cost least."""

_UNITS = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "kb": 2**10,
    "m": 2**20,
    "mb": 2**20,
    "g": 2**30,
    "gb": 2**30,
    "t": 2**40,
    "tb": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that a slot's working data may take, and how many fragments share them."""

    bytes: int = 2**30
    fragments: int = 1

    @staticmethod
    def of(size: int | str, name: str = "memory_per_slot") -> Memory:
        """The memory of a given size, such as "512 MB"; `name` is what errors call the setting."""
        number = bytes_of(size, name)
        if number < LEAST:
            raise JobError(f"{name} must be at least {LEAST // 2**20} MB, not {size!r}")
        return Memory(number)

    @property
    def input(self) -> int:
        """The bytes of input that are taken at once, and sorted into one run where there is more."""
        return max(1, self.bytes // 16)

    @property
    def chunk(self) -> int:
        """The bytes that are fed at once where there is more input than that."""
        return max(1, self.bytes // 32)

    @property
    def output(self) -> int:
        """The bytes of results that wait in memory for each fragment."""
        return max(1, self.bytes // 16 // self.fragments)

    @property
    def new_state(self) -> int:
        """The bytes of new state that wait in memory for each fragment."""
        return max(1, self.state // self.fragments)

    @property
    def state(self) -> int:
        """The bytes of state that are merged into one or written together, and of what one slice looks at."""
        return max(1, self.bytes // 8)

    def among(self, fragments: int) -> Memory:
        """The same memory, shared by so many fragments, whose results and new state all wait at once."""
        return Memory(self.bytes, max(1, fragments))

    def rows_at_once(self, row_bytes: int) -> int:
        """How many rows Spark may hand over in one batch of Arrow columns."""
        return min(MOST_ROWS, max(LEAST_ROWS, self.input // max(1, row_bytes)))

    @property
    def pairs(self) -> int:
        """How many candidate pairs a join looks at in one go."""
        return max(16, self.bytes // 1024)

    @property
    def moved(self) -> int:
        """How many elements of a state are moved at a time."""
        return min(65_536, max(16, self.bytes // 2048))


def bytes_of(size: int | str, name: str) -> int:
    """A size in bytes.

    >>> bytes_of("1.5 GB", "memory_per_slot"), bytes_of(4096, "memory_per_slot")
    (1610612736, 4096)
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None or found[2].lower() not in _UNITS or not isfinite(float(found[1]) * 2**40):
        raise JobError(f"{name} cannot be {size!r}", hint="write for instance '512 MB' or '2 GB'")
    return int(float(found[1]) * _UNITS[found[2].lower()])
