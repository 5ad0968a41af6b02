"""D-CAPE's figures 9 to 11: what PTLB and MSLB gain, by rate and by window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from midstream.lab.experiments.dcape_run import Adaptation, Rates, Run, Setting
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.experiments.virtual_processor import Costs

RATES = (30, 40, 50)
WINDOWS = (15.0, 30.0, 45.0, 60.0)
END, COST, KEYS, TICK = 120.0, 1.0, 500, 5.0
MAP = {"cost": (0.3, 3.0), "end": (60.0, 120.0), "keys": (500, 5000), "windows": ((15.0, 60.0),), "bound": (False,)}
"""Where the figures are repeated, over all rates, the shortest and the longest window: speed, length, C's domain."""

SAME = 0.05
"""Ratios that differ by less count as equal."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was gained at a rate and a window: results over those without adaptation.

    `even` is what dealing groups evenly from the start gives, `ptlb_took` the seconds of PTLB's first move, None if it
    did not end.
    """

    rate: float
    window: float
    ptlb: float
    mslb: float
    even: float = float("nan")
    ptlb_took: float | None = None


def setting(
    rate: float, window: float, cost: float = COST, keys: int = KEYS, seed: int = 1, end: float = END
) -> Setting:
    """A column of figures 9 to 11."""
    domains = {"A": 500, "B": 500, "C": keys}
    return Setting(
        Rates(rate), window=window, end=end, keys=domains, costs=Costs(cost, cost), ready=10, tick=TICK, seed=seed
    )


def measure(chosen: Setting, bound: bool = True) -> Point:
    """All runs of a setting."""
    base, ptlb, mslb = (Run(chosen, Adaptation(protocol=protocol)).run() for protocol in (None, "ptlb", "mslb"))
    gains = [run.results / max(1, base.results) for run in (ptlb, mslb)]
    took = ptlb.moves[0].length if ptlb.moves else None
    even = Run(replace(chosen, even=True), Adaptation()).run().results if bound else math.nan
    return Point(chosen.rates.each, chosen.window, gains[0], gains[1], even / max(1, base.results), took)


def dcape_window_rate(
    seed: int = 1,
    cost: float = COST,
    end: float = END,
    keys: int = KEYS,
    windows: Sequence[float] = WINDOWS,
    bound: bool = True,
) -> Report:
    """Runs a column for each rate and window; `bound`: also what perfect balance would give."""
    columns = [setting(rate, window, cost, keys, seed, end) for rate in RATES for window in windows]
    return report_of([measure(column, bound) for column in columns], columns[0])


