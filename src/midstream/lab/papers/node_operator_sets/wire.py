"""States and messages of protocols as JSON, and back.

Frozen dataclasses, enumerations, tuples, sets and dictionaries are all that states and messages are made of. Tuples
become lists, everything else carries its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar

from midstream.algebra.placements import Placement
from midstream.errors import InternalError
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.optimizer.routed.plan import HeadPlan, OneWay

Kind = TypeVar("Kind", bound=type)

_KINDS: dict[str, type] = {}


def on_the_wire(kind: Kind) -> Kind:
    """Registers a dataclass or enumeration, so that its values can be read back."""
    if _KINDS.setdefault(kind.__name__, kind) is not kind:
        raise InternalError(f"two kinds of message are called {kind.__name__}")
    return kind


def to_json(value: Any) -> Any:
    """A value as what `json` can write."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Enum):
        return {"is": type(value).__name__, "value": value.value}
    if is_dataclass(value):
        return {"is": type(value).__name__} | {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [to_json(part) for part in value]
    if isinstance(value, frozenset):
        return {"is": "set", "members": sorted((to_json(part) for part in value), key=repr)}
    if isinstance(value, Mapping):
        return {"is": "mapping", "entries": [[to_json(k), to_json(v)] for k, v in value.items()]}
    raise InternalError(f"a {type(value).__name__} cannot be written down")


def from_json(data: Any) -> Any:
    """The value that was written."""
    if isinstance(data, list):
        return tuple(from_json(part) for part in data)
    if not isinstance(data, dict):
        return data
    kind = data["is"]
    if kind == "set":
        return frozenset(from_json(part) for part in data["members"])
    if kind == "mapping":
        return {from_json(key): from_json(value) for key, value in data["entries"]}
    found = _KINDS[kind]
    if issubclass(found, Enum):
        return found(data["value"])
    return found(**{name: from_json(part) for name, part in data.items() if name != "is"})


for _kind in (Placement, OneWay, HeadPlan, JoinPlan):
    on_the_wire(_kind)
