"""Values as JSON says them.

JSON has no times, decimals, bytes or infinities: these become text, which reads back as what it was. Arrow holds more
than Python does: times beyond the year 9999, text that is not UTF-8. Such a value becomes an object that names its type
under `not_json` and has what is stored: a number, or bytes in base 64.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from typing import Any

import pyarrow as pa

NOT_JSON = "not_json"


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


def json_texts(rows: pa.RecordBatch) -> list[str]:
    """Each row as a JSON text, whatever its values are.

    >>> json_texts(pa.record_batch({"at": pa.array([2**60], pa.timestamp("us")), "k": [1]}))
    ['{"at": {"not_json": "timestamp[us]", "stored": 1152921504606846976}, "k": 1}']
    """
    try:
        return [_text(json_row(row)) for row in rows.to_pylist()]
    except Exception:  # one value is enough: the others are told as usual
        return [_text_of_row(rows, place) for place in range(rows.num_rows)]


def _text(row: dict[str, Any]) -> str:
    text = json.dumps(row, ensure_ascii=False)
    text.encode()  # halves of pairs of UTF-16 are no text
    return text


def _text_of_row(rows: pa.RecordBatch, place: int) -> str:
    named = zip(rows.schema.names, rows.columns, strict=True)
    return _text({name: _stored_value(column.slice(place, 1)) for name, column in named})


def _stored_value(one: pa.Array) -> Any:
    """The value of an array of one, or what is stored."""
    try:
        value = json_value(one[0].as_py())
        _text({"value": value})
        return value
    except Exception:
        return {NOT_JSON: str(one.type), **_stored(one)}


def _stored(one: pa.Array) -> dict[str, Any]:
    kind, is_ = one.type, pa.types
    if is_.is_timestamp(kind) or is_.is_date(kind) or is_.is_time(kind) or is_.is_duration(kind):
        return {"stored": one.view(pa.int32() if kind.bit_width == 32 else pa.int64())[0].as_py()}
    if is_.is_string(kind) or is_.is_large_string(kind):
        raw = one.view(pa.binary() if is_.is_string(kind) else pa.large_binary())[0].as_py()
        return {"base64": base64.b64encode(raw).decode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("value", kind)])) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays([one], names=["value"]))
    return {"arrow_base64": base64.b64encode(sink.getvalue()).decode()}


def _infinity(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
