"""Properties that are read from files, once for each object.

Before Python 3.12 `functools.cached_property` holds one lock for all objects of a class while it computes: who reads a
checkpoint would wait for whoever reads another one that is slow.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

T = TypeVar("T")


class looked_up(cached_property[T]):  # noqa: N801
    """Looks something up at its first use, and remembers it."""

    def __get__(self, of: object, kind: type | None = None) -> T:  # type: ignore[override]
        if of is None:
            return self  # type: ignore[return-value]
        found = of.__dict__[self.func.__name__] = self.func(of)
        return found
