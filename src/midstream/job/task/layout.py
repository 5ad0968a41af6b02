"""How rows of many schemas travel in one table: streams and fragments share columns of equal type.

A row knows its port, which says what it is a row of; its payload lies in the first columns of the right types. So a
union is as wide as its widest member, not as the sum of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.operators.carriers import carried, carrier, restored
from midstream.operators.elements import concatenate_batches, rows_without_columns
from midstream.operators.vectors import gather_rows

PORT, SLOT, GROUP, FROM, TO, NOTE = "#port", "#slot", "#group", "#from", "#to", "#note"

NOTE_PORT = -1
"""The port of a row that carries a report instead of payload."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which shared columns hold the columns of each port."""

    schemas: Mapping[int, pa.Schema]
    places: Mapping[int, tuple[int, ...]]
    columns: tuple[pa.Field, ...]

    @staticmethod
    def of(schemas: Mapping[int, pa.Schema]) -> Layout:
        """The narrowest layout for some schemas."""
        most: Counter[pa.DataType] = Counter()
        for schema in schemas.values():
            most |= Counter(carrier(f.type) for f in schema)
        columns = [pa.field(f"c{i}_{n}", kind) for i, kind in enumerate(most) for n in range(most[kind])]
        places = {port: _places(schema, columns) for port, schema in schemas.items()}
        return Layout(dict(schemas), places, tuple(columns))

    @property
    def row_bytes(self) -> int:
        """About how many bytes a row takes; texts and other values without a fixed width count as some."""
        return sum(_width(column.type) for column in self.columns) + 8

    def split(self, tables: Iterable[pa.RecordBatch]) -> dict[int, pa.RecordBatch]:
        """The rows of each port that has some, with all columns of the layout."""
        found: dict[int, list[pa.RecordBatch]] = {}
        for table in tables:
            for port, rows in self._split(table).items():
                found.setdefault(port, []).append(rows)
        return {port: concatenate_batches(parts) for port, parts in found.items()}

    def _split(self, table: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
        ports = table.column(PORT).to_numpy()
        if len(ports) == 0:
            return {}
        lowest = int(ports.min())
        counts = np.bincount(ports - lowest)  # far less than sorting them all
        if len(counts) == 1:
            return {lowest: table}
        present = (lowest + np.flatnonzero(counts)).tolist()
        return {port: gather_rows(table, np.flatnonzero(ports == port)) for port in present}

    def payload(self, port: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A port's rows in their own schema."""
        schema = self.schemas[port]
        if not len(schema):
            return rows_without_columns(rows.num_rows)
        names = [self.columns[i].name for i in self.places[port]]
        arrays = [restored(rows.column(name), f.type) for name, f in zip(names, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def wide(self, port: int, columns: Sequence[pa.Array], length: int) -> list[pa.Array]:
        """A port's columns among the shared ones."""
        arrays: list[pa.Array | None] = [None] * len(self.columns)
        for place, column in zip(self.places[port], columns, strict=True):
            arrays[place] = carried(column, self.columns[place].type)
        return [pa.nulls(length, f.type) if a is None else a for a, f in zip(arrays, self.columns, strict=True)]


def _width(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 64


def _places(schema: pa.Schema, columns: Sequence[pa.Field]) -> tuple[int, ...]:
    left = list(range(len(columns)))
    found = []
    for field in schema:
        kind = carrier(field.type)
        place = next(i for i in left if columns[i].type == kind)
        left.remove(place)
        found.append(place)
    return tuple(found)


MOST_TEXT = 2**31 - 1
"""How many bytes of text a column of one batch can hold: Arrow numbers them by 32 bits."""


def portions(
    batches: Iterable[pa.RecordBatch], most: int, most_text: int = MOST_TEXT
) -> Iterator[tuple[list[pa.RecordBatch], bool]]:
    """All rows, in portions of about so many bytes, each with whether there may be more; the last one may be empty.

    No column of a portion is larger than one batch can hold.
    """
    held: list[pa.RecordBatch] = []
    sizes: npt.NDArray[np.int64] | int = 0
    for batch in batches:
        more = np.array([column.nbytes for column in batch.columns], np.int64)
        if held and int((sizes + more).max(initial=0)) > most_text:
            yield held, True
            held, sizes = [], 0
        held.append(batch)
        sizes = sizes + more
        if int(sizes.sum()) > most:
            yield held, True
            held, sizes = [], 0
    yield held, False
