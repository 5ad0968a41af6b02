"""Values as what a file can hold, and back again: records by field, arrays and rows as text of their bytes.

Nothing is lost on the way: a process that goes on from it decides as if there had been no interruption.
"""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

_PLAIN = (int, str, bool, type(None))


def forgotten(factory: Callable[[], Any]) -> Any:
    """A field that is not kept, and begins anew."""
    return field(default_factory=factory, metadata={"forgotten": True})


def plain(value: Any) -> Any:
    """A value as plain ones.

    >>> plain({1: (2.5, math.inf, np.int64(3))})
    {'1': [2.5, None, 3]}
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if kind in (list, tuple, deque):
        return [plain(own) for own in value]
    if is_dataclass(kind):
        return {name: plain(getattr(value, name)) for name in _kept(kind)}
    if isinstance(value, Mapping):
        return {str(key): plain(own) for key, own in value.items()}
    if isinstance(value, np.generic):
        return plain(value.item())
    return base64.b64encode(value.tobytes() if kind is np.ndarray else _stream(value)).decode("ascii")


def _stream(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def _kept(kind: Any) -> dict[str, Any]:
    """The types of the fields of a record that are kept."""
    return _fields(kind)


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind) if not f.metadata.get("forgotten")}


def typed(kind: Any, content: Any) -> Any:
    """A value of a type from plain ones.

    >>> typed(dict[int, tuple[float, ...]], {"1": [2.5, None]})
    {1: (2.5, inf)}
    """
    origin: Any = get_origin(kind) or kind
    inside = get_args(kind)
    if origin in (Union, UnionType):
        return None if content is None else typed(inside[0], content)
    record: Any = origin
    if is_dataclass(origin):
        return record(**{name: typed(own, content[name]) for name, own in _kept(origin).items()})
    if origin is np.ndarray:
        return np.frombuffer(base64.b64decode(content), get_args(inside[1])[0]).copy()
    if origin is pa.RecordBatch:
        return pa.ipc.open_stream(base64.b64decode(content)).read_next_batch()
    if origin in (dict, Mapping):
        return {int(key) if inside[0] is int else key: typed(inside[1], own) for key, own in content.items()}
    if origin in (list, tuple, deque):
        return origin(typed(inside[0], own) for own in content)
    return math.inf if kind is float and content is None else content
