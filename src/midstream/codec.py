"""Records as what JSON can hold, and back again, as the types of their fields say.

Of a record is written what differs from its beginning, a `RecordRow` is written as a row of its values, arrays and
batches as text of their bytes. Nothing is lost on the way: a process that goes on from it decides as if there had been
no interruption. What a type says nothing of is taken as it is.
"""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

Record = TypeVar("Record")

Way = Callable[[Any], Any] | None
"""How values of a type are written, or read; None: as they are."""

_ARRAYS = (np.ndarray, pa.RecordBatch)
"""What does not say as one value whether it equals another."""

_AS_IT_IS: tuple[Way, Way] = (None, None)
_NUMBER: tuple[Way, Way] = (
    lambda value: value if math.isfinite(value) else None,
    lambda value: math.inf if value is None else value,
)


class RecordRow:
    """A record that is written as a row of its values."""

    __slots__ = ()


def forgotten(factory: Callable[[], Any]) -> Any:
    """A field that is not kept, and begins anew."""
    return field(default_factory=factory, metadata={"forgotten": True})


def written(value: Any, kind: Any = None) -> Any:
    """A value, of a type, as what JSON can hold.

    >>> written({1: (2.5, math.inf)}, dict[int, tuple[float, ...]])
    {'1': [2.5, None]}
    """
    of: Any = type(value) if kind is None else kind
    write, _ = _ways(of)
    return value if write is None else write(value)


def read(kind: type[Record], content: Any) -> Record:
    """The value of a type in what was written of it.

    >>> read(dict[int, tuple[float, ...]], {"1": [2.5, None]})
    {1: (2.5, inf)}
    """
    of: Any = kind
    _, way = _ways(of)
    found: Record = content if way is None else way(content)
    return found


@cache
def _ways(kind: Any) -> tuple[Way, Way]:
    """How values of a type are written and read."""
    origin: Any = get_origin(kind) or kind
    inside = get_args(kind)
    if origin in (Union, UnionType):
        return tuple(None if way is None else _unless_none(way) for way in _ways(inside[0]))  # type: ignore[return-value]
    if origin is float:
        return _NUMBER
    if origin is np.ndarray:
        number = get_args(inside[1])[0]
        return lambda value: _text(value.tobytes()), lambda text: np.frombuffer(base64.b64decode(text), number).copy()
    if origin is pa.RecordBatch:
        return _batch_text, lambda text: pa.ipc.open_stream(base64.b64decode(text)).read_next_batch()
    if origin in (dict, Mapping):
        return _of_mappings(origin, inside[0], *_ways(inside[1]))
    if origin in (list, tuple, deque, Sequence):
        return _of_sequences(origin, *_ways(inside[0]))
    if isinstance(origin, type) and is_dataclass(origin):
        return _of_rows(origin) if issubclass(origin, RecordRow) else _of_records(origin, inside)
    return _AS_IT_IS


def _of_mappings(origin: Any, key: Any, write: Way, read: Way) -> tuple[Way, Way]:
    of_key: Callable[[Any], Any] = int if key is int else str
    if origin is Mapping and key is not int and write is None:
        return _AS_IT_IS
    return (
        lambda found: {str(name): value if write is None else write(value) for name, value in found.items()},
        lambda found: {of_key(name): value if read is None else read(value) for name, value in found.items()},
    )


def _of_sequences(origin: Any, write: Way, read: Way) -> tuple[Way, Way]:
    if origin is Sequence and write is None:
        return _AS_IT_IS
    made = tuple if origin is Sequence else origin
    finite = write is _NUMBER[0]
    return (
        lambda found: list(
            found if write is None or (finite and all(map(math.isfinite, found))) else map(write, found)
        ),
        lambda found: made(found if read is None else map(read, found)),
    )


def _of_rows(kind: Any) -> tuple[Way, Way]:
    return attrgetter(*(f.name for f in fields(kind))), lambda row: kind(*row)


def _of_records(kind: Any, of: Any) -> tuple[Way, Way]:
    hints = {
        name: hint[of] if getattr(hint, "__parameters__", ()) else hint for name, hint in get_type_hints(kind).items()
    }
    kept = [f for f in fields(kind) if not f.metadata.get("forgotten")]
    writes = [(f.name, _ways(hints[f.name])[0], _beginning(f)) for f in kept]
    reads = {f.name: _ways(hints[f.name])[1] or _sequence_read(hints[f.name]) for f in kept}

    def write(record: Any) -> dict[str, Any]:
        found = {}
        for name, way, beginning in writes:
            value = getattr(record, name)
            if value is not beginning and (isinstance(value, _ARRAYS) or value != beginning):
                found[name] = value if way is None else way(value)
        return found

    def read(content: Mapping[str, Any]) -> Any:
        return kind(**{name: value if (way := reads[name]) is None else way(value) for name, value in content.items()})

    return write, read


def _beginning(of: Any) -> Any:
    """What a field is at first."""
    return of.default_factory() if of.default_factory is not MISSING else of.default


def _sequence_read(hint: Any) -> Way:
    """A field that is a sequence of what is taken as it is does not change once it was read."""
    return tuple if get_origin(hint) is Sequence else None


def _unless_none(way: Callable[[Any], Any]) -> Way:
    return lambda value: None if value is None else way(value)


def _text(content: Any) -> str:
    return base64.b64encode(content).decode("ascii")


def _batch_text(rows: pa.RecordBatch) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return _text(sink.getvalue())
