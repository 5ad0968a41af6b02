"""How the rows of a batch arrive: which streams, in which columns, by which routes, from which files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.file_entries import FilesRead
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.fragments import STAY, Route
from midstream.job.task.layout import Layout
from midstream.job.task.reach import Reach, Span, believed, merged, reach_of
from midstream.job.task.reports import Report


@dataclass(slots=True)
class Reaches:
    """How far ahead each stream is believed in a batch, and the streams that are doubted."""

    by_stream: dict[str, Reach] = field(default_factory=dict)
    doubted: frozenset[str] = frozenset()

    @staticmethod
    def of(streams: Iterable[StreamDeclaration], before: Manifest | None, clock: int | None) -> Reaches:
        """What is known before the batch; `clock` is in microseconds since 1970."""
        latest = {} if before is None else before.streams.latest
        doubted = () if before is None else before.streams.doubted
        reaches = {d.name: reach_of(d, latest.get(d.name, BEGINNING), clock) for d in streams}
        return Reaches(reaches, frozenset(doubted))

    def widened(self, reports: Sequence[Report]) -> bool:
        """Decides by what all slots report up to when rows are believed; true if that is more than before."""
        more = False
        for name, reach in self.by_stream.items():
            rows = sum(report.streams.rows.get(name, 0) for report in reports)
            if not reach.step or not rows:
                continue
            beyond = merged((span for report in reports for span in report.streams.beyond.get(name, ())), reach.step)
            within = rows - sum(report.streams.unusable.get(name, 0) for report in reports)
            latest = max(
                [reach.latest, *(report.streams.latest[name] for report in reports if name in report.streams.latest)]
            )
            until, doubted = believed(reach, latest, within, beyond, name in self.doubted)
            self.doubted = self.doubted | {name} if doubted else self.doubted - {name}
            if _includes(until, beyond):
                self.by_stream[name] = replace(reach, until=until)
                more = True
        return more


def _includes(until: int, beyond: Sequence[Span]) -> bool:
    return any(first <= until for first, _, _ in beyond)


@dataclass(frozen=True, slots=True)
class Incoming:
    """The streams of a batch by port, laid out as `layout`; a stream that `routes` does not name may arrive anywhere.

    `read` are the columns of each stream that queries read; rows may arrive with more. `reaches` says up to which times
    rows are believed. `files` are those of folders that are streams. A batch without
    rows works with `registers` instead of the last manifest's, and leaves them as they are.
    """

    streams: Mapping[int, StreamDeclaration]
    layout: Layout
    files: FilesRead | None = None
    registers: Mapping[str, int] | None = None
    routes: Mapping[str, Route] = field(default_factory=dict)
    reaches: Reaches = field(default_factory=Reaches)
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def has_rows(self) -> bool:
        """Whether rows come; a batch of the job's own has none."""
        return self.registers is None

    @property
    def keys(self) -> dict[int, tuple[str, ...]]:
        """The columns by which rows of each port arrive, where they do by a key."""
        return {port: key for port, s in self.streams.items() if (key := self.routes.get(s.name, STAY).key)}

    def hashable(self, stream: str) -> tuple[pa.Field, ...]:
        """The columns of a stream as they travel, without those that cannot be hashed."""
        port = next(port for port, declaration in self.streams.items() if declaration.name == stream)
        columns = zip(self.layout.schemas[port], self.layout.places[port], strict=True)
        return tuple(self.layout.columns[place] for f, place in columns if not pa.types.is_nested(f.type))
