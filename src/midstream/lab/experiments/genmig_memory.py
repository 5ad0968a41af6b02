"""GenMig's figure 5: what is held while the migration lasts, counted in values."""

from __future__ import annotations

import numpy as np

from midstream.lab.experiments.genmig_rates import COSTS, migrated
from midstream.lab.experiments.genmig_workload import NEW, OLD, SEED, START, WINDOW, settings, workload
from midstream.lab.experiments.migration_run import Change, Observed, Run
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.experiments.virtual_processor import VirtualProcessor
from midstream.lab.papers.parallel_track import ParallelTrackPaper
from midstream.migration.genmig import GenMig


def genmig_memory(seed: int = SEED) -> Report:
    """Runs both strategies and holds them against the figure and the bar."""
    load = workload(seed)
    genmig, track = (
        Run(load, OLD, VirtualProcessor(COSTS), "application", Change(START, NEW, strategy)).run()
        for strategy in (GenMig(), ParallelTrackPaper())
    )
    report = Report("genmig-memory", "Memory while migrating (GenMig, figure 5)", settings(seed))
    report.settings = {**report.settings, "memory": "values of tuples in states and buffers; no timestamps and marks"}
    _figures(report, genmig, track)
    _outside(report, genmig, track)
    _inside(report, genmig, track)
    _bar(report, genmig, track)
    report.notes.append(
        "Parallel track keeps a combined tuple for a window after its latest part, as its paper has it, GenMig until "
        "its interval ends. Extra memory is all that is held beyond the old box."
    )
    return report


def _figures(report: Report, genmig: Observed, track: Observed) -> None:
    times = [t / 1000 for t in genmig.series("application")]
    marks = [
        (START / 1000, "start"),
        ((START + WINDOW) / 1000, "start + w"),
        ((START + 2 * WINDOW) / 1000, "start + 2w"),
    ]
    facts = [
        "the runs differ only while they migrate",
        "parallel track holds more than GenMig all the while",
        "afterwards both profit from the smaller new plan",
    ]
    for label, field in (("Values held", "values"), ("Values held beyond the old box", "extra")):
        series = [Series("parallel track", times, track.series(field)), Series("GenMig", times, genmig.series(field))]
        plot = Plot(label, "application time (s)", "values", series, marks)
        report.figures.append(Figure(plot, "Figure 5", facts))


def _outside(report: Report, genmig: Observed, track: Observed) -> None:
    end = START + migrated(track).duration
    apart = [
        abs(mine.values - its.values)
        for mine, its in zip(genmig.samples, track.samples, strict=True)
        if not START < mine.application < end
    ]
    report.verdict(
        "memory differs only while one of the runs migrates",
        "can only differ during migration",
        f"at most {max(apart)} values apart in {len(apart)} batches before and after",
        max(apart) == 0,
        kind="check",
    )
    before = float(np.mean([s.values for s in genmig.samples if WINDOW < s.application <= START]))
    after = float(np.mean([s.values for s in genmig.samples if s.application > end]))
    report.verdict(
        "the new plan holds less than the old one",
        "reduced afterwards",
        f"{after:,.0f} values on average after {before:,.0f}",
        after < before,
    )


def _inside(report: Report, genmig: Observed, track: Observed) -> None:
    pairs = _during(genmig, track, "values")
    more = sum(1 for mine, its in pairs if its > mine)
    report.verdict(
        "parallel track holds more than GenMig all through its migration",
        "continuously more",
        f"in {more} of {len(pairs)} batches",
        more == len(pairs),
        "in the batches left over the old box has had no combined tuple outlive its interval yet",
    )
    peaks = [max(pair[i] for pair in pairs) for i in (0, 1)]
    report.verdict(
        "the temporary increase is smaller for GenMig",
        "smaller",
        f"peak {peaks[0]:,} values, parallel track {peaks[1]:,}",
        peaks[0] < peaks[1],
    )


def _bar(report: Report, genmig: Observed, track: Observed) -> None:
    pairs = _during(genmig, track, "extra")
    worst = max(mine - its for mine, its in pairs)
    growth = [later[0] - earlier[0] for earlier, later in zip(pairs, pairs[1:], strict=False)]
    batch = max(growth)
    report.verdict(
        "the extra memory of GenMig is never above parallel track's by more than a batch",
        f"not published; the most that one batch added is {batch} values",
        f"{worst} values above at most",
        worst <= batch,
        kind="own",
    )
    means = [float(np.mean([pair[i] for pair in pairs])) for i in (0, 1)]
    report.verdict(
        "the extra memory of GenMig is below parallel track's in the mean",
        "not published",
        f"{means[0]:,.0f} values, parallel track {means[1]:,.0f}",
        means[0] < means[1],
        kind="own",
    )


def _during(genmig: Observed, track: Observed, field: str) -> list[tuple[int, int]]:
    """What both hold, batch by batch, while parallel track migrates."""
    end = START + migrated(track).duration
    return [
        (getattr(mine, field), getattr(its, field))
        for mine, its in zip(genmig.samples, track.samples, strict=True)
        if START < mine.application < end
    ]
