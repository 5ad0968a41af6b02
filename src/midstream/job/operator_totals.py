"""What the operators of a query did in all slots since the last time that somebody asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.algebra.statistics import OperatorStatistics
from midstream.checkpoint.names import query_of
from midstream.codec import read, written
from midstream.job.task.reports import OperatorReport, Report
from midstream.operators.base import Work

Place = tuple[int, int]
"""An operator: the number of its fragment, and its own."""


@dataclass(slots=True)
class OperatorTotals:
    """What each operator did and keeps; `since` is the application time from which on it is counted."""

    by_place: dict[Place, OperatorReport] = field(default_factory=dict)
    since: int = 0
    linked: float = 0.0
    """The seconds that rows took on links."""

    def forget(self, now: int) -> None:
        """Begins with other operators."""
        self.by_place.clear()
        self.since, self.linked = now, 0.0

    def restart(self, now: int) -> None:
        """Counts anew what operators do; what they keep is still known."""
        self.by_place = {
            place: OperatorReport(o.label, Work(), 0.0, 0.0, 0.0, 0.0, o.state_rows, o.state_bytes)
            for place, o in self.by_place.items()
        }
        self.since, self.linked = now, 0.0

    def add(self, query: str, reports: Iterable[Report], share: float = 1.0) -> None:
        """Adds what slots report of a query's operators; of those in later stages only a share."""
        held: dict[Place, OperatorReport] = {}
        for report in reports:
            for (name, fragment), part in report.fragments.items():
                if query_of(name) != query:
                    continue
                for number, operator in enumerate(part.operators):
                    did = operator if report.stage == 0 or share == 1.0 else operator.part(share)
                    held.setdefault((fragment, number), OperatorReport(operator.label)).add(did)
        for place, seen in held.items():
            before = self.by_place.get(place)
            if before is not None:
                seen.add(replace(before, state_rows=0, state_bytes=0))
            self.by_place[place] = seen

    def statistics(self, now: int) -> tuple[OperatorStatistics, ...]:
        """What they did per tick, in the order of fragments."""
        ticks = max(1, now - self.since)
        return tuple(per_tick(report, ticks) for _, report in sorted(self.by_place.items()))

    def linked_per_tick(self, now: int) -> float:
        """The seconds that rows took on links, per tick."""
        return self.linked / max(1, now - self.since)

    def to_json(self) -> dict[str, Any]:
        """What a manifest keeps of it."""
        kept = [[*place, written(report)] for place, report in self.by_place.items()]
        return {"operators": kept, "operators_since": self.since, "linked": self.linked}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Knows what a manifest has kept."""
        self.since, self.linked = kept["operators_since"], kept["linked"]
        self.by_place = {(place, number): read(OperatorReport, own) for place, number, own in kept["operators"]}


def per_tick(report: OperatorReport, ticks: int) -> OperatorStatistics:
    """What an operator did per tick, in so many."""
    work = report.work
    return OperatorStatistics(
        report.label,
        work.taken / ticks,
        work.given / ticks,
        work.probed / ticks,
        work.inserted / ticks,
        work.matched / ticks,
        report.seconds / report.rows if report.rows else None,
        report.purging / report.purges if report.purges else None,
        report.state_rows,
        report.state_bytes,
    )
