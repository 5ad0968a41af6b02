"""Random streams: schemas and tables with everything that streams do to a system.

Rows come in any order, repeat, share timestamps, arrive in bursts with gaps between; keys and payload have nulls; a
stream may be empty. Every stream has a time column `ts`, a key `k` and a number `v`, and some more columns.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from midstream.lab.fuzz.choices import Choices

MOST_ROWS = 12
LAST_TIME = 40
BASE = dt.datetime(2024, 1, 1)
MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True)
class TimeSpec:
    """What a time column holds: whole numbers, or seconds after 2024-01-01 in some unit and zone."""

    type: pa.DataType

    @property
    def is_integer(self) -> bool:
        return bool(pa.types.is_integer(self.type))

    @property
    def second(self) -> int:
        """The ticks from one drawn time to the next."""
        return 1 if self.is_integer else 1_000_000

    def tick(self, time: int) -> int:
        """A drawn time in ticks."""
        return time if self.is_integer else int((BASE - dt.datetime(1970, 1, 1)).total_seconds() + time) * 1_000_000

    def column(self, times: list[int | None]) -> pa.Array:
        """Drawn times as an Arrow column."""
        if self.is_integer:
            return pa.array(times, self.type)
        ticks = [None if time is None else self.tick(time) for time in times]
        return pa.array(ticks, pa.timestamp("us", self.type.tz)).cast(self.type)

    def duration(self, amount: int) -> str:
        """A duration as CQL writes it."""
        return str(amount) if self.is_integer else f"{amount} SECONDS"


@dataclass(frozen=True)
class ColumnSpec:
    """A column's name, its Arrow type, and the kind of value it has for the language."""

    name: str
    type: pa.DataType
    kind: str


@dataclass(frozen=True)
class StreamSpec:
    """A stream's name, time and columns after the time column."""

    name: str
    time: TimeSpec
    columns: tuple[ColumnSpec, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("ts", self.time.type), *((c.name, c.type) for c in self.columns)])


KEY = ColumnSpec("k", pa.int64(), "integer")
NUMBER = ColumnSpec("v", pa.int64(), "integer")
OPTIONAL_COLUMNS = (
    ColumnSpec("n", pa.int32(), "integer"),
    ColumnSpec("f", pa.float64(), "double"),
    ColumnSpec("s", pa.string(), "string"),
    ColumnSpec("b", pa.bool_(), "boolean"),
    ColumnSpec("d", pa.date32(), "date"),
    ColumnSpec("m", pa.decimal128(10, 2), "decimal"),
    ColumnSpec("u", pa.timestamp("us"), "timestamp"),
)

TIME_TYPES = {
    "integer_time": (pa.int64(), pa.int32()),
    "timestamp_time": (pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("s")),
    "zoned_time": (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")),
}

DAY = dt.timedelta(days=1)


def value(random: Random, kind: str, arbitrary_floats: bool = False) -> Any:
    """A value of a kind, from a small range so that values meet."""
    match kind:
        case "integer":
            return random.randint(-3, 6)
        case "double" if arbitrary_floats and random.random() < 0.5:
            return random.uniform(-1e6, 1e6)
        case "double":
            # Quarters: their sums and products are exact, so that the order of adding does not matter.
            return random.randint(-12, 24) / 4
        case "string":
            return random.choice(["", "a", "b", "ab", "Ab ", "%_", "zoë", "a,b"])
        case "boolean":
            return random.random() < 0.5
        case "date":
            return dt.date(2023, 12, 30) + random.randint(0, 63) * DAY
        case "decimal":
            return Decimal(random.randint(-300, 600)).scaleb(-2)
        case "timestamp":
            return dt.datetime(2024, 2, 28) + random.random() * 4 * DAY
    raise ValueError(kind)


def draw_streams(choices: Choices, constructs: frozenset[str], names: str = "ABC") -> tuple[StreamSpec, ...]:
    """Some streams whose times agree: all numbers, all timestamps without a zone, or all with one."""
    sort = choices.choose([s for s in TIME_TYPES if s in constructs])
    count = choices.integer(1, len(names))
    return tuple(draw_stream(choices, name, TimeSpec(choices.choose(TIME_TYPES[sort]))) for name in names[:count])


def draw_stream(choices: Choices, name: str, time: TimeSpec) -> StreamSpec:
    """A stream with `k`, `v` and some of the optional columns."""
    extra = choices.some(OPTIONAL_COLUMNS, 0, 3)
    return StreamSpec(name, time, (KEY, NUMBER, *sorted(extra, key=lambda c: c.name)))


def draw_table(
    choices: Choices,
    stream: StreamSpec,
    most_rows: int = MOST_ROWS,
    last_time: int = LAST_TIME,
    arbitrary_floats: bool = False,
) -> pa.Table:
    """The rows of a stream, in any order."""
    # One decision for each row's time and one for all its cells: deciding cell by cell costs more than what is tested.
    few = choices.chance(4)
    count = 0 if few and choices.chance(3) else choices.integer(1 if few else most_rows // 2, most_rows)
    rows: list[Any] = []
    for _ in range(count):
        rows.append((choices.integer(0, last_time), *_cells(choices.random(), stream, arbitrary_floats)))
    if rows and choices.flag():
        rows = _disturbed(rows, choices.random(), most_rows)
    columns = [pa.array([row[i + 1] for row in rows], c.type) for i, c in enumerate(stream.columns)]
    return pa.Table.from_arrays([stream.time.column([row[0] for row in rows]), *columns], schema=stream.schema)


def _cells(random: Random, stream: StreamSpec, arbitrary_floats: bool) -> list[Any]:
    cells = []
    for column in stream.columns:
        null = random.random() < 0.1
        cell = random.randint(0, 2) if column.name == "k" else value(random, column.kind, arbitrary_floats)
        cells.append(None if null else cell)
    return cells


def _disturbed(rows: list[Any], random: Random, most_rows: int) -> list[Any]:
    """Bursts, ties, duplicates, and now and then a row without a time."""
    grid = random.choice([1, 2, 5, 10])
    crowded = [(random.choice(rows)[0] if random.random() < 0.3 else row[0], *row[1:]) for row in rows]
    crowded = [(row[0] // grid * grid, *row[1:]) for row in crowded]
    crowded += [random.choice(crowded) for _ in range(random.randint(0, 2))]
    if random.random() < 0.2:
        crowded[0] = (None, *crowded[0][1:])
    return crowded[:most_rows]
