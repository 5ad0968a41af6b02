"""Streams as Spark sees them: each row tagged with its stream, all streams in one DataFrame; in a batch also with its
partition group.

Equal keys must get equal groups. Spark's hash of a column depends on the column's type, so keys of one join have one
type (the binder casts, and a key that is cast is exchanged later instead); zeros of both signs are made one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from midstream.algebra.declarations import ARRIVAL, StreamDeclaration
from midstream.cluster.spark.versions import arrow_schema
from midstream.connectors.files.bad_rows import BAD, FIELD
from midstream.distribution.fragments import STAY, Route
from midstream.errors import InputError
from midstream.inputs import NamedSource
from midstream.job.circumstances import Incoming
from midstream.job.task.exchange import (
    FROM,
    GROUP,
    NOTE,
    PORT,
    SLOT,
    TO,
    Addressing,
    Layout,
    bits_of,
    default_routing,
    in_slot,
)
from midstream.job.task.in_place import Arrivals


@dataclass(frozen=True)
class StreamInput:
    """A stream of a session: what is declared of it, and the DataFrame its rows come from."""

    declaration: StreamDeclaration
    frame: DataFrame
    source: NamedSource | None = None
    """The source that the frame was opened from, if it has a name."""

    @property
    def arriving(self) -> pa.Schema:
        """The columns that arrive."""
        columns = self.declaration.columns if ARRIVAL in self.frame.columns else self.declaration.visible
        return columns.append(FIELD) if BAD in self.frame.columns else columns


def columns_of_frame(name: str, frame: DataFrame) -> pa.Schema:
    """The Arrow columns of a DataFrame."""
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    try:
        return arrow_schema(frame.schema, zone)
    except Exception as error:
        raise InputError(
            f"stream {name} has a column that Arrow cannot hold",
            detail=str(error).split("\n")[0],
            hint="cast it to another type, or leave it out",
        ) from None


def tagged_union(streams: Sequence[StreamInput]) -> tuple[DataFrame, Layout]:
    """All streams in one DataFrame, with all their columns, and how these lie in it."""
    layout = Layout.of({port: stream.arriving for port, stream in enumerate(streams)})
    tagged = [_tagged(port, stream, layout) for port, stream in enumerate(streams)]
    return reduce(DataFrame.unionAll, tagged), layout


def _tagged(port: int, stream: StreamInput, layout: Layout) -> DataFrame:
    place_of = dict(zip(layout.schemas[port].names, layout.places[port], strict=True))
    held = {place: name for name, place in place_of.items()}
    columns = [F.lit(port).cast(IntegerType()).alias(PORT)]
    for i, field in enumerate(layout.columns):
        kind = from_arrow_type(field.type)
        value = column(held[i]).cast(kind) if i in held else F.lit(None).cast(kind)
        columns.append(value.alias(field.name))
    return stream.frame.select(*columns)


def grouped(rows: DataFrame, incoming: Incoming, arrivals: Arrivals, group_bits: int, slots: int) -> DataFrame:
    """Rows with their partition groups by the routes of their streams, once for each time that they are sent."""
    own = {
        port: _group(incoming, arrivals.routes.get(stream.name, STAY), port, group_bits)
        for port, stream in incoming.streams.items()
    }
    if not arrivals.copies:
        whens = " ".join(f"WHEN {port} THEN {group}" for port, group in own.items())
        return rows.select("*", F.expr(f"CAST(CASE `{PORT}` {whens} END AS INT)").alias(GROUP))
    sent = {port: [(port, group)] for port, group in own.items()}
    for port, copy in arrivals.copies.items():
        groups = [str(in_slot(slot)) for slot in copy.route.copied_to(slots)]
        if not copy.route.everywhere:
            groups = [_group(incoming, copy.route, copy.stream, group_bits)]
        sent[copy.stream] += [(port, group) for group in groups]
    whens = " ".join(f"WHEN {port} THEN array({_structs(copies)})" for port, copies in sent.items())
    payload = [column(name) for name in rows.columns if name != PORT]
    return rows.select(F.expr(f"inline(CASE `{PORT}` {whens} END)").alias(PORT, GROUP), *payload)


def _structs(copies: Sequence[tuple[int, str]]) -> str:
    return ", ".join(f"struct({port} AS `{PORT}`, CAST({group} AS INT) AS `{GROUP}`)" for port, group in copies)


def _group(incoming: Incoming, route: Route, port: int, group_bits: int) -> str:
    if route.is_one_slot:
        return str(in_slot(0))
    layout, key = incoming.layout, incoming.spread_by(port) if route.key is None else route.key
    place_of = dict(zip(layout.schemas[port].names, layout.places[port], strict=True))
    hashed = ", ".join(_normal(layout.columns[place_of[name]]) for name in key)
    if route.slots:
        there = ", ".join(str(in_slot(slot)) for slot in route.slots)
        return f"get(array({there}), CAST(pmod(xxhash64({hashed}), {len(route.slots)}) AS INT))"
    return f"shiftrightunsigned(xxhash64({hashed}), {64 - group_bits})"


def _normal(field: pa.Field) -> str:
    """A carried column whose zeros of both signs are one."""
    return f"CAST(`{field.name}` AS DOUBLE) + 0.0D" if pa.types.is_floating(field.type) else f"`{field.name}`"


def column(name: str) -> Column:
    """A column by its exact name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def slot_of(routing: Sequence[int], slots: int, deliveries: Mapping[int, Addressing]) -> Column:
    """The slot of a row, from its partition group; if that is spread, from a second hash."""
    if list(routing) == default_routing(slots, len(routing)):
        spread = f"shiftright(`{GROUP}` * {slots}, {bits_of(len(routing))})"
    else:
        spread = f"get(array({', '.join(map(str, routing))}), `{GROUP}`)"
    # One text instead of a tree of columns: each node of one is a call to Java.
    shared = " ".join(text for port, delivery in deliveries.items() for text in _owners(port, delivery))
    return F.expr(f"CAST(CASE WHEN `{GROUP}` < 0 THEN -1 - `{GROUP}` {shared} ELSE {spread} END AS INT)")


