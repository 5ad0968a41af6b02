"""Values as JSON says them.

JSON has no times, decimals, bytes or infinities: these become text, which reads back as what it was.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from typing import Any


def json_value(value: Any) -> Any:
    """A value made of what JSON has.

    >>> json_value(dt.datetime(2024, 5, 1, 12)), json_value(float("inf")), json_value(b"ab")
    ('2024-05-01T12:00:00', 'Infinity', 'YWI=')
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _infinity(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return value / dt.timedelta(seconds=1)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return json_row(value)
        case list() | tuple():
            return [json_value(v) for v in value]
        case _:
            return str(value)


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row, each of its values made of what JSON has."""
    return {str(name): json_value(value) for name, value in row.items()}


def _infinity(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
