"""CAPE's figures 13 to 16: intermediate results and output of both strategies, with power to spare and without.

Arrivals wait until the processor has time for them. The migration starts when 10 seconds of its time have passed,
wherever in the streams the query is by then. Everything is processed in order of time, so when it starts no input is
ahead of another and nothing has to be cleaned first (the paper's footnote 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from midstream.lab.experiments.cape_workload import COSTS, NEW, OLD, PROCESSOR, Configuration, configuration
from midstream.lab.experiments.migration_run import Change, Migrated, Observed, Run, every
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.experiments.virtual_processor import VirtualProcessor
from midstream.lab.papers.parallel_track import ParallelTrackPaper
from midstream.migration.moving_state import MovingState

LOW = configuration(1000, (100, 100, 100, 100), (0.1, 0.02, 0.02))
HIGH = configuration(2000, (50, 50, 50, 50), (0.2, 0.05, 0.05))
START = 10_000
END = 50_000
STEPS = {"low": 100, "high": 50}
SEED = 2004
REPEATS = 4
"""How many runs counts that are close are the mean of."""
ENOUGH = 5_000
"""How much input of the high configuration outlasts moving state's standstill, with any seed."""

Runs = Mapping[str, Observed]
MS, PT, NEW_ONLY, OLD_ONLY = "moving state", "parallel track", "new plan only", "old plan only"


def cape_intermediate(seed: int = SEED, repeats: int = REPEATS) -> Report:
    """Runs four cases under both configurations and holds them against the figures."""
    report = Report(
        "cape-intermediate",
        "Intermediate results and output while migrating (CAPE, figures 13 to 16)",
        settings(seed, repeats),
    )
    seeds = range(seed * repeats, (seed + 1) * repeats)
    low, high = four_cases(LOW, STEPS["low"], seed), four_cases(HIGH, STEPS["high"], seed)
    _figures(report, low, "low", ("Figure 13", "Figure 14"), LOW_FACTS)
    _figures(report, high, "high", ("Figure 15", "Figure 16"), HIGH_FACTS)
    _low(report, low, seeds)
    _high(report, high, seeds)
    report.notes.append(
        "Time is the processor's. Intermediate results are the combined tuples in all states of the boxes that run; "
        "while moving state recomputes, those of the old box and the new box's so far."
    )
    return report


def settings(seed: int, repeats: int) -> dict[str, str]:
    """What is not said by the figures themselves."""
    return {
        "processor": PROCESSOR,
        "plans": f"{OLD} to {NEW}",
        "low configuration": LOW.describe(),
        "high configuration": HIGH.describe(),
        "arrivals": f"Poisson for {END} ms, seed {seed}; where counts are close, {repeats} seeds",
        "run": f"migration at {START} ms; a batch covers {STEPS['low']} ms (low) or {STEPS['high']} ms (high)",
    }


def four_cases(configuration: Configuration, step: int, seed: int) -> Runs:
    """Both strategies, and both plans alone."""
    workload = configuration.workload(every(step, END), seed)
    changes = {MS: Change(START, NEW, MovingState()), PT: Change(START, NEW, ParallelTrackPaper())}
    runs = {
        name: Run(workload, OLD, VirtualProcessor(COSTS), "virtual", change).run() for name, change in changes.items()
    }
    runs[NEW_ONLY] = Run(workload, NEW, VirtualProcessor(COSTS), "virtual").run()
    runs[OLD_ONLY] = Run(workload, OLD, VirtualProcessor(COSTS), "virtual").run()
    return runs


LOW_FACTS = (
    [
        "all but the new plan are equal until the migration at 10 s",
        "moving state has the new plan's count earlier than parallel track",
        "in the end both have the new plan's count",
    ],
    ["no strong advantage of either strategy", "the silence of moving state is too short to be seen"],
)
HIGH_FACTS = (
    [
        "the processor cannot keep up with the old plan",
        "while the migration lasts parallel track has fewer intermediate results than moving state",
    ],
    [
        "moving state is silent for a time between 10 s and 20 s",
        "parallel track has the higher output at first",
        "moving state finishes first and ends the whole run earlier",
    ],
)


def _figures(
    report: Report, runs: Runs, which: str, published: tuple[str, str], facts: tuple[list[str], list[str]]
) -> None:
    counts = [Series(name, *_counts(run)) for name, run in runs.items()]
    outputs = [Series(name, [t / 1000 for t in run.series("virtual")], run.cumulative()) for name, run in runs.items()]
    mark = [(START / 1000, "migration")]
    until = 4 * START / 1000
    for label, series, figure, said in (
        ("intermediate results", counts, published[0], facts[0]),
        ("results so far", outputs, published[1], facts[1]),
    ):
        shown = [_before(s, until) for s in series]
        title = f"{label[0].upper()}{label[1:]}, {which} configuration"
        report.figures.append(Figure(Plot(title, "time (s)", label, shown, mark), figure, said))


