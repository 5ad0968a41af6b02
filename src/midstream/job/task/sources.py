"""Sources of plans: their rows as elements, and how far they have come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from midstream.algebra.physical import Source
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.operators.elements import Elements, Ticks, select_columns
from midstream.operators.hops import boundary_after
from midstream.operators.stateless import windowed


def source_elements(source: Source, rows: pa.RecordBatch, ticks: Ticks) -> Elements:
    """Rows of a stream as the windowed elements of a source."""
    names = source.stream.columns.names
    places = [names.index(name.removeprefix(f"{source.stream.alias}.")) for name in source.schema.names]
    return windowed(Elements(select_columns(rows, places, source.schema), ticks, ticks + 1), source.window)


def reached(sources: Iterable[Source], registers: Mapping[str, int]) -> int:
    """The least instant at which something may still start, over all sources.

    A tuple at or after a register starts to count at the next boundary of its hop, if it has one.
    """
    least = INFINITY
    for source in sources:
        register = registers.get(source.stream.name, BEGINNING)
        if isinstance(source.window, Hop) and BEGINNING < register < INFINITY:
            register = int(boundary_after(register, source.window))
        least = min(least, register)
    return least
