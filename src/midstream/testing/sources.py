"""One law for any source: the rows between two positions never change, and together they are all rows.

Rows are written while others are read, in portions of any size, each by a new source, as after a restart. Whoever keeps
the last positions then has each row once; whoever reads between two positions again has the same rows again.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

import pyarrow as pa

from midstream.connectors.connected import Connected, Span
from midstream.connectors.files.bad_rows import BAD
from midstream.connectors.source import Position, Source

Write = Callable[[int], Iterable[Mapping[str, Any]]]
"""Adds so many rows to what a source reads, and gives the rows that it has to have for them."""


def check_source(make_source: Callable[[], Source], write: Write, *, rounds: int = 8, seed: int = 0) -> None:
    """Fails unless a source gives each row once, and the same rows for the same positions.

    `make_source()` makes a new source; `write(count)` adds rows to what it reads, and gives them as dictionaries, with
    at least some of their columns. Before the first call there must be no rows.
    """
    __tracebackhide__ = True
    random, written, found = Random(seed), list[Mapping[str, Any]](), list[tuple[Span, pa.Table]]()
    positions: dict[str, Position] = {}
    for number in range(rounds):
        written += write(random.choice((0, 1, 7, 40)))
        source = _opened(make_source)
        positions = _kept({**source.source.partitions(), **positions})
        source.source.require(positions)
        spans = source.waiting(positions)
        taken = spans if number == rounds - 1 else source.divided(spans)[0]
        for span in taken:
            _require(_not_before(span.end, span.start), f"the end {span.end} comes before the start {span.start}")
            rows = source.rows(span)
            lag = source.source.lag(span.partition, span.start)
            _require(lag is None or lag >= rows.num_rows, f"{lag} rows are said to wait, and {rows.num_rows} are read")
            found.append((span, rows))
            positions[span.partition] = span.end
        _read_again(make_source, [one for one in found[-3:] if one[0] in taken], random)
        if random.random() < 0.5:
            source.source.commit(_kept(positions))
        source.source.close()
    _compare(written, [rows for _, rows in found])
    _require(not _opened(make_source).waiting(positions), "rows wait though all were read")


def _opened(make_source: Callable[[], Source]) -> Connected:
    """A new source, as a task has it that it was sent to: one that cannot be copied cannot be sent."""
    return Connected("s", copy.deepcopy(make_source()), limit=20)


def _kept(positions: Mapping[str, Position]) -> dict[str, Position]:
    """Positions as a manifest has them."""
    kept: dict[str, Position] = json.loads(json.dumps(positions))
    _require(kept == positions, f"positions are not the same after they were kept as JSON: {positions}")
    return kept


def _read_again(make_source: Callable[[], Source], read: Iterable[tuple[Span, pa.Table]], random: Random) -> None:
    """The same positions give the same rows, also in two parts."""
    for span, rows in read:
        again = _opened(make_source)
        _require(again.rows(span).equals(rows), f"other rows for the same positions: {span}")
        middle = again.end(span.partition, span.start, random.randrange(1, 20))
        if _not_before(span.end, middle):
            parts = [Span(span.partition, span.start, middle), Span(span.partition, middle, span.end)]
            both = pa.concat_tables([again.rows(part) for part in parts])
            _require(both.equals(rows), f"two parts have other rows than the whole: {span}, divided at {middle}")
        again.source.close()


def _not_before(later: Position, earlier: Position) -> bool:
    return later >= earlier  # type: ignore[operator]


def _compare(written: list[Mapping[str, Any]], found: list[pa.Table]) -> None:
    rows = [row for table in found for row in table.to_pylist()]
    bad = [row[BAD] for row in rows if row[BAD] is not None]
    _require(not bad, f"rows could not be read: {bad[:3]}")
    names = written[0].keys() if written else ()
    wanted = Counter(tuple((name, row[name]) for name in names) for row in written)
    given = Counter(tuple((name, row[name]) for name in names) for row in rows)
    _require(
        wanted == given,
        f"{(wanted - given).total()} of {wanted.total()} rows are missing, {(given - wanted).total()} come too often: "
        f"{[*(wanted - given), *(given - wanted)][:3]}",
    )


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
