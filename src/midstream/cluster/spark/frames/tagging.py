"""Streams as Spark sees them: each row tagged with its stream and its partition group, all streams in one DataFrame.

Equal keys must get equal groups. Spark's hash of a column depends on the column's type, so keys of one join have one
type (the binder casts, and a key that is cast is exchanged later instead); zeros of both signs are made one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from midstream.algebra.declarations import StreamDeclaration
from midstream.cluster.spark.frames.sources import NamedSource
from midstream.distribution.fragments import Route
from midstream.errors import InputError
from midstream.job.task.exchange import GROUP_BITS, ONE_SLOT_GROUP, bits_of, default_routing
from midstream.job.task.layout import FROM, GROUP, NOTE, PORT, SLOT, TO, Layout
from midstream.operators.carriers import carrier


@dataclass(frozen=True)
class StreamInput:
    """A stream of a session: what is declared of it, and the DataFrame its rows come from."""

    declaration: StreamDeclaration
    frame: DataFrame
    source: NamedSource | None = None
    """The source that the frame was opened from, if it has a name."""


def columns_of_frame(name: str, frame: DataFrame) -> pa.Schema:
    """The Arrow columns of a DataFrame."""
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    try:
        return to_arrow_schema(frame.schema, timezone=zone)
    except Exception as error:
        raise InputError(
            f"stream {name} has a column that Arrow cannot hold",
            detail=str(error).split("\n")[0],
            hint="cast it to another type, or leave it out",
        ) from None


def tagged_union(
    streams: Sequence[StreamInput],
    routes: Mapping[str, Route],
    needed: Mapping[str, Sequence[str]],
    group_bits: int = GROUP_BITS,
) -> tuple[DataFrame, Layout]:
    """All streams in one DataFrame, with the columns that are needed, and how these lie in it."""
    schemas = {
        port: pa.schema([stream.declaration.columns.field(name) for name in needed[stream.declaration.name]])
        for port, stream in enumerate(streams)
    }
    layout = Layout.of(schemas)
    tagged = [_tagged(port, stream, routes, layout, group_bits) for port, stream in enumerate(streams)]
    return reduce(DataFrame.unionAll, tagged), layout


def _tagged(port: int, stream: StreamInput, routes: Mapping[str, Route], layout: Layout, group_bits: int) -> DataFrame:
    declaration, frame = stream.declaration, stream.frame
    place_of = dict(zip(layout.schemas[port].names, layout.places[port], strict=True))
    held = {place: name for name, place in place_of.items()}
    columns = [F.lit(port).cast(IntegerType()).alias(PORT), _group(declaration, routes, group_bits).alias(GROUP)]
    for i, field in enumerate(layout.columns):
        kind = from_arrow_type(field.type)
        value = column(held[i]).cast(kind) if i in held else F.lit(None).cast(kind)
        columns.append(value.alias(field.name))
    return frame.select(*columns)


def _group(declaration: StreamDeclaration, routes: Mapping[str, Route], group_bits: int) -> Column:
    route = routes.get(declaration.name)
    if route is not None and route.is_one_slot:
        return F.lit(ONE_SLOT_GROUP).cast(IntegerType())
    names = _spreading(declaration) if route is None or route.key is None else tuple(route.key)
    hashed = F.xxhash64(*(_normal(declaration, name) for name in names))
    return F.shiftrightunsigned(hashed, 64 - group_bits).cast(IntegerType())


def _spreading(declaration: StreamDeclaration) -> tuple[str, ...]:
    """Columns by which rows that may go anywhere are spread; stamped ones of a batch all have the same time."""
    if declaration.timestamps == "external":
        return (declaration.time,)
    plain = (f.name for f in declaration.columns if not pa.types.is_nested(f.type))
    return tuple(plain)


def _normal(declaration: StreamDeclaration, name: str) -> Column:
    kind = declaration.columns.field(name).type
    if pa.types.is_floating(kind):
        return column(name).cast("double") + F.lit(0.0)
    return column(name).cast(from_arrow_type(carrier(kind)))


def column(name: str) -> Column:
    """A column by its exact name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def slot_of(routing: Sequence[int], slots: int) -> Column:
    """The slot of a row, from its partition group."""
    if list(routing) == default_routing(slots, len(routing)):
        spread = f"shiftright(`{GROUP}` * {slots}, {bits_of(len(routing))})"
    else:
        spread = f"get(array({', '.join(map(str, routing))}), `{GROUP}`)"
    # One text instead of a tree of columns: each node of one is a call to Java.
    return F.expr(f"CAST(CASE WHEN `{GROUP}` < 0 THEN 0 ELSE {spread} END AS INT)")


def exchange_type(layout: Layout, last: bool) -> StructType:
    """The Spark type of the rows that leave a step; after the last one they are reports."""
    if last:
        return StructType([StructField(NOTE, BinaryType())])
    fixed = [(PORT, IntegerType()), (SLOT, IntegerType()), (FROM, LongType()), (TO, LongType()), (NOTE, BinaryType())]
    fields = [StructField(name, kind) for name, kind in fixed]
    fields += [StructField(f.name, from_arrow_type(f.type)) for f in layout.columns]
    return StructType(fields)
