"""What a trial found: how a job did without and with a change, beside what was forecast, and where results differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.adaptation.cost_corrections import Factors, HandledRows
from midstream.algebra.snapshots import SnapshotComparison, snapshot_equal
from midstream.optimizer.cost import Constants

Texts = Mapping[str, str]
"""Texts, or plans, by the names of queries."""


@dataclass(frozen=True, slots=True)
class TrialFigures:
    """How a job did: the median seconds of its batches by part, and of each query what it did, gave and keeps.

    `handled` is what its operators did with how many rows, and how long each took.
    """

    plans: Mapping[str, str]
    slots: int
    seconds: Mapping[str, float]
    queries: Mapping[str, Mapping[str, float]]
    results: Mapping[str, pa.Table] = field(repr=False)
    handled: Sequence[HandledRows] = field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        queries = {name: {"plan": self.plans[name], **figures} for name, figures in self.queries.items()}
        return {"slots": self.slots, "seconds": dict(self.seconds), "queries": queries}


@dataclass(frozen=True, slots=True)
class TrialForecast:
    """What was forecast of a plan by the job's cost model: its cost and the rows looked up or stored, per tick.

    `seconds` are what its operators were expected to take in a batch, `state_rows` what they keep.
    """

    cost: float
    work: float
    seconds: float
    state_rows: float


@dataclass(frozen=True, slots=True)
class Trial:
    """What a change did to recent batches: how the job did without and with it, and where their results differ.

    `forecasts` are by query, before and after; `ticks` is the stream time that the timed batches span, `since` the
    first instant of them: results are compared from then on, on the columns that both have. `factors` are by what the
    job's cost constants would have to be multiplied to say what operators took, if enough was seen to tell.
    `short_windows` says, by query, which windows reach further back than rows are kept: on both sides they lack some.
    """

    batches: int
    rows: Mapping[str, int]
    since: int
    ticks: int
    before: TrialFigures
    after: TrialFigures
    forecasts: Mapping[str, tuple[TrialForecast | None, TrialForecast]]
    constants: Constants
    factors: Factors | None
    on: str = "local"
    short_windows: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def differences(self) -> dict[str, SnapshotComparison]:
        """Where the results of queries differ that are on both sides."""
        old, new = self.before.results, self.after.results
        return {name: _difference(old[name], new[name], self.since) for name in old if name in new}

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "on": self.on,
            "batches": self.batches,
            "rows": dict(self.rows),
            "since": self.since,
            "ticks": self.ticks,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "forecast": {
                name: {"before": None if old is None else asdict(old), "after": asdict(new)}
                for name, (old, new) in self.forecasts.items()
            },
            "constants": {
                name: {"used": getattr(self.constants, name), "measured": getattr(self.constants, name) * factor}
                for name, factor in (self.factors or {}).items()
            },
            "factors": None if self.factors is None else dict(self.factors),
            "short_windows": {name: list(texts) for name, texts in self.short_windows.items()},
            "differences": {
                name: {
                    "equal": bool(found),
                    "reason": found.reason,
                    "instant": found.instant,
                    "only_before": list(found.only_in_x),
                    "only_after": list(found.only_in_y),
                }
                for name, found in self.differences.items()
            },
        }


def _difference(x: pa.Table, y: pa.Table, since: int) -> SnapshotComparison:
    common = [column for column in x.column_names if column in y.column_names]
    x, y = (_since(table.select(common), since) for table in (x, y))
    return snapshot_equal(x, y)


def _since(table: pa.Table, since: int) -> pa.Table:
    """What is valid from an instant on."""
    first = "ts" if "valid_from" not in table.column_names else "valid_from"
    start = pa.scalar(since, pa.int64()).cast(table.schema.field(first).type)
    if first == "ts":
        return table.filter(pc.greater_equal(table[first], start))
    later = table.filter(pc.or_kleene(pc.is_null(table["valid_to"]), pc.greater(table["valid_to"], start)))
    starts = pc.if_else(pc.less(later["valid_from"], start), start, later["valid_from"])
    return later.set_column(later.schema.get_field_index("valid_from"), "valid_from", starts)
