"""The reaches of all streams in a batch: known from the last manifest, and widened once by what the slots report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
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
