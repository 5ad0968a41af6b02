"""Values that travel to tasks with every batch, though they rarely change: plans, and what is worked out from them.

Such a value is pickled once where it is made, and unpickled once in each process that it comes to; after that its
digest is enough to find it again. It must never be changed.
"""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections import OrderedDict
from typing import Any, Generic, TypeVar

Value = TypeVar("Value", covariant=True)

MOST = 2_000
"""How many values a process remembers."""


class Shipped(Generic[Value]):
    """A value with its pickled form, once that is known."""

    __slots__ = ("_packed", "value")

    def __init__(self, value: Value, packed: tuple[bytes, bytes] | None = None) -> None:
        self.value = value
        self._packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        if self._packed is None:
            # User-defined functions may be such as pickle alone refuses. Only Spark has values travel.
            from pyspark import cloudpickle

            content: bytes = cloudpickle.dumps(self.value)  # type: ignore[no-untyped-call]
            self._packed = (hashlib.blake2b(content, digest_size=16).digest(), zlib.compress(content))
        return _received, self._packed


_known: OrderedDict[bytes, Shipped[Any]] = OrderedDict()


def _received(digest: bytes, content: bytes) -> Shipped[Any]:
    found = _known.get(digest)
    if found is None:
        found = _known[digest] = Shipped(pickle.loads(zlib.decompress(content)), (digest, content))
        if len(_known) > MOST:
            _known.popitem(last=False)
    else:
        _known.move_to_end(digest)
    return found
