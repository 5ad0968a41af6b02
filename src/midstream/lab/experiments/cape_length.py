"""CAPE's figures 9 to 12: how long parallel track and moving state take, against the window and against a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from midstream.lab.experiments.cape_workload import COSTS, NEW, OLD, PROCESSOR, Configuration, configuration
from midstream.lab.experiments.migration_run import Change, Observed, Run
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.experiments.virtual_processor import VirtualProcessor
from midstream.lab.papers.parallel_track import ParallelTrackPaper
from midstream.migration.moving_state import MovingState
from midstream.migration.protocol import Strategy

WINDOWS_1 = (1000, 2000, 3500, 5000, 7000)
GAPS_2 = (100, 50, 25, 16)
WINDOWS_3 = (100, 200, 350, 500, 650, 800)
REPEATS = 2
"""How many runs a point is the mean of."""
SAME = 0.05
"""Lengths that differ by a smaller share count as equal."""
MANY = 100
"""How many tuples of each stream a window has where it is tested that lengths differ because of their number."""
COARSE, FINE = 5, 25
"""Batches per window: when parallel track ends depends only on how fine they are by then."""

WARM_UP = 2
"""Windows before the migration starts."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured for one configuration, in milliseconds; `load` is charged time per time before the start."""

    configuration: Configuration
    parallel_track: float
    moving_state: float
    load: float


SPARSE = (
    "with few tuples in a window the last old tuple to be combined with a new one is not a whole window old, so the "
    "old box is free of old tuples before 2W"
)


def set_1(window: int) -> Configuration:
    """Table 2, section 6.2, set 1."""
    return configuration(window, (100, 100, 100, 100), (0.1, 0.05, 0.02))


def set_2(gap: int) -> Configuration:
    """Table 2, section 6.2, set 2: the interarrival time of B varies."""
    return configuration(1000, (50, gap, 50, 50), (0.1, 0.05, 0.02))


def set_3(window: int) -> Configuration:
    """Table 2, section 6.2, set 3."""
    return configuration(window, (100, 12, 12, 12), (0.1, 0.1, 0.1))


def cape_length(seed: int = 0, repeats: int = REPEATS) -> Report:
    """Runs the three sets and holds them against the figures."""
    seeds = range(seed * repeats, (seed + 1) * repeats)
    first = [measure(set_1(window), seeds) for window in WINDOWS_1]
    second = [measure(set_2(gap), seeds) for gap in GAPS_2]
    third = [measure(set_3(window), seeds) for window in WINDOWS_3]
    report = Report("cape-length", "Length of the migration stage (CAPE, figures 9 to 12)", settings(seeds))
    _windows(report, first, seeds)
    _rates(report, second, seeds)
    _crossing(report, third, seeds)
    report.notes.append(
        "Parallel track ends by application time. Moving state takes the time that recomputing costs a processor "
        "that charges for every compared pair and every inserted row. Equation 8 takes the state of B and C to hold "
        "all combinations that came within W, which is twice what joining the states of B and C gives; the second "
        "estimate counts what joining gives."
    )
    return report


def settings(seeds: Sequence[int]) -> dict[str, str]:
    """What is not said by the figures themselves."""
    return {
        "processor": PROCESSOR,
        "plans": f"{OLD} to {NEW}",
        "set 1": set_1(0).describe().replace("W 0 ms", f"W {WINDOWS_1[0]} to {WINDOWS_1[-1]} ms"),
        "set 2": set_2(1).describe().replace("IB 1 ms", f"IB {GAPS_2[0]} to {GAPS_2[-1]} ms"),
        "set 3": set_3(0).describe().replace("W 0 ms", f"W {WINDOWS_3[0]} to {WINDOWS_3[-1]} ms"),
        "arrivals": f"Poisson; means of seeds {', '.join(map(str, seeds))}",
        "run": f"{WARM_UP} windows, then the migration, not 50 s in all; batches of W/{COARSE}, late ones W/{FINE}",
    }


def measure(configuration: Configuration, seeds: Sequence[int]) -> Point:
    """Both strategies under one configuration."""
    moved = [_run(configuration, MovingState(), 1 / COARSE, seed) for seed in seeds]
    standstills = [run.migration.standstill for run in moved if run.migration is not None]
    loads = [_load(run, WARM_UP * configuration.window) for run in moved]
    track = tracked(configuration, seeds)
    return Point(configuration, track, float(np.mean(standstills)), float(np.mean(loads)))