def report_of(points: Sequence[Point], first: Setting) -> Report:
    """What the points say about figures 9 to 11; `first` is one of their settings."""
    listed = ", ".join(f"{p.window:g}" for p in points if p.rate == RATES[0])
    settings = {
        **first.describe(),
        "streams": f"Poisson, {RATES} rows/s",
        "window": f"{listed} s",
        "run": f"{first.end:g} s",
    }
    report = Report("dcape-window-rate", "PTLB and MSLB by rate and window (D-CAPE, figures 9 to 11)", settings)
    by_rate = {rate: [p for p in points if p.rate == rate] for rate in RATES}
    low, middle, high = (by_rate[rate] for rate in RATES)
    leads = [p.mslb / p.ptlb for p in points]
    report.verdict(
        "at 30 rows/s gains grow with the window",
        "both further ahead of no adaptation as windows grow",
        _ratios(low),
        _grows([p.mslb for p in low]) and _grows([p.ptlb for p in low]),
        _late(low),
        value=low[-1].mslb,
    )
    report.verdict(
        "at 30 rows/s MSLB is level with PTLB for small windows and ahead for large ones",
        "insignificant at first, about 25 % at last",
        f"{_lead(low[0])} at {low[0].window:g} s, {_lead(low[-1])} at {low[-1].window:g} s",
        abs(low[0].mslb / low[0].ptlb - 1) <= SAME and low[-1].mslb / low[-1].ptlb >= 1.1,
        "MSLB hands groups over at once, PTLB only when all that is old has been purged",
        conjecture=True,
        value=low[-1].mslb / low[-1].ptlb,
    )
    report.verdict(
        "at 40 rows/s gains are larger than at 30, also for small windows",
        "similar but more dramatic",
        f"MSLB {_listed([p.mslb for p in middle])} at 40, {_listed([p.mslb for p in low])} at 30",
        all(more.mslb >= less.mslb - SAME for more, less in zip(middle, low, strict=True)),
        "perfect balance from the first row on would give "
        f"{_listed([p.even for p in middle])} at 40, {_listed([p.even for p in low])} at 30",
        value=max(p.mslb for p in middle),
    )
    report.verdict(
        "at 50 rows/s and a small window both about double results",
        "PTLB about 90 % more, MSLB about 100 %",
        f"PTLB {high[0].ptlb:.2f}, MSLB {high[0].mslb:.2f} times",
        high[0].ptlb >= 1.6 and high[0].mslb >= 1.7,
        f"{_late(high)}; groups dealt evenly from the first row on give {high[0].even:.2f} times",
        value=high[0].mslb,
    )
    report.verdict(
        "at 50 rows/s PTLB's lead narrows as windows grow",
        "the gap between no adaptation and PTLB gets narrower",
        f"PTLB {_listed([p.ptlb for p in high])} times",
        high[-1].ptlb < high[0].ptlb,
        value=high[-1].ptlb - high[0].ptlb,
    )
    report.verdict(
        "MSLB is never behind PTLB",
        "MSLB ahead, more so for high values",
        f"least lead {min(leads) - 1:+.0%}, mean {sum(leads) / len(leads) - 1:+.0%}",
        min(leads) >= 1 - SAME,
        value=min(leads),
    )
    report.figures += [_figure(rate, found, number) for number, (rate, found) in enumerate(by_rate.items(), 9)]
    report.notes.append("One seed; the paper has the mean of at least five runs on its cluster.")
    return report


def _late(points: Sequence[Point]) -> str:
    """When PTLB relieves its sender."""
    windows = ", ".join(f"{p.window:g}" for p in points)
    took = ", ".join("not" if p.ptlb_took is None else f"{p.ptlb_took:.0f} s" for p in points)
    return (
        "PTLB relieves the sender only when all that is old has been purged, and until then makes it process more; "
        f"its first moves were over after {took} of {END:g} s, with windows of {windows} s"
    )


def _grows(ratios: Sequence[float]) -> bool:
    return ratios[-1] > ratios[0] + SAME and all(b >= a - SAME for a, b in pairwise(ratios))


def _listed(ratios: Sequence[float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def _ratios(points: Sequence[Point]) -> str:
    return f"PTLB {_listed([p.ptlb for p in points])}, MSLB {_listed([p.mslb for p in points])} times"


def _lead(point: Point) -> str:
    return f"{point.mslb / point.ptlb - 1:+.0%}"


def _figure(rate: float, points: Sequence[Point], number: int) -> Figure:
    windows = [p.window for p in points]
    series = [
        Series("no adaptation", windows, [1.0] * len(points)),
        Series("PTLB", windows, [p.ptlb for p in points]),
        Series("MSLB", windows, [p.mslb for p in points]),
    ]
    facts = {
        9: ["Both gain more with larger windows.", "MSLB is about 25 % ahead of PTLB at last."],
        10: ["As at 30 rows/s, and already ahead for small windows."],
        11: ["At 15 s about 1.9 (PTLB) and 2.0 (MSLB).", "PTLB's gap to the base narrows with the window."],
    }
    plot = Plot(f"Throughput ratio at {rate:g} rows/s", "window in seconds", "times no adaptation", series)
    return Figure(plot, f"Figure {number}", facts[number])
