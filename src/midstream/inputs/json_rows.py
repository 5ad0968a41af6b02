"""Rows back from JSON as `json_values` says them, with the values that they had."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from midstream.errors import InputError
from midstream.inputs.json_values import NOT_JSON, json_texts


def rows_of_texts(texts: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Rows of a schema from their JSON texts; what would not say the same again is refused.

    >>> rows_of_texts(['{"at": "2024-05-01T12:00:00", "k": null}'], pa.schema({"at": pa.timestamp("us"), "k": "int64"}))
    pyarrow.Table
    at: timestamp[us]
    k: int64
    ----
    at: [[2024-05-01 12:00:00.000000]]
    k: [[null]]
    """
    rows = [json.loads(text) for text in texts]
    columns = []
    for field in schema:
        try:
            parts = [_one(row[field.name], field.type) for row in rows]
        except (KeyError, ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
            raise InputError(
                f"rows cannot be read back: column {field.name} is {field.type}",
                detail=f"{type(error).__name__}: {error}",
            ) from error
        columns.append(pa.concat_arrays(parts) if parts else pa.array([], field.type))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    for text, row in zip(json_texts(batch), rows, strict=True):
        if json.loads(text) != {field.name: row[field.name] for field in schema}:
            raise InputError(
                "rows cannot be read back: some have values of other types", detail=f"one of them is {row}"
            )
    return pa.Table.from_batches([batch])


def _one(value: Any, kind: pa.DataType) -> pa.Array:
    """An array of one value."""
    is_ = pa.types
    if value is None:
        return pa.nulls(1, kind)
    if isinstance(value, dict) and NOT_JSON in value:
        return _stored(value, kind)
    if is_.is_timestamp(kind) or is_.is_date(kind) or is_.is_time(kind):
        return pa.array([value], pa.string()).cast(kind)
    if is_.is_duration(kind):
        return pa.array([dt.timedelta(seconds=value)], kind)
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return pa.array([base64.b64decode(value)], kind)
    if is_.is_decimal(kind):
        return pa.array([decimal.Decimal(value)], kind)
    if is_.is_floating(kind):
        return pa.array([float(value)], kind)
    return pa.array([value], kind)


def _stored(value: dict[str, Any], kind: pa.DataType) -> pa.Array:
    """An array of one value that JSON has no words for, from what is stored of it."""
    if "stored" in value:
        return pa.array([value["stored"]], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    if "base64" in value:
        raw = base64.b64decode(value["base64"])
        large = pa.types.is_large_string(kind)
        return pa.array([raw], pa.large_binary() if large else pa.binary()).view(kind)
    content = base64.b64decode(value["arrow_base64"])
    return pa.ipc.open_stream(content).read_all().column("value").combine_chunks().cast(kind)