def tracked(configuration: Configuration, seeds: Sequence[int]) -> float:
    """How long parallel track takes, in the mean."""
    runs = [_run(configuration, ParallelTrackPaper(), 2.25, seed) for seed in seeds]
    return float(np.mean([run.migration.duration for run in runs if run.migration is not None]))


def _run(configuration: Configuration, strategy: Strategy, windows: float, seed: int) -> Observed:
    """A run that migrates after the warm-up and goes on for so many windows."""
    window = configuration.window
    start, finer, end = (round(n * window) for n in (WARM_UP, WARM_UP + 1.4, WARM_UP + windows))
    coarse, fine = window // COARSE, window // FINE
    ends = [*range(coarse, min(finer, end) + 1, coarse), *range(finer + fine, end + 1, fine)]
    workload = configuration.workload(ends, seed)
    return Run(workload, OLD, VirtualProcessor(COSTS), "saturated", Change(start, NEW, strategy)).run()


def _load(run: Observed, start: int) -> float:
    """Charged time per application time in the last window of the warm-up, when windows are full."""
    full = [s for s in run.samples if start / WARM_UP <= s.application <= start]
    return (full[-1].virtual - full[0].virtual) / (full[-1].application - full[0].application)


def _windows(report: Report, points: Sequence[Point], seeds: Sequence[int]) -> None:
    windows = [float(p.configuration.window) for p in points]
    tracks = [p.parallel_track for p in points]
    moves = [p.moving_state for p in points]
    report.figures.append(
        Figure(
            Plot(
                "Parallel track against the window, set 1",
                "global window W (ms)",
                "migration time (ms)",
                [Series("measured", windows, tracks, points=True), Series("2W", windows, [2 * w for w in windows])],
            ),
            "Figure 9",
            ["linear in W and statistically equal to 2W", "at W = 7000 ms close to 14,000 ms"],
        )
    )
    report.figures.append(
        Figure(
            Plot(
                "Moving state against the window, set 1",
                "global window W (ms)",
                "migration time (ms)",
                [Series("measured", windows, moves, points=True), *_estimates(points, windows)],
            ),
            "Figure 10",
            ["rises with W along a polynomial trend line"],
        )
    )
    _twice_the_window(report, points, "set 1, figure 9", "statistically equal to 2W", seeds)
    power = _exponent(windows, moves)
    report.verdict(
        "moving state is polynomial in W: between W² and W³ (figure 10, equation 8)",
        "close to polynomial",
        f"grows like W^{power:.2f}",
        1.9 <= power <= 3.1,
        "the measured growth lies outside the terms of equation 8",
        value=power,
    )


def _twice_the_window(
    report: Report, points: Sequence[Point], where: str, published: str, seeds: Sequence[int]
) -> None:
    """Every window by itself: a line through all of them would hide the short ones."""
    shares = [p.parallel_track / (2 * p.configuration.window) - 1 for p in points]
    worst = max(range(len(points)), key=lambda i: abs(shares[i]))
    holds = abs(shares[worst]) <= SAME
    report.verdict(
        f"parallel track takes 2W at every window, to {SAME:.0%}, when joins stand above joins ({where})",
        published,
        ", ".join(f"{p.configuration.window} ms: {share:+.1%}" for p, share in zip(points, shares, strict=True)),
        holds,
        "" if holds else _twice_if_denser(points[worst], seeds),
        value=shares[worst],
    )


def _twice_if_denser(point: Point, seeds: Sequence[int]) -> str:
    """What the length would be if the window held more tuples: whether their number is the cause."""
    chosen = point.configuration
    times = _denser(chosen)
    length = tracked(chosen.denser(times), seeds[:1])
    return (
        f"{SPARSE}: A brings {chosen.window * chosen.rates['A']:.0f} in {chosen.window} ms on average. With {times} "
        f"times the tuples, and as many matches of each, this window takes {length / chosen.window:.3f} W"
    )


def _denser(configuration: Configuration) -> int:
    """How many times the tuples a window needs to have many of the rarest stream."""
    return math.ceil(MANY / (configuration.window * min(configuration.rates.values())))


def _flat_if_denser(points: Sequence[Point], seeds: Sequence[int]) -> str:
    first = points[0].configuration
    times = _denser(first)
    lengths = [tracked(p.configuration.denser(times), seeds[:1]) for p in (points[0], points[-1])]
    return (
        f"{SPARSE}; at the lowest rate B brings {first.window * first.rates['B']:.0f} on average. With {times} times "
        f"the tuples, and as many matches of each, the spread is {_spread(lengths):.1%}"
    )


