"""Values that were dictionaries: they have attributes, and what they were recorded as can still be read by key."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from midstream.html import escaped, table

T = TypeVar("T")


class Recorded:
    """A value with a `record`: the dictionary that it was made from. Reading it by key is deprecated."""

    __slots__ = ()

    record: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        self._warn(key)
        return self.record[key]

    def __contains__(self, key: object) -> bool:
        return key in self.record

    def get(self, key: str, default: Any = None) -> Any:
        """A part of the record; deprecated like reading by key."""
        self._warn(key)
        return self.record.get(key, default)

    def _warn(self, key: str) -> None:
        told = f"reading {type(self).__name__} by key is deprecated: use .{key}, or .record for all that was recorded"
        warnings.warn(told, DeprecationWarning, stacklevel=3)


class Records(tuple[T, ...]):
    """Values of one kind, oldest first; a table in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        columns: Iterable[str] = getattr(type(self[0]), "COLUMNS", ("value",)) if self else ()
        rows = [[getattr(value, name, value) for name in columns] for value in self]
        return table(columns, rows) if self else f"<p>{escaped('none')}</p>"
