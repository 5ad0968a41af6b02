"""Forecasts of migrations, corrected by what earlier ones took.

A cost model is about right in proportions and may be far off in size, because it guesses how many rows match. What a
job's migrations took is in its history beside what the model said, so the next forecast of the same strategy is
multiplied by the mean ratio of the two (the geometric mean: half and double cancel).

How far a forecast may be off is a factor, `MODEL_OFF_BY` where nothing was measured. Else it is the spread of the
ratios around their mean, with one more that is off by the model's factor: one migration does not make the next certain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MEASURED_AS = {"duration": "duration", "work": "processed_twice", "rows": "peak_extra_rows"}
"""Under which name a history has what a model says of a migration."""


MODEL_OFF_BY = 10.0
"""By which factor a figure may be more or less that only a model says."""


@dataclass(frozen=True, slots=True)
class Correction:
    """By what the model's figures of a strategy are multiplied, and how many migrations that was measured from.

    `off_by` are the factors by which the figures may be more or less then.
    """

    duration: float = 1.0
    work: float = 1.0
    rows: float = 1.0
    migrations: int = 0
    off_by: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(MEASURED_AS, MODEL_OFF_BY))


UNMEASURED = Correction()


def corrections(history: Iterable[Mapping[str, Any]]) -> dict[str, Correction]:
    """The corrections by strategy that follow from migrations of a job that have ended.

    >>> past = {"strategy": "genmig", "status": "done", "duration": 99, "processed_twice": 9, "peak_extra_rows": 7}
    >>> model = {"duration": 999.0, "work": 99.0, "rows": 7.0}
    >>> found = corrections([{**past, "predicted": {"modelled": model}}])["genmig"]
    >>> round(found.duration, 6), round(found.work, 6), found.rows, found.migrations, round(found.off_by["work"], 2)
    (0.1, 0.1, 1.0, 1, 5.09)
    """
    ratios: dict[str, list[dict[str, float]]] = {}
    for record in history:
        modelled = (record.get("predicted") or {}).get("modelled")
        if modelled is not None and record.get("status") == "done":
            found = {name: (record[known] + 1) / (modelled[name] + 1) for name, known in MEASURED_AS.items()}
            ratios.setdefault(record["strategy"], []).append(found)
    return {
        strategy: Correction(
            **{name: _mean([each[name] for each in found]) for name in MEASURED_AS},
            migrations=len(found),
            off_by={name: _spread([each[name] for each in found]) for name in MEASURED_AS},
        )
        for strategy, found in ratios.items()
    }


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _spread(ratios: list[float]) -> float:
    """The factor by which ratios are off their mean, and one more as a model is."""
    mean = math.log(_mean(ratios))
    off = [math.log(MODEL_OFF_BY), *(math.log(ratio) - mean for ratio in ratios)]
    return math.exp(math.sqrt(sum(each**2 for each in off) / len(off)))


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a strategy is expected to take beside what the running plan takes anyway.

    `duration` is in ticks until the new plan is alone, `work` in rows handled, `rows` the most that is held, `silence`
    in ticks without a result; less than a batch is none, because results leave by the batch. `delayed` is what the old
    plan handles more than the new one would, until the new one is alone. `modelled` is what the model alone says, where
    figures are corrected by so many `measured` migrations. `ranges` are from and to which values figures may come out.
    """

    strategy: str
    duration: float
    work: float
    rows: float
    silence: float
    delayed: float = 0.0
    modelled: Mapping[str, float] = field(default_factory=dict)
    measured: int = 0
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def corrected(self, by: Correction, batch_ticks: float) -> Prediction:
        """The prediction with the model's figures corrected; silence is as long as work takes."""
        silence = self.silence * by.work
        figures = {
            "duration": self.duration * by.duration,
            "work": self.work * by.work,
            "rows": self.rows * by.rows,
            "silence": silence if silence > batch_ticks else 0.0,
        }
        off_by = {**by.off_by, "silence": by.off_by["work"]}
        return replace(
            self,
            duration=figures["duration"],
            work=figures["work"],
            rows=figures["rows"],
            silence=figures["silence"],
            ranges={name: [value / off_by[name], value * off_by[name]] for name, value in figures.items()},
            delayed=self.delayed * by.duration,
            modelled={"duration": self.duration, "work": self.work, "rows": self.rows},
            measured=by.migrations,
        )