def _owners(port: int, delivery: Addressing) -> Iterator[str]:
    for group, slots in delivery.spread.items():
        which = f"pmod(xxhash64({', '.join(map(_normal, delivery.by))}), {len(slots)})"
        owner = f"get(array({', '.join(map(str, slots))}), CAST({which} AS INT))"
        yield f"WHEN `{PORT}` = {port} AND `{GROUP}` = {group} THEN {owner}"


def slots_of_copies(deliveries: Mapping[int, Addressing], groups: int, owner: Column) -> Column:
    """All slots that a row goes to: the owner's, and those that get copies of its group, of some streams only."""
    ports: dict[str, list[str]] = {}
    for port, delivery in deliveries.items():
        further = (f"array({', '.join(map(str, delivery.copies.get(group, ())))})" for group in range(groups))
        if delivery.copies:
            ports.setdefault(f"CAST(get(array({', '.join(further)}), `{GROUP}`) AS ARRAY<INT>)", []).append(str(port))
    whens = (f"WHEN `{PORT}` IN ({', '.join(some)}) AND `{GROUP}` >= 0 THEN {known}" for known, some in ports.items())
    copied = F.expr(f"CASE {' '.join(whens)} END")
    return F.concat(F.array(owner), F.coalesce(copied, F.expr("CAST(array() AS ARRAY<INT>)")))


def exchange_type(layout: Layout, last: bool) -> StructType:
    """The Spark type of the rows that leave a step; after the last one they are reports."""
    if last:
        return StructType([StructField(NOTE, BinaryType())])
    fixed = [(PORT, IntegerType()), (SLOT, IntegerType()), (FROM, LongType()), (TO, LongType()), (NOTE, BinaryType())]
    fields = [StructField(name, kind) for name, kind in fixed]
    fields += [StructField(f.name, from_arrow_type(f.type)) for f in layout.columns]
    return StructType(fields)
