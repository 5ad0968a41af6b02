"""Values as JSON has them, and which are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import pyarrow as pa

from midstream.inputs.json_values import json_row, json_value


def table_as_json(table: pa.Table, limit: int = 0) -> dict[str, Any]:
    """A table's columns and rows as JSON has them; all rows if the limit is 0."""
    shown = table if limit == 0 else table.slice(0, limit)
    return {"columns": columns_as_json(table.schema), "rows": [json_row(row) for row in shown.to_pylist()]}


def columns_as_json(schema: pa.Schema) -> list[dict[str, str]]:
    """The names and types of columns."""
    return [{"name": field.name, "type": str(field.type)} for field in schema]


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type are shown aligned to the right."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def plain(value: Any) -> Any:
    """A value made of what JSON has; numbers that JSON lacks become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return json_value(value)
