"""Functions that another engine computes: DuckDB, in this process, on Arrow columns.

Each thread has a connection of its own with one thread, so rows come out in the order in which they went in and a
value depends on its arguments alone. Timestamps with a zone are read on that zone's wall clock.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.types as kind

from midstream.errors import InputError, QueryError

_local = threading.local()


def column_name(position: int) -> str:
    """The name that a column has in SQL."""
    return f"c{position}"


def evaluate(sql: str, columns: Sequence[pa.Array], wanted: pa.DataType, what: str) -> pa.Array:
    """The values of some SQL over columns; `what` says what is computed if that fails.

    >>> evaluate("c0 + c1", [pa.array([1]), pa.array([2])], pa.int64(), "a sum").to_pylist()
    [3]
    """
    rows = pa.table(list(columns), names=[column_name(i) for i in range(len(columns))]) if columns else None
    found = run(f"SELECT {sql} AS r{' FROM given' if columns else ''}", rows, what).column("r").combine_chunks()
    return found if found.type == wanted and not kind.is_nested(wanted) else fitted(found, wanted, what)


def fitted(found: pa.Array, wanted: pa.DataType, what: str) -> pa.Array:
    """Values that were computed as the type they are to have."""
    try:
        return found.cast(wanted)
    except pa.ArrowInvalid as problem:
        raise InputError(f"cannot compute {what}", detail=str(problem)) from None


def run(query: str, rows: pa.Table | None, what: str) -> pa.Table:
    """The answer to a query over the table `given`."""
    import duckdb

    connection = _connection(_zone(rows.schema.types if rows is not None else ()))
    try:
        if rows is not None:
            connection.register("given", rows)
        return connection.sql(query).to_arrow_table()
    except duckdb.Error as problem:
        raise InputError(f"cannot compute {what}", detail=str(problem).partition("\n")[0]) from None
    finally:
        if rows is not None:
            connection.unregister("given")


@lru_cache(maxsize=4096)
def type_of(sql: str, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The type of some SQL over columns of these types; a QueryError if it has no meaning."""
    import duckdb

    fields = [pa.field(column_name(i), type_) for i, type_ in enumerate(types)] or [pa.field("nothing", pa.int64())]
    connection = _connection(_zone(types))
    try:
        connection.register("given", pa.schema(fields).empty_table())
        return settled(connection.sql(f"SELECT {sql} AS r FROM given").to_arrow_table().schema.field("r").type)
    except duckdb.Error as problem:
        raise QueryError(str(problem)) from None
    finally:
        connection.unregister("given")


def settled(type_: pa.DataType) -> pa.DataType:
    """A type as the language has it: integers of 64 bits, doubles, texts.

    >>> settled(pa.list_(pa.int32()))
    ListType(list<item: int64>)
    """
    if kind.is_integer(type_):
        return pa.int64()
    if kind.is_floating(type_):
        return pa.float64()
    if kind.is_map(type_):
        return pa.map_(settled(type_.key_type), settled(type_.item_type))
    if kind.is_list(type_) or kind.is_fixed_size_list(type_):
        return pa.list_(settled(type_.value_type))
    if kind.is_struct(type_):
        return pa.struct([pa.field(f.name, settled(f.type)) for f in type_])
    if kind.is_dictionary(type_) or kind.is_null(type_):
        return pa.string()
    return pa.duration("us") if kind.is_interval(type_) else type_


def measured(sql: str, type_: pa.DataType) -> str:
    """SQL of a type whose amounts of time are given as microseconds."""
    if kind.is_duration(type_):
        return f"epoch_us({sql})"
    if kind.is_list(type_) and kind.is_duration(type_.value_type):
        return f"list_transform({sql}, lambda amount: epoch_us(amount))"
    if "duration" in str(type_):
        raise QueryError(f"{type_} holds amounts of time", hint="write them as numbers: epoch_us(x)")
    return sql


def _zone(types: Sequence[pa.DataType]) -> str:
    zone = next((str(t.tz) for t in types if kind.is_timestamp(t) and t.tz), "UTC")
    distance = re.fullmatch(r"([+-])(\d\d):00", zone)
    # The names of zones at a fixed distance count hours to the west.
    return f"Etc/GMT{'-' if distance[1] == '+' else '+'}{int(distance[2])}" if distance else zone


def _connection(zone: str) -> Any:
    """This thread's connection, with its clock set to a zone."""
    import duckdb

    if getattr(_local, "process", None) != os.getpid():
        _local.process, _local.zone = os.getpid(), None
        _local.connection = duckdb.connect(":memory:")
        # Planning a projection costs more than computing it, and there is nothing in one to be planned.
        for setting in ("SET threads = 1", "PRAGMA disable_optimizer", "SET enable_external_access = false"):
            _local.connection.execute(setting)
    if _local.zone != zone:
        _local.connection.execute(f"SET TimeZone = '{zone}'")
        _local.zone = zone
    return _local.connection
