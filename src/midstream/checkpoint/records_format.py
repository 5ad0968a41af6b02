"""Records as JSON: only what differs from a job's beginning is written; files are rows of values, without names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from midstream.checkpoint.file_entries import (
    DeadLetterFile,
    ListFile,
    MetricsFile,
    ResultFile,
    SourceFile,
    Superseded,
)
from midstream.checkpoint.records import (
    Asked,
    DoubledMove,
    Fault,
    Outputs,
    QueryAccount,
    SetAside,
    Slots,
    StoredRequest,
    Streams,
    Wanted,
)

Record = TypeVar("Record")

_FILES: dict[tuple[type, str], type] = {
    (Outputs, "results"): ResultFile,
    (Outputs, "listed"): ListFile,
    (Outputs, "dead_letters"): DeadLetterFile,
    (Outputs, "listed_dead_letters"): ListFile,
    (Outputs, "superseded"): Superseded,
    (Outputs, "metrics"): MetricsFile,
    (Streams, "files"): SourceFile,
    (Streams, "listed"): ListFile,
    (Asked, "requests"): StoredRequest,
}
"""The fields that are sequences of entries, or such by name; an entry is a row of its values."""

_PARTS: dict[tuple[type, str], type] = {
    (Slots, "wanted"): Wanted,
    (Slots, "doubled"): DoubledMove,
    (QueryAccount, "fault"): Fault,
    (QueryAccount, "set_aside"): SetAside,
}
"""The records within records."""

_ROW: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    kind: attrgetter(*(f.name for f in fields(kind))) for kind in set(_FILES.values())
}


def written(record: Any) -> dict[str, Any]:
    """The fields of a record that are not as at the beginning."""
    found: dict[str, Any] = {}
    kind: type = type(record)
    for name, beginning in _beginnings(kind).items():
        value = getattr(record, name)
        if value != beginning:
            found[name] = _written((kind, name), value)
    return found


@cache
def _beginnings(kind: type) -> dict[str, Any]:
    """What each field of a record is at a job's beginning."""
    return {f.name: f.default_factory() if f.default_factory is not MISSING else f.default for f in fields(kind)}


def _written(place: tuple[type, str], value: Any) -> Any:
    if place in _PARTS:
        return written(value)
    if place not in _FILES:
        return value
    row = _ROW[_FILES[place]]
    return (
        {name: list(map(row, v)) for name, v in value.items()} if isinstance(value, Mapping) else list(map(row, value))
    )


def read(kind: type[Record], content: Mapping[str, Any]) -> Record:
    """The record in what JSON had of it."""
    return kind(**{name: _read((kind, name), value) for name, value in content.items()})


def _read(place: tuple[type, str], value: Any) -> Any:
    if place in _PARTS:
        return read(_PARTS[place], value)
    entry = _FILES.get(place)
    if entry is None:
        return tuple(value) if isinstance(value, list) else value
    if isinstance(value, dict):
        return {name: tuple(entry(*row) for row in rows) for name, rows in value.items()}
    return tuple(entry(*row) for row in value)
