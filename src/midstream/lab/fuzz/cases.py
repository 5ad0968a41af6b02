"""A case: streams and a query over them, which prints itself as a program that runs it again."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midstream.lab.fuzz.choices import Choices
from midstream.lab.fuzz.constructs import EVERYTHING
from midstream.lab.fuzz.queries import Writer
from midstream.lab.fuzz.sources import Leaf
from midstream.lab.fuzz.streams import BASE, LAST_TIME, MOST_ROWS, draw_streams, draw_table


@dataclass(frozen=True, repr=False)
class Case:
    """A query with its inputs. `sql` asks a database the same of the contents of the windows (`leaves`)."""

    query: str
    inputs: dict[str, pa.Table]
    sql: str | None
    leaves: tuple[Leaf, ...]
    time: str = "ts"

    def moment(self, at: int) -> int | dt.datetime:
        """A drawn time as the streams have it."""
        if self._is_integer:
            return at
        zone = next(iter(self.inputs.values())).schema.field(self.time).type.tz
        return (BASE + dt.timedelta(seconds=at)).replace(tzinfo=None if zone is None else dt.UTC)

    def duration(self, amount: int) -> int | str:
        """A drawn duration as the streams have it."""
        return amount if self._is_integer else f"{amount} seconds"

    @property
    def _is_integer(self) -> bool:
        return bool(pa.types.is_integer(next(iter(self.inputs.values())).schema.field(self.time).type))

    def replay(self) -> str:
        """A program that asks the oracle this case's question."""
        inputs = "".join(f'    "{name}": {_table_text(table)},\n' for name, table in self.inputs.items())
        return (
            "import datetime\nfrom decimal import Decimal\n\nimport pyarrow as pa\n\nimport midstream as ms\n\n"
            f'inputs = {{\n{inputs}}}\nquery = """{self.query}"""\n'
            f'print(ms.reference(query, inputs, time="{self.time}").to_pandas())\n'
        )

    def __repr__(self) -> str:
        return f"\n{self.replay()}"


def draw_case(
    choices: Choices,
    constructs: frozenset[str] = EVERYTHING,
    *,
    most_rows: int = MOST_ROWS,
    last_time: int = LAST_TIME,
    most_joined: int = 4,
    arbitrary_floats: bool = False,
) -> Case:
    """Streams and a query that uses no constructs but the given ones; see `constructs` for useful sets."""
    streams = draw_streams(choices, constructs)
    query = Writer(choices, streams, constructs, most_joined).query()
    inputs = {s.name: draw_table(choices, s, most_rows, last_time, arbitrary_floats) for s in streams}
    return Case(query.cql, inputs, query.sql, query.leaves)


def random_case(seed: int, constructs: frozenset[str] = EVERYTHING, **limits: Any) -> Case:
    """The case of a seed; takes what `draw_case` takes."""
    return draw_case(Choices.of_seed(seed), constructs, **limits)


def _table_text(table: pa.Table) -> str:
    columns = ", ".join(f'"{name}": {_array_text(table.column(name))}' for name in table.column_names)
    return f"pa.table({{{columns}}})"


def _array_text(column: pa.ChunkedArray) -> str:
    if pa.types.is_timestamp(column.type):
        return f"pa.array({column.cast(pa.int64()).to_pylist()}).cast({_type_text(column.type)})"
    return f"pa.array({column.to_pylist()}, {_type_text(column.type)})"


def _type_text(data_type: Any) -> str:
    if pa.types.is_timestamp(data_type):
        return f"pa.timestamp({data_type.unit!r}, {data_type.tz!r})"
    if pa.types.is_decimal(data_type):
        return f"pa.decimal128({data_type.precision}, {data_type.scale})"
    return {"bool": "pa.bool_()", "double": "pa.float64()", "date32[day]": "pa.date32()"}.get(
        str(data_type), f"pa.{data_type}()"
    )
