"""A case: streams and a query over them, which prints itself as a program that runs it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.generators.choices import Choices
from tests.generators.constructs import EVERYTHING
from tests.generators.queries import Writer
from tests.generators.sources import Leaf
from tests.generators.streams import LAST_TIME, MOST_ROWS, draw_streams, draw_table


@dataclass(frozen=True, repr=False)
class Case:
    """A query with its inputs. `sql` asks a database the same of the contents of the windows (`leaves`)."""

    query: str
    inputs: dict[str, pa.Table]
    sql: str | None
    leaves: tuple[Leaf, ...]
    time: str = "ts"

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


def cases(constructs: frozenset[str] = EVERYTHING, **limits: Any) -> st.SearchStrategy[Case]:
    """Cases for hypothesis, which shrinks them; takes what `draw_case` takes."""

    @st.composite
    def strategy(draw: st.DrawFn) -> Case:
        return draw_case(Choices.of_hypothesis(draw), constructs, **limits)

    return strategy()


def random_case(seed: int, constructs: frozenset[str] = EVERYTHING, **limits: Any) -> Case:
    """The case of a seed: many times faster than hypothesis, for long runs; takes what `draw_case` takes."""
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
