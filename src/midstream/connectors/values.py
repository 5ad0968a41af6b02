"""Records of values as rows of a stream; a record that has a value of another type is a bad row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from midstream.connectors.files.bad_rows import BadRow, with_bad_rows
from midstream.connectors.files.text_values import cast_texts, texts_as
from midstream.connectors.halving import in_halves

Where = Callable[[int], Mapping[str, Any]]
"""Where the record of a number is, for messages."""


def rows_of_values(columns: Sequence[Sequence[Any]], schema: pa.Schema, where: Where) -> pa.Table:
    """Columns of values as rows; values of other types than the columns' are texts that are read as these.

    >>> rows_of_values([[1, "2", "x"]], pa.schema([("a", pa.int64())]), lambda n: {"row": n}).column("a").to_pylist()
    [1, 2, None]
    """
    rows, reasons = columns_of_values(columns, schema)
    if not reasons:
        return with_bad_rows(rows, [])
    kept = pa.array([place for place in range(rows.num_rows) if place not in reasons], pa.int64())
    columns = [column.to_pylist() if isinstance(column, pa.Array) else column for column in columns]
    texts = {place: str({f.name: c[place] for f, c in zip(schema, columns, strict=True)}) for place in reasons}
    return with_bad_rows(
        rows.take(kept), [BadRow(dict(where(place)), texts[place], why) for place, why in sorted(reasons.items())]
    )


def columns_of_values(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> tuple[pa.Table, dict[int, str]]:
    """Columns of values as a table, and which rows have values of other types, with the reasons; these are null."""
    reasons: dict[int, str] = {}
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        array, wrong = _column(values, field.type)
        arrays.append(array)
        for place, reason in wrong.items():
            reasons.setdefault(place, f"{field.name}: {reason}")
    return pa.Table.from_arrays(arrays, schema=schema), reasons


def _column(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Values as a column, and of those that are none of its type the reasons."""
    if isinstance(values, pa.Array):
        return (values, {}) if values.type == kind else texts_as(values, kind)
    bad: dict[int, str] = {}

    def refuse(place: int, _: Exception) -> pa.Array:
        bad[place] = f"{values[place]!r:.200} is no {kind}"
        return pa.nulls(1, kind)

    refusals = (pa.ArrowException, ValueError, TypeError, OverflowError)
    parts = in_halves(len(values), lambda a, b: _array(values[a:b], kind), refusals, refuse)
    return pa.concat_arrays([pa.nulls(0, kind), *parts]), bad


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if any(isinstance(value, str) for value in values) and not pa.types.is_string(kind):
        texts = pa.array([None if value is None else str(value) for value in values], pa.string())
        return cast_texts(texts, kind)
    return pa.array(values, kind)
