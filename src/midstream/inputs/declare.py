"""Inputs are tables by stream name; their columns, and a time column each, are what a query is bound against."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from midstream.algebra.declarations import (
    ARRIVAL,
    Catalog,
    MaxAhead,
    StreamDeclaration,
    Timestamps,
    UserFunction,
    functions_by_name,
)
from midstream.algebra.names import check_name
from midstream.algebra.time import TimeDomain, ticks
from midstream.errors import InputError
from midstream.inputs.frames import plain_schema, table_of

Duration = int | float | str | dt.timedelta
Format = str | object
"""What a stream is read from: the name of a format, or what connectors call a source."""
Time = str | Mapping[str, str | None]
"""The time column: one name for all streams, or a name per stream; of finite tables, None for one without."""


def tables_of(inputs: Mapping[str, object]) -> dict[str, pa.Table]:
    """Every stream's rows as an Arrow table of plain types."""
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"streams are given by name, not as a {type(inputs).__name__}", hint='write {"A": table} for stream A'
        )
    for name in inputs:
        check_name("stream", name)
    return {name: table_of(name, value) for name, value in inputs.items()}


def catalog_of(
    schemas: Mapping[str, pa.Schema],
    time: Time = "ts",
    *,
    lateness: Duration | Mapping[str, Duration] = 0,
    functions: Sequence[UserFunction] = (),
) -> Catalog:
    """The streams and functions that a query may refer to."""
    streams = {name: declare(name, schema, time, lateness) for name, schema in schemas.items()}
    _known(time, streams, "time")
    _known(lateness, streams, "lateness")
    return Catalog(streams, functions_by_name(list(functions)))


def declare(
    name: str, schema: pa.Schema, time: Time = "ts", lateness: Duration | Mapping[str, Duration] = 0
) -> StreamDeclaration:
    """A stream's declaration from its columns."""
    columns = plain_schema(name, schema)
    column = _time_column(name, columns, time)
    late = lateness.get(name, 0) if isinstance(lateness, Mapping) else lateness
    domain = _domain(name, column, columns)
    amount = ticks(late, domain) if late != 0 else 0
    if amount < 0:
        raise InputError(f"stream {name} cannot have a negative lateness: {late}")
    hidden = [] if ARRIVAL in columns.names else [pa.field(ARRIVAL, pa.int64())]
    return StreamDeclaration(name, pa.schema([*hidden, *columns]), column, amount)


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source by its format; `columns` are SQL expressions over what it has, all of it if there are none.

    One that is `connected` is what connectors call a source; it has no format, path or schema besides.
    """

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    connected: object | None = None

    @staticmethod
    def of(
        name: str,
        format: Format,
        path: str | None,
        schema: str | None,
        options: Mapping[str, str],
        columns: Sequence[str],
    ) -> NamedSource:
        """A source as a stream of a session is opened with it."""
        kind, connected = (format, None) if isinstance(format, str) else ("connected", format)
        return NamedSource(check_name("stream", name), kind, path, schema, dict(options), tuple(columns), connected)


@dataclass(frozen=True)
class StreamSettings:
    """What is declared of a stream besides its columns."""

    time: str = "ts"
    lateness: Duration = 0
    timestamps: Timestamps = "external"
    skew: Duration | None = None
    max_ahead: Duration = "clock"
    site: str | None = None

    def __post_init__(self) -> None:
        if self.timestamps not in ("external", "internal", "latent"):
            raise InputError(f"timestamps are external, internal or latent, not {self.timestamps!r}")

    @property
    def stamped(self) -> bool:
        """Whether rows get their time when they arrive."""
        return self.timestamps != "external"

    def declaration(self, name: str, columns: pa.Schema) -> StreamDeclaration:
        """The stream with these columns."""
        declared = declare(name, columns, self.time, self.lateness)
        if self.stamped and not pa.types.is_timestamp(declared.columns.field(self.time).type):
            raise InputError(f"stream {name} is stamped with timestamps, which its time column {self.time} cannot hold")
        behind = 0 if self.skew is None or self.skew == 0 else ticks(self.skew, declared.domain)
        if behind < 0:
            raise InputError(f"stream {name} cannot have a negative skew: {self.skew}")
        willing = self.stamped or self.skew is not None
        ahead = max_ahead_of(name, self.max_ahead, declared.domain)
        made = replace(declared, timestamps=self.timestamps, skew=behind, on_demand=willing, max_ahead=ahead)
        return replace(made, site=self.site)


def max_ahead_of(name: str, wanted: Duration, domain: TimeDomain) -> MaxAhead:
    """A bound on how far ahead a stream's times are believed, as its declaration has it."""
    if wanted in ("clock", "any"):
        return "clock" if wanted == "clock" else "any"
    bound = ticks(wanted, domain)
    if bound <= 0:
        raise InputError(
            f"max_ahead of stream {name} must be above zero, not {wanted}", hint='max_ahead="any" sets no bound'
        )
    return bound


def _known(setting: object, streams: Mapping[str, object], word: str) -> None:
    unknown = [name for name in setting if name not in streams] if isinstance(setting, Mapping) else []
    if unknown:
        raise InputError(
            f"{word} is given for {', '.join(map(str, unknown))}, which is not among the streams",
            detail=f"the streams are {', '.join(streams) or 'none'}",
        )


def _time_column(name: str, columns: pa.Schema, time: Time) -> str:
    if isinstance(time, str):
        return time
    if not isinstance(time, Mapping):
        raise InputError(
            f"the time column is named by a text, not by {time!r}", hint="or by a mapping with a name for each stream"
        )
    column = time.get(name)
    if column is None:
        raise InputError(
            f"no time column is named for stream {name}",
            hint=f'add "{name}" to time=, one of {", ".join(columns.names)}',
        )
    return column


def _domain(name: str, column: str, columns: pa.Schema) -> TimeDomain:
    if column not in columns.names:
        StreamDeclaration(name, columns, column)  # raises, and says which columns there are
    kind = columns.field(column).type
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return TimeDomain(kind)
    if pa.types.is_floating(kind):
        hint = "cast it to int64; pandas turns integers into floats where values are missing, its type Int64 does not"
    elif pa.types.is_string(kind):
        hint = "parse it into timestamps first"
    else:
        hint = "cast the column, or name another time column"
    raise InputError(
        f"time column {column!r} of stream {name} must be an integer or a timestamp, not {kind}", hint=hint
    )
