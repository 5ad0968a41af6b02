"""The forms in which results reach a sink: as intervals, as changes, or as the relation that they make now."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.checkpoint.stored_results import start_of
from midstream.errors import JobError
from midstream.inputs.json_values import json_texts
from midstream.operators.vectors import column_of, numbers_of

Form = Literal["rows", "changelog", "current"]

INSERT, DELETE = "insert", "delete"
FROM, TO = "valid_from", "valid_to"


def in_form(table: pa.Table, form: Form, query: str, now: int) -> pa.Table:
    """Results in the form that a sink wants; `now` is the instant at which the relation is current.

    >>> results = pa.table({"k": [7, 8], "valid_from": [1, 2], "valid_to": [4, None]})
    >>> in_form(results, "changelog", "q", 5).to_pylist()[:2]
    [{'k': 7, 'at': 1, 'change': 'insert'}, {'k': 8, 'at': 2, 'change': 'insert'}]
    >>> in_form(results, "current", "q", 5).to_pylist()
    [{'k': 8, 'valid_from': 2, 'valid_to': None}]
    >>> in_form(results, "current", "q", 1).to_pylist()
    [{'k': 7, 'valid_from': 1, 'valid_to': 4}]
    """
    if form == "rows":
        return table
    if start_of(table.schema) == "ts":
        raise JobError(
            f"query {query} gives a stream, which has no form {form!r}",
            detail="of ISTREAM, DSTREAM and RSTREAM nothing is valid for longer than an instant",
            hint='use form = "rows"',
        )
    if form == "current":
        # Once all streams have ended results start later, too.
        begun = pc.less_equal(table.column(FROM), instant_of(table.schema.field(FROM).type, now))
        return table.filter(pc.and_(begun, lives_after(table.column(TO), now)))
    values = table.drop_columns([FROM, TO])
    ended = pc.is_valid(table.column(TO))
    return pa.concat_tables(
        [
            _events(values, table.column(FROM), INSERT),
            _events(values.filter(ended), table.column(TO).filter(ended), DELETE),
        ]
    )


def _events(values: pa.Table, at: pa.ChunkedArray, change: str) -> pa.Table:
    return values.append_column("at", at).append_column("change", pa.array([change] * len(values), pa.string()))


def lives_after(ends: pa.ChunkedArray, now: int) -> pa.ChunkedArray:
    """Which intervals end later than an instant, or never."""
    return pc.fill_null(pc.greater(ends, instant_of(ends.type, now)), True)


def instant_of(kind: pa.DataType, ticks: int) -> pa.Scalar:
    """An instant as a value of a time column's type."""
    return column_of(np.array([ticks]), kind)[0]


def between(table: pa.Table, since: int, until: int) -> pa.Table:
    """The results that start from one instant to before another."""
    column = table.column(max(table.schema.get_all_field_indices(start_of(table.schema))))
    starts = np.concatenate([numbers_of(chunk) for chunk in column.chunks]) if table.num_rows else np.empty(0, np.int64)
    return table.filter(pa.array((starts >= since) & (starts < until)))


def json_column(column: pa.ChunkedArray) -> pa.Array:
    """Values that have parts, as JSON texts.

    >>> json_column(pa.chunked_array([[["a"], None]])).to_pylist()
    ['["a"]', None]
    """
    texts = json_texts(pa.RecordBatch.from_arrays([column.combine_chunks()], names=["value"]))
    within = (text.partition(": ")[2].removesuffix("}") for text in texts)
    valid = column.is_valid().to_pylist()
    return pa.array([text if there else None for text, there in zip(within, valid, strict=True)], pa.string())


def require_distinct_names(schema: pa.Schema, target: str) -> None:
    """Refuses columns that a table outside cannot tell apart."""
    names = [name.lower() for name in schema.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise JobError(
            f"{target} cannot have two columns named {twice[0]}",
            hint=f"name one of them otherwise: SELECT {twice[0]} AS …",
        )
