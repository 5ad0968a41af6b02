"""What a migration of a job costs, kept from batch to batch in manifests, so that a restart goes on counting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.names import lane_name
from midstream.job.task.lanes import COMING, LEAVING, STAYING, TARGET
from midstream.job.task.reports import FragmentReport


@dataclass(frozen=True, slots=True)
class Account:
    """Application times are ticks, wall times seconds; `heard` is when results last left."""

    started_at: int
    ended_at: int
    heard_at: int
    started: float
    ended: float
    heard: float
    batches: int = 0
    processed_twice: int = 0
    peak_extra_rows: int = 0
    longest_silence: int = 0
    longest_silence_seconds: float = 0.0

    @staticmethod
    def opened(frontier: int, now: float) -> Account:
        """The account of a migration that begins."""
        return Account(frontier, frontier, frontier, now, now, now)

    def after(self, frontier: int, now: float, heard: bool, twice: int, extra: int) -> Account:
        """The account after one more batch; `heard` says that results left with it."""
        at = frontier if BEGINNING < frontier < INFINITY else self.ended_at
        started_at = at if self.started_at == BEGINNING else self.started_at
        heard_at = at if self.heard_at == BEGINNING else self.heard_at
        return replace(
            self,
            started_at=started_at,
            ended_at=at,
            heard_at=at if heard else heard_at,
            ended=now,
            heard=now if heard else self.heard,
            batches=self.batches + 1,
            processed_twice=self.processed_twice + twice,
            peak_extra_rows=max(self.peak_extra_rows, extra),
            longest_silence=max(self.longest_silence, at - heard_at),
            longest_silence_seconds=max(self.longest_silence_seconds, now - self.heard),
        )

    def to_json(self) -> dict[str, Any]:
        """What a manifest says."""
        return asdict(self)

    def record(self, decision: Mapping[str, Any], strategy: str) -> dict[str, Any]:
        """What a history says, as that of an embedded query does."""
        split_after = decision.get("split_after")
        predictions = (p for p in decision.get("predictions", ()) if p["strategy"] == strategy)
        return {
            "split_after": split_after,
            "split_time": None if split_after is None else split_after + 0.5,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "duration": max(0, self.ended_at - self.started_at),
            "wall_seconds": round(self.ended - self.started, 3),
            "batches": self.batches,
            "processed_twice": self.processed_twice,
            "peak_extra_rows": self.peak_extra_rows,
            "longest_silence": self.longest_silence,
            "longest_silence_seconds": round(self.longest_silence_seconds, 3),
            "predicted": next(predictions, None),
        }


def extra(parts: Mapping[tuple[str, int], list[FragmentReport]], query: str) -> tuple[int, int]:
    """The rows processed twice, and the rows held for a migration's sake: by both plans at once, in one box or two."""
    record = [report for reports in parts.values() for report in reports]
    target = {lane_name(query, TARGET + part) for part in (STAYING, LEAVING, COMING)}
    beside = [report for (lane, _), reports in parts.items() if lane in target for report in reports]
    held = sum(report.extra_rows for report in record) + sum(report.state_rows for report in beside)
    return sum(report.processed_twice for report in record) + sum(report.rows_in for report in beside), held
