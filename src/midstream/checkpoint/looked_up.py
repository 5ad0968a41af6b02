"""Properties that are read from files, once for each object.

Before Python 3.12 `functools.cached_property` holds one lock for all objects of a class while it computes: who reads a
checkpoint would wait for whoever reads another one that is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class looked_up(Generic[T]):  # noqa: N801
    """Looks something up at its first use, and remembers it."""

    def __init__(self, look_up: Callable[[Any], T]) -> None:
        self.look_up = look_up
        self.__doc__ = look_up.__doc__

    def __get__(self, of: object, kind: type | None = None) -> T:
        if of is None:
            return self  # type: ignore[return-value]
        found = of.__dict__[self.look_up.__name__] = self.look_up(of)
        return found