def _before(series: Series, until: float) -> Series:
    kept = [(x, y) for x, y in zip(series.xs, series.ys, strict=True) if x <= until]
    return Series(series.name, [x for x, _ in kept], [y for _, y in kept])


def _counts(run: Observed) -> tuple[list[float], list[float]]:
    """Times in seconds and intermediate results, those at the end of a standstill included."""
    points = [(s.virtual, s.combined) for s in run.samples]
    migration = run.migration
    if migration is not None and migration.standstill:
        points.append((migration.started_virtual + migration.standstill, migration.combined_at_standstill))
        points.sort()
    return [t / 1000 for t, _ in points], [float(count) for _, count in points]


def _low(report: Report, runs: Runs, seeds: Sequence[int]) -> None:
    loads = {name: _busy(runs[name]) for name in (OLD_ONLY, PT)}
    report.verdict(
        "the low configuration leaves power to spare",
        "sufficient resources",
        f"the old plan alone ends at {runs[OLD_ONLY].samples[-1].virtual:,.0f} ms of {END:,} ms of input, "
        f"busy {loads[OLD_ONLY]:.0%} of the time",
        runs[OLD_ONLY].samples[-1].virtual <= END + STEPS["low"],
        kind="check",
    )
    ms, pt = (_settled(runs[name], runs[NEW_ONLY]) - START for name in (MS, PT))
    report.verdict(
        "low: moving state has the new plan's intermediate count before parallel track (figure 13)",
        "earlier",
        f"from {ms:,.0f} ms after the start on, parallel track from {pt:,.0f} ms on",
        ms < pt,
        "the counts met at other times",
    )
    total = sum(s.released for s in runs[MS].samples)
    lags = [_low_lag(seed) for seed in seeds]
    report.verdict(
        "low: the output of both strategies is alike (figure 14), less than a tenth of all results apart",
        "no strong advantage",
        f"{total} results in all; with {len(lags)} seeds at most {max(lags)} apart, {np.mean(lags):.1f} on average",
        max(lags) < 0.1 * total,
        "parallel track holds back what the new box gives until the old box is empty",
    )


def _high(report: Report, runs: Runs, seeds: Sequence[int]) -> None:
    report.verdict(
        "the high configuration is too much for the old plan",
        "insufficient",
        f"the old plan alone needs {runs[OLD_ONLY].samples[-1].virtual / 1000:,.0f} s for {END // 1000} s of input, "
        f"the new one {runs[NEW_ONLY].samples[-1].virtual / 1000:,.0f} s",
        runs[OLD_ONLY].samples[-1].virtual > 1.1 * END,
        kind="check",
    )
    moving, track = runs[MS].migration, runs[PT].migration
    assert moving is not None and track is not None and moving.ended_virtual and track.ended_virtual
    begun, over = moving.started_virtual, moving.started_virtual + moving.standstill
    first = {name: _first_result(runs[name], begun) - begun for name in (MS, PT)}
    report.verdict(
        "high: parallel track gives results earlier after the start (figure 16)",
        "earlier",
        f"after {first[PT]:,.0f} ms, moving state after {first[MS]:,.0f} ms, which then overtakes it "
        f"{_ahead_until(runs[PT], runs[MS], begun) - begun:,.0f} ms after the start",
        first[PT] < first[MS],
    )
    report.verdict(
        "high: moving state is silent for a time between 10 s and 20 s (figure 16)",
        "silent between 10 s and 20 s",
        f"silent from {begun / 1000:.1f} s to {(begun + first[MS]) / 1000:.1f} s, "
        f"parallel track at first for {first[PT]:,.0f} ms",
        first[MS] >= moving.standstill > first[PT] and begun + first[MS] <= 20_000,
    )
    longest = _longest_standstill(runs[OLD_ONLY], moving)
    report.verdict(
        "high: that silence lasts most of the 10 s",
        "up to 10 s, read from the figure",
        f"{moving.standstill / 1000:.2f} s of recomputing",
        moving.standstill >= 5_000,
        f"Algorithm 1 compares {moving.recomputed.pairs:,} pairs here; even a processor so slow that it had just "
        f"filled one window by {START // 1000} s would recompute for {longest / 1000:.1f} s; that the published runs "
        "shared theirs with background queries is a conjecture",
        value=moving.standstill / 1000,
    )
    _while_recomputing(report, seeds)
    until = track.ended_virtual
    means = {name: _mean_combined(runs[name], over, until) for name in (MS, PT)}
    report.verdict(
        "high: parallel track has fewer intermediate results until it ends, too",
        "fewer during the migration stage",
        f"{means[PT]:,.0f} on average, moving state {means[MS]:,.0f}",
        means[PT] < means[MS],
        "once moving state has switched it holds the new plan's results alone, parallel track both plans'",
    )
    ends = {name: runs[name].samples[-1].virtual / 1000 for name in (MS, PT)}
    report.verdict(
        "high: moving state finishes first and ends the whole run earlier (figures 15 and 16)",
        "smaller migration time, earlier end",
        f"migrated after {(moving.ended_virtual - begun) / 1000:.1f} s and at its end after {ends[MS]:.0f} s, parallel "
        f"track after {(track.ended_virtual - track.started_virtual) / 1000:.1f} s and {ends[PT]:.0f} s",
        moving.ended_virtual < track.ended_virtual and ends[MS] < ends[PT],
    )


