"""How sequences know the rows of a stream that is followed by itself: columns that nobody else sees.

A tuple happens at one row of one stream: a pair at the row of its later part. Where the same stream may be on both
sides of a sequence, each side brings along all columns of that row, so that the operator can tell it from every other.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra.expressions import Column, Expression, Literal, Named
from midstream.algebra.physical import RowColumns
from midstream.algebra.plan import Relation, Sequence, Stream


@dataclass(frozen=True, slots=True)
class RowReader:
    """What one side of a sequence must bring along: the rows of some streams, by whichever alias they are read."""

    depth: int
    columns: RowColumns
    streams: tuple[Stream, ...]
    readers: tuple[str, ...]

    def values(self, stream: Stream) -> list[Named]:
        """The columns that say which row of a stream a tuple is, as they follow from that stream."""
        names = [s.name for s in self.streams]
        number = names.index(stream.name) if stream.name in names else None
        found: list[Expression] = [
            Literal(self.readers.index(stream.alias), pa.int64()),
            Literal(number, pa.int64()),
        ]
        for known in self.streams:
            for field in known.columns:
                own = known.name == stream.name
                found.append(Column(f"{stream.alias}.{field.name}", field.type) if own else Literal(None, field.type))
        found.append(Literal(None, pa.int64()))
        return [Named(name, value) for name, value in zip(self.columns.names, found, strict=True)]


def row_readers(plan: Sequence, above: tuple[RowReader, ...]) -> tuple[RowReader, RowReader] | None:
    """What the two sides of a sequence must bring along, if they may meet at one row; those above have other names."""
    left, right = _last_streams(plan.first), _last_streams(plan.second)
    both = {s.name for s in left} & {s.name for s in right}
    if not both:
        return None
    shared = tuple({s.name: s for s in left if s.name in both}.values())
    depth = max((reader.depth + 1 for reader in above), default=0)
    width = sum(len(s.columns) for s in shared)
    first, second = (
        RowReader(depth, RowColumns(f"#{depth} {side}", width), shared, tuple(s.alias for s in streams))
        for side, streams in (("first", left), ("second", right))
    )
    return first, second


def _last_streams(plan: Relation) -> list[Stream]:
    """The streams at whose rows the tuples of a relation without windows happen."""
    match plan:
        case Stream():
            return [plan]
        case Sequence():
            return _last_streams(plan.first if plan.waits else plan.second)
    return [stream for child in plan.inputs for stream in _last_streams(child)]
