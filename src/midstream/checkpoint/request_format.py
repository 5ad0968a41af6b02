"""What a request file may say. Anybody can leave a file there, so nothing in one is believed before it is checked.

A request is a JSON object with a `command`, which is a text; `until`, if there is one, is a number. What does not
hold to this is read as a request that only says why it cannot be read: it is refused like any other.
"""

from __future__ import annotations

import json
import math
from typing import Any

LARGEST = 2**20
"""How many bytes a request has at most."""

DEEPEST = 32
"""How deep objects and lists in a request may be nested: far less than where JSON cannot be written any more."""

UNREADABLE = "unreadable"
"""Under what a request that cannot be read says why."""

Request = dict[str, Any]


def parsed(content: bytes) -> Request:
    """The request that a file holds.

    >>> parsed(b'{"command": "status"}'), parsed(b'{"command": []}')
    ({'command': 'status'}, {'unreadable': 'its command is not a text'})
    """
    record = _object_in(content)
    if isinstance(record, str):
        return {UNREADABLE: record}
    flaw = _flaw(record)
    return record if flaw is None else {UNREADABLE: flaw}


def taken_in(content: bytes) -> tuple[int, Request] | None:
    """What the file of a request that was taken up says: its place in the order, and the request; None if neither."""
    record = _object_in(content, DEEPEST + 1)
    if isinstance(record, str) or _flaw(record.get("request")) is not None or type(record.get("order")) is not int:
        return None
    return record["order"], record["request"]


def refusal_in(content: bytes) -> Request:
    """The refusal that a file holds; of one that holds none, only that it was refused is known."""
    record = _object_in(content)
    error = None if isinstance(record, str) else record.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return {"error": {"message": "the request was refused", "detail": "the reason cannot be read", "hint": None}}
    said = {name: error.get(name) for name in ("message", "detail", "hint")}
    return {"error": {name: text if isinstance(text, str) else None for name, text in said.items()}}


def _object_in(content: bytes, deepest: int = DEEPEST) -> Request | str:
    """A JSON object, or why there is none."""
    if len(content) > LARGEST:
        return f"it has more than {LARGEST} bytes"
    try:
        record = json.loads(content)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    if not isinstance(record, dict):
        return "it is not a JSON object"
    return record if _is_shallow(record, deepest) else "its values are nested too deeply"


def _flaw(record: object) -> str | None:
    """What is wrong with a request; None if nothing is."""
    if not isinstance(record, dict):
        return "it is not a JSON object"
    if not isinstance(record.get("command"), str):
        return "its command is not a text"
    until = record.get("until", 0)
    if type(until) is not int and not (isinstance(until, float) and math.isfinite(until)):
        return "its `until` is not a number"
    return None


def _is_shallow(value: Any, deepest: int) -> bool:
    level = [value]
    for _ in range(deepest):
        level = [part for some in level for part in _parts(some)]
        if not level:
            return True
    return False


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