def _while_recomputing(report: Report, seeds: Sequence[int]) -> None:
    """Counts differ by little then, so one run says nothing: fewer means by more than twice the standard error."""
    pairs = [_recomputed(seed) for seed in seeds]
    apart = np.array([moving - track for moving, track in pairs], float)
    error = float(apart.std(ddof=1) / len(apart) ** 0.5)
    report.verdict(
        "high: parallel track has fewer intermediate results when moving state has recomputed (figure 15)",
        "fewer",
        f"{apart.mean():.1f} fewer than moving state's {np.mean([m for m, _ in pairs]):,.0f} on average, standard "
        f"error {error:.1f}; fewer with {int((apart > 0).sum())} of {len(pairs)} seeds",
        bool(apart.mean() > 2 * error),
        "by the Purging Lemma parallel track keeps combined tuples for up to two windows, and its new box fills too",
    )


def _recomputed(seed: int) -> tuple[int, int]:
    """Intermediate results of moving state when it has recomputed, and of parallel track at the same time."""
    workload = HIGH.workload(every(STEPS["high"], ENOUGH), seed)
    moving, track = (
        Run(workload, OLD, VirtualProcessor(COSTS), "virtual", Change(START, NEW, strategy)).run()
        for strategy in (MovingState(), ParallelTrackPaper())
    )
    assert moving.migration is not None
    over = moving.migration.started_virtual + moving.migration.standstill
    return moving.migration.combined_at_standstill, _combined_at(track, over)


def _longest_standstill(old: Observed, moving: Migrated) -> float:
    """How long recomputing takes if the processor is as slow as it can be and still fill a window by the start."""
    filled = next(s.virtual for s in old.samples if s.application >= HIGH.window)
    return moving.standstill * START / filled


def _busy(run: Observed) -> float:
    """How much of the time some work was charged, from the waits between steps."""
    idle = sum(
        max(0.0, later.application - earlier.virtual)
        for earlier, later in zip(run.samples, run.samples[1:], strict=False)
    )
    return 1 - idle / run.samples[-1].virtual


def _settled(run: Observed, new: Observed) -> float:
    """From when on a run has had exactly the new plan's intermediate count."""
    pairs = list(zip(run.samples, new.samples, strict=True))
    different = [i for i, (mine, its) in enumerate(pairs) if mine.combined != its.combined]
    return run.samples[min(different[-1] + 1 if different else 0, len(pairs) - 1)].virtual


def _low_lag(seed: int) -> int:
    """How far the outputs are apart at most: with two results a second, one run may have none while it migrates."""
    workload = LOW.workload(every(STEPS["low"], START + 3 * LOW.window), seed)
    moving, track = (
        Run(workload, OLD, VirtualProcessor(COSTS), "virtual", Change(START, NEW, strategy)).run()
        for strategy in (MovingState(), ParallelTrackPaper())
    )
    return _largest_lag(moving, track)


def _ahead_until(track: Observed, moving: Observed, start: float) -> float:
    """When moving state has given as many results as parallel track, after its first one since a moment."""
    times, given = track.series("virtual"), track.cumulative()
    first = _first_result(moving, start)
    for sample, count in zip(moving.samples, moving.cumulative(), strict=True):
        there = given[max(0, int(np.searchsorted(times, sample.virtual, side="right")) - 1)]
        if sample.virtual >= first and count >= there:
            return sample.virtual
    return moving.samples[-1].virtual


def _largest_lag(one: Observed, other: Observed) -> int:
    return int(np.max(np.abs(np.subtract(one.cumulative(), other.cumulative()))))


def _first_result(run: Observed, after: float) -> float:
    return next((s.virtual for s in run.samples if s.released and s.virtual > after), run.samples[-1].virtual)


def _combined_at(run: Observed, moment: float) -> int:
    return next(s.combined for s in reversed(run.samples) if s.virtual <= moment)


def _mean_combined(run: Observed, start: float, end: float) -> float:
    inside = [s.combined for s in run.samples if start < s.virtual <= end]
    return float(np.mean(inside)) if inside else float("nan")
