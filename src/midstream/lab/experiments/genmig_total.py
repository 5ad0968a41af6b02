"""GenMig's figure 6: the total time of a saturated system, with a costly join predicate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from midstream.lab.experiments.genmig_rates import migrated
from midstream.lab.experiments.genmig_workload import END, NEW, OLD, START, WINDOW, settings, workload
from midstream.lab.experiments.migration_run import Change, Observed, Run, Workload
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.experiments.virtual_processor import Costs, Counts, VirtualProcessor
from midstream.migration.coalesce import pair
from midstream.migration.genmig import GenMig
from midstream.migration.genmig_reference_point import GenMigReferencePoint
from midstream.migration.parallel_track_paper import ParallelTrackPaper
from midstream.migration.protocol import Strategy
from midstream.operators.elements import Elements, Indices

COSTS = Costs(compare=0.01, insert=0.002)
"""A costly predicate: a comparison takes five times as long as an insertion."""

PT, COALESCE, REFERENCE = "parallel track", "GenMig, coalesce", "GenMig, reference point"


def genmig_total() -> Report:
    """Runs the three strategies as fast as the processor can, and holds them against the figure."""
    load = workload()
    runs = {
        PT: _run(load, ParallelTrackPaper(), VirtualProcessor(COSTS)),
        COALESCE: _with_coalesce(load),
        REFERENCE: _run(load, GenMigReferencePoint(), VirtualProcessor(COSTS)),
    }
    report = Report("genmig-total", "Total time (GenMig, figure 6)", settings())
    report.settings = {
        **report.settings,
        "processor": f"{COSTS.compare:g} ms per compared pair (nested loops, costly predicate), {COSTS.insert:g} ms "
        "per row inserted into a state, a hash table of coalesce or the buffer of parallel track",
        "input": "all there from the start: the processor never waits",
    }
    _figure(report, runs)
    _totals(report, runs)
    _slopes(report, runs)
    return report


def _run(load: Workload, strategy: Strategy, processor: VirtualProcessor) -> Observed:
    return Run(load, OLD, processor, "saturated", Change(START, NEW, strategy)).run()


def _with_coalesce(load: Workload) -> Observed:
    """A run in which coalesce is charged for both halves of what it mends."""
    processor = VirtualProcessor(COSTS)

    def charged(before: Elements, after: Elements, exact: bool) -> tuple[Indices, Indices]:
        here, there = pair(before, after, exact)
        processor.charge(Counts(inserts=len(here) + len(there)))
        return here, there

    return _run(load, GenMig(pairing=charged), processor)


def _figure(report: Report, runs: Mapping[str, Observed]) -> None:
    series = [Series(name, [t / 1000 for t in run.series("virtual")], run.cumulative()) for name, run in runs.items()]
    report.figures.append(
        Figure(
            Plot("Results over processing time", "processing time (s)", "results so far", series),
            "Figure 6",
            [
                "flatter at the beginning than at the end: the old plan is the slower one",
                "flattest while both plans run",
                "GenMig needs less time in all than parallel track",
                "the reference point is slightly ahead of coalesce",
            ],
        )
    )


def _totals(report: Report, runs: Mapping[str, Observed]) -> None:
    totals = {name: run.samples[-1].virtual / 1000 for name, run in runs.items()}
    saved = 1 - totals[COALESCE] / totals[PT]
    report.verdict(
        "GenMig needs less time in all than parallel track",
        "superior",
        f"{totals[COALESCE]:,.1f} s, parallel track {totals[PT]:,.1f} s: {saved:.1%} less",
        totals[COALESCE] < totals[PT],
    )
    ahead = 1 - totals[REFERENCE] / totals[COALESCE]
    report.verdict(
        "the reference point improves on coalesce slightly",
        "slightly",
        f"{totals[REFERENCE]:,.2f} s after {totals[COALESCE]:,.2f} s: {ahead:.3%} less",
        0 < ahead < 0.1,
        "coalesce is charged for what it inserts, so the reference point should be ahead by that",
    )


def _slopes(report: Report, runs: Mapping[str, Observed]) -> None:
    for name in (PT, COALESCE):
        run, migration = runs[name], migrated(runs[name])
        end = START + migration.duration
        before, during, after = (
            _slope(run, *span) for span in ((WINDOW, START), (START, min(end, START + WINDOW)), (end, END))
        )
        report.verdict(
            f"{name}: fewest results per time while both plans run, most with the new plan",
            "flattest during the migration, steepest after it",
            f"{during:,.1f} results per s of processing in the first window of the migration, {before:,.1f} before, "
            f"{after:,.1f} after",
            during < before < after,
        )


def _slope(run: Observed, start: int, end: int) -> float:
    inside = [s for s in run.samples if start < s.application <= end]
    earlier = [s for s in run.samples if s.application <= start]
    spent = inside[-1].virtual - earlier[-1].virtual
    return float(np.sum([s.released for s in inside])) / (spent / 1000)
