"""GenMig's figure 4: duration of the migration and output rate while it lasts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from midstream.lab.experiments.genmig_split import split_margins
from midstream.lab.experiments.genmig_workload import END, NEW, OLD, SEED, START, STEP, WINDOW, settings, workload
from midstream.lab.experiments.migration_run import Change, Migrated, Observed, Run, Workload
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.experiments.virtual_processor import Costs, VirtualProcessor
from midstream.lab.papers.parallel_track import ParallelTrackPaper
from midstream.migration.genmig import GenMig
from midstream.migration.genmig_reference_point import GenMigReferencePoint
from midstream.migration.moving_state_paced import MovingStatePaced
from midstream.migration.protocol import Strategy

COSTS = Costs(compare=0.0001, insert=0.0001)
"""Small enough that the processor keeps up with both plans at once; only counts, all times here are of the input."""

BUSY = 0.25
"""The share of time that the old plan takes where work on the migration counts."""

BIN = 1000
GENMIG, PT, PACED, NONE = "GenMig", "parallel track", "paced moving state", "no migration"
REFERENCE = "GenMig, reference point"

Runs = Mapping[str, Observed]


def genmig_rates(seed: int = SEED) -> Report:
    """Runs the strategies and holds them against the figure and the bars."""
    load = workload(seed)
    runs = observe(load)
    report = Report("genmig-rates", "Duration and output rate (GenMig, figure 4)", settings(seed))
    _figure(report, runs)
    _same_results(report, runs)
    _durations(report, runs)
    _parallel_track(report, runs)
    _steady(report, runs)
    _paced(report, runs)
    _paced_on_a_busy_processor(report, load, runs[NONE].samples[-1].virtual)
    _every_plan(report)
    report.notes.append(
        "Durations and silences are of application time, seen once a batch: the processor is taken to keep up. Where "
        f"the old plan keeps it busy for {BUSY:.0%} of the time, they are of virtual time, and whatever paced moving "
        "state does for the migration is charged to it."
    )
    return report


def observe(load: Workload) -> Runs:
    """One run per strategy, and one without a migration."""
    strategies: dict[str, Strategy] = {
        GENMIG: GenMig(),
        REFERENCE: GenMigReferencePoint(),
        PT: ParallelTrackPaper(),
        PACED: MovingStatePaced(),
    }
    runs = {NONE: Run(load, OLD, VirtualProcessor(COSTS), "application").run()}
    for name, strategy in strategies.items():
        runs[name] = Run(load, OLD, VirtualProcessor(COSTS), "application", Change(START, NEW, strategy)).run()
    return runs


def rates(run: Observed) -> tuple[list[float], list[float]]:
    """Results per second, by second."""
    counts = np.zeros(END // BIN)
    for sample in run.samples:
        counts[min((sample.application - 1) // BIN, len(counts) - 1)] += sample.released
    return [(i + 1) * BIN / 1000 for i in range(len(counts))], (counts * 1000 / BIN).tolist()


def _figure(report: Report, runs: Runs) -> None:
    series = [Series(name, *rates(runs[name])) for name in (PT, GENMIG, PACED, NONE)]
    marks = [
        (START / 1000, "start"),
        ((START + WINDOW) / 1000, "start + w"),
        ((START + 2 * WINDOW) / 1000, "start + 2w"),
    ]
    report.figures.append(
        Figure(
            Plot("Output rate", "application time (s)", "results per s", series, marks),
            "Figure 4",
            [
                "GenMig ends 10 s after the start, parallel track after 20 s",
                "parallel track gives less from the start on and nothing between 30 s and 40 s",
                "at 40 s it releases what it has held back in one burst",
                "GenMig goes on smoothly",
            ],
        )
    )


def _same_results(report: Report, runs: Runs) -> None:
    expected = runs[NONE].answer()
    wrong = [name for name, run in runs.items() if run.answer() != expected]
    report.verdict(
        "no strategy loses, doubles or changes a result",
        "correct for join reordering",
        f"{len(expected):,} results each" if not wrong else f"different: {', '.join(wrong)}",
        not wrong,
        kind="check",
    )


def migrated(run: Observed) -> Migrated:
    """The migration of a run that had one, which must have ended."""
    assert run.migration is not None and run.migration.ended is not None
    return run.migration


def _durations(report: Report, runs: Runs) -> None:
    genmig, track = migrated(runs[GENMIG]), migrated(runs[PT])
    report.verdict(
        "GenMig takes w",
        f"{WINDOW} ms",
        f"{genmig.duration} ms",
        abs(genmig.duration - WINDOW) <= STEP + 1,
    )
    report.verdict(
        "parallel track takes 2w, within 5 %",
        f"{2 * WINDOW} ms",
        f"{track.duration} ms",
        abs(track.duration / (2 * WINDOW) - 1) <= 0.05,
    )
    for name in (GENMIG, REFERENCE):
        migration = migrated(runs[name])
        split = migration.decision["split_after"] + 0.5
        starts = migration.starts.values()
        skew = max(starts) - min(starts)
        longest = WINDOW + 1
        batch = migration.started + migration.duration - split
        report.verdict(
            f"{name}: the split lies at most the longest validity, a tick and the skew after the least monitored start",
            f"not published; at most {longest} + 1 + {skew} ticks",
            f"{split - min(starts):g} ticks; the end of the batch adds {batch:g}",
            split - min(starts) <= longest + 1 + skew,
            kind="check",
        )


def _every_plan(report: Report) -> None:
    checked = split_margins()
    late = [f"{query} by {-margin:g}" for query, margin in checked.items() if margin < 0]
    report.verdict(
        f"the split lies within that bound on other plans too: {len(checked)} with distinct, aggregation, difference, "
        "union, hops, different windows and a silent stream",
        "not published; the same bound",
        f"at least {min(checked.values()):g} ticks to spare" if not late else f"too late: {'; '.join(late)}",
        not late,
        kind="check",
    )


def _parallel_track(report: Report, runs: Runs) -> None:
    run, migration = runs[PT], migrated(runs[PT])
    end = migration.started + migration.duration
    silent = [s for s in run.samples if START + WINDOW + STEP < s.application < end]
    lost = sum(s.released for s in silent)
    report.verdict(
        "parallel track gives nothing between start + w and its end",
        "rate 0 for 10 s",
        f"{lost} results in {len(silent) * STEP / 1000:.1f} s",
        lost == 0 and len(silent) * STEP >= 0.9 * WINDOW,
    )
    burst = max(s.released for s in run.samples if s.application >= end)
    usual = float(np.mean([s.released for s in runs[NONE].samples if s.application > START]))
    report.verdict(
        "parallel track ends with a burst",
        "a significant burst at 40 s",
        f"{burst:,} results at once, {burst / usual:,.0f} times a batch's usual {usual:.0f}",
        burst > 10 * usual,
    )


def _steady(report: Report, runs: Runs) -> None:
    for name in (GENMIG, REFERENCE):
        silence, usual = _silences(runs, name)
        report.verdict(
            f"{name} leaves no gap in the output",
            "a smooth output rate",
            f"longest silence {silence:g} ms, {usual:g} ms without a migration",
            silence <= usual + STEP,
        )
        most = max(s.released for s in runs[name].samples)
        greatest = max(s.released for s in runs[NONE].samples)
        report.verdict(
            f"{name} ends without a burst",
            "a smooth output rate",
            f"at most {most} results in a batch, {greatest} without a migration",
            most <= 1.5 * greatest,
        )


def _paced(report: Report, runs: Runs) -> None:
    migration = migrated(runs[PACED])
    report.verdict(
        "paced moving state takes at most w/4",
        "not published; the bar is 2500 ms",
        f"{migration.duration} ms",
        migration.duration <= WINDOW / 4,
        kind="own",
    )
    silence, usual = _silences(runs, PACED)
    report.verdict(
        "paced moving state is never silent for longer than a run without a migration, and one batch",
        f"not published; the bar is {usual + STEP:g} ms",
        f"{silence:g} ms",
        silence <= usual + STEP,
        kind="own",
    )


def busy_runs(load: Workload, cost: float) -> Runs:
    """A run with and one without paced moving state where the old plan, which costs so much, takes a share of time."""
    factor = BUSY * END / cost
    costs = Costs(COSTS.compare * factor, COSTS.insert * factor)
    change = Change(START, NEW, MovingStatePaced())
    return {
        NONE: Run(load, OLD, VirtualProcessor(costs), "virtual").run(),
        PACED: Run(load, OLD, VirtualProcessor(costs), "virtual", change).run(),
    }


def _paced_on_a_busy_processor(report: Report, load: Workload, cost: float) -> None:
    runs = busy_runs(load, cost)
    migration = migrated(runs[PACED])
    assert migration.ended_virtual is not None
    took = migration.ended_virtual - migration.started_virtual
    end = migration.ended_virtual + WINDOW
    silence, usual = (runs[name].longest_silence("virtual", START, end) for name in (PACED, NONE))
    done = f"{migration.moved.pairs:,} pairs compared and {migration.moved.inserts:,} rows inserted for it, at most "
    done += f"{migration.moved_in_a_step:.0f} ms in a batch"
    report.verdict(
        f"paced moving state takes at most w/4 of virtual time where the old plan takes {BUSY:.0%} of it",
        "not published; the bar is 2500 ms",
        f"{took:.0f} ms; {done}",
        took <= WINDOW / 4,
        kind="own",
    )
    report.verdict(
        "and it is never silent there for longer than a run without a migration, and one batch",
        f"not published; the bar is {usual + STEP:.0f} ms",
        f"{silence:.0f} ms",
        silence <= usual + STEP,
        kind="own",
    )


def _silences(runs: Runs, name: str) -> tuple[float, float]:
    """The longest silence of a run from the start of its migration to a window after its end, with and without it."""
    end = min(END, START + migrated(runs[name]).duration + WINDOW)
    return tuple(runs[which].longest_silence("application", START, end) for which in (name, NONE))  # type: ignore[return-value]
