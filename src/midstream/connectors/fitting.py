"""What a target takes of results: columns that it lacks are added, rows that it refuses are set aside or stop the job.

Whether a target takes columns is decided before anything is written. Rows that it refuses, because of a constraint or a
type, are found by halves: what it takes is put in together with the record of what it has had, and the others are set
aside first, under a name that a repeat of the delivery has again. So each row is in one of the two places, once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import pyarrow as pa

from midstream.connectors.environment import hidden
from midstream.connectors.halving import in_halves
from midstream.connectors.sink import Delivery, RefusedResult
from midstream.errors import JobError
from midstream.inputs.json_values import json_texts

STOP = "stop"


def missing_columns(schema: pa.Schema, there: Collection[str], target: str) -> list[pa.Field]:
    """The columns of results that a target is to be given; refuses a target that is none of results.

    >>> results = pa.schema([("k", pa.int64()), ("valid_from", pa.int64()), ("valid_to", pa.int64())])
    >>> [field.name for field in missing_columns(results, ["valid_from", "valid_to"], "table t")]
    ['k']
    """
    missing = [field.with_nullable(True) for field in schema if field.name not in there]
    if missing and missing[-1].name == schema.names[-1]:  # the last column says until when or at which instant
        raise JobError(
            f"{target} has no column {schema.names[-1]}, which all results have",
            detail=f"the results have {', '.join(schema.names)}, the table {', '.join(there)}",
            hint="write to a table of results, or to one that is not there yet",
        )
    return missing


def require_types(sink: str, query: str, before: Mapping[str, str], schema: pa.Schema) -> None:
    """Refuses columns that a target has had with another type: rows of both cannot be read together."""
    for field in schema:
        if before.get(field.name, str(field.type)) != str(field.type):
            raise JobError(
                f"sink {sink} has column {field.name} of query {query} as {before[field.name]}",
                detail=f"now it is {field.type}; nothing was written",
                hint=f"name the column otherwise (SELECT {field.name} AS …), cast it, or write to another target",
            )


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of a target, null where they lack one; fails on a value that a column cannot have."""
    columns = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


class Refusing(Protocol):
    """A sink whose target can refuse rows, by an exception among some; `on_bad` says what then becomes of these."""

    on_bad: str

    @property
    def refusals(self) -> tuple[type[Exception], ...]:
        """What says that the target does not take a row."""


def put_in(sink: Refusing, delivery: Delivery, table: pa.Table, put: Callable[[pa.Table], object]) -> None:
    """Puts rows in, by calls that take all of their rows or none; those that are refused are set aside if declared."""
    if sink.on_bad == STOP:
        put(table)
        return
    refused = list[RefusedResult]()

    def refuse(place: int, error: Exception) -> None:
        (row,) = json_texts(table.slice(place, 1).combine_chunks().to_batches()[0])
        refused.append(RefusedResult(row, hidden(f"{error}".strip().split("\n")[0])))

    for _ in in_halves(table.num_rows, lambda a, b: put(table.slice(a, b - a)), sink.refusals, refuse):
        pass
    if refused:
        delivery.keep(refused, len(refused) == table.num_rows)
