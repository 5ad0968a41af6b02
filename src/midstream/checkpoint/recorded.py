"""Values that were dictionaries: they have attributes, and what they were recorded as can still be read by key."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, KeysView, Mapping
from typing import Any


class Recorded:
    """A value with a `record`: the dictionary that it was made from. Reading it by key is deprecated."""

    __slots__ = ()

    record: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        self._warn(key)
        return self.record[key]

    def __contains__(self, key: object) -> bool:
        return key in self.record

    def __iter__(self) -> Iterator[str]:
        return iter(self.record)

    def keys(self) -> KeysView[str]:
        """The parts of the record: `dict(value)` is all of it."""
        return self.record.keys()

    def get(self, key: str, default: Any = None) -> Any:
        """A part of the record; deprecated like reading by key."""
        self._warn(key)
        return self.record.get(key, default)

    def _warn(self, key: str) -> None:
        use = f".{key}, or .record for all that was recorded" if hasattr(self, key) else f".record[{key!r}]"
        text = f"reading {type(self).__name__} by key is deprecated: use {use}"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