def _spread(lengths: Sequence[float]) -> float:
    return (max(lengths) - min(lengths)) / float(np.mean(lengths))


def _longest(points: Sequence[Point]) -> float:
    """The most windows that recomputing takes where the processor keeps up with the old plan."""
    return max((p.moving_state / p.configuration.window for p in points if p.load < 1), default=float("nan"))


def _estimates(points: Sequence[Point], along: Sequence[float]) -> list[Series]:
    names = {"equation 8": 2.0, "equation 8, what joining gives": 1.0}
    return [
        Series(name, along, [p.configuration.estimated_moving_state(COSTS, held) for p in points])
        for name, held in names.items()
    ]


def _rates(report: Report, points: Sequence[Point], seeds: Sequence[int]) -> None:
    rates = [1000 * p.configuration.rates["B"] for p in points]
    tracks = [p.parallel_track for p in points]
    moves = [p.moving_state for p in points]
    report.figures.append(
        Figure(
            Plot(
                "Both strategies against the rate of B, set 2",
                "rate of B (tuples per s)",
                "migration time (ms)",
                [Series("parallel track", rates, tracks), Series("moving state", rates, moves)],
            ),
            "Figure 11",
            ["parallel track hardly changes with the rate of B", "moving state rises with it"],
        )
    )
    spread = _spread(tracks)
    report.verdict(
        "parallel track is flat in the rate of B (figure 11)",
        "almost no effect",
        f"spread {spread:.1%} while the rate grows {rates[-1] / rates[0]:.1f} times",
        spread <= SAME,
        "" if spread <= SAME else _flat_if_denser(points, seeds),
        value=spread,
    )
    rising = all(later > earlier for earlier, later in zip(moves, moves[1:], strict=False))
    report.verdict(
        "moving state grows with the rate of B (figure 11)",
        "increases",
        f"from {moves[0]:.0f} to {moves[-1]:.0f} ms, {'at every step' if rising else 'not at every step'}",
        rising,
        "the states of single runs vary more than the rate does between two points",
    )


def _crossing(report: Report, points: Sequence[Point], seeds: Sequence[int]) -> None:
    windows = [float(p.configuration.window) for p in points]
    tracks = [p.parallel_track for p in points]
    moves = [p.moving_state for p in points]
    at = crossing(windows, np.subtract(moves, tracks).tolist())
    report.figures.append(
        Figure(
            Plot(
                "Both strategies against the window, set 3",
                "global window W (ms)",
                "migration time (ms)",
                [Series("parallel track", windows, tracks), Series("moving state", windows, moves)],
                [(at, f"equal at {at:.0f} ms")] if at is not None else [],
            ),
            "Figure 12",
            [
                "for small windows moving state is faster",
                "parallel track stays at about 2W",
                "after a certain window parallel track is the faster one",
            ],
        )
    )
    report.verdict(
        "moving state is faster for small windows, parallel track for large ones (figure 12)",
        "they cross at a certain window",
        f"they cross at W = {at:.0f} ms" if at is not None else "they do not cross once",
        at is not None and moves[0] < tracks[0] and moves[-1] > tracks[-1],
        "over these windows the same strategy is always the faster one",
    )
    _twice_the_window(report, points, "set 3, figure 12", "about 2W", seeds)
    load = float(np.interp(at, windows, [p.load for p in points])) if at is not None else float("nan")
    report.verdict(
        "the crossing lies where the processor keeps up with the old plan (assumed in section 5)",
        "assumed",
        f"at the crossing the old plan alone needs {load:.1f} times the processor",
        load < 1,
        "recomputing lets each combination of B and C meet each D once, which the new plan at work does three times in "
        f"a window; where the processor keeps up with the old plan, recomputing takes at most {_longest(points):.2f} W "
        "here, and parallel track 2W",
        value=load,
    )


def crossing(xs: Sequence[float], differences: Sequence[float]) -> float | None:
    """Where a difference changes its sign, if it does so exactly once.

    >>> crossing([0, 1, 2], [-2.0, -1.0, 3.0])
    1.25
    """
    changes = [i for i in range(len(xs) - 1) if (differences[i] < 0) != (differences[i + 1] < 0)]
    if len(changes) != 1:
        return None
    (i,) = changes
    share = differences[i] / (differences[i] - differences[i + 1])
    return xs[i] + share * (xs[i + 1] - xs[i])


def _exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The power that fits best."""
    slope, _ = np.polyfit(np.log(xs), np.log(ys), 1)
    return float(slope)
