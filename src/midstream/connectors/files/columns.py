"""Which columns of a file are those of a stream."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def declared_names(present: Sequence[str], declared: Sequence[str]) -> dict[str, str]:
    """The declared name of each column of a file that has one, which may differ in case, as Spark has it.

    >>> declared_names(["TS", "k", "more"], ["ts", "k", "v"])
    {'TS': 'ts', 'k': 'k'}
    """
    found = {name: name for name in present if name in set(declared)}
    twice = sorted(name for name in found if present.count(name) > 1)
    if twice:
        raise ValueError(f"the column {twice[0]} is there twice")
    for name in set(declared) - set(found):
        alike = [other for other in present if other.lower() == name.lower() and other not in found]
        if len(alike) > 1:
            raise ValueError(f"the columns {', '.join(alike)} differ in case only")
        found |= dict.fromkeys(alike, name)
    return {name: found[name] for name in present if name in found}


def as_declared(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a file in their declared types; one that it lacks is null, as Spark has it."""
    declared = declared_names(table.column_names, schema.names)
    table = table.select(list(declared)).rename_columns(list(declared.values()))
    return pa.table([_column(table, field) for field in schema], schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in table.schema.names:
        return pa.nulls(table.num_rows, field.type)
    found = table.column(field.name)
    return found if found.type == field.type else found.cast(field.type)
