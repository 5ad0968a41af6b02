"""D-CAPE's figure 12: how long load balancing takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from midstream.lab.experiments.dcape_job import PROTOCOLS, windows_on_job
from midstream.lab.experiments.dcape_run import Adaptation, Rates, Run, Setting
from midstream.lab.experiments.dcape_window_rate import WINDOWS
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.experiments.virtual_processor import Costs

RATE = 40
KEYS = {"A": 1000, "B": 1000, "C": 1000}
BEFORE, AFTER = 1.0, 2.3
"""Windows before the first move, and that the run lasts after it."""

NEAR = 0.15
"""By how much a length may differ from the one expected."""


@dataclass(frozen=True, slots=True)
class Point:
    """How long the first move took, in seconds: PTLB with the paper's purging and with intervals, and MSLB."""

    window: float
    ptlb: float
    by_intervals: float
    mslb: float


def setting(window: float, rate: float = RATE, seed: int = 1) -> Setting:
    """A cluster that keeps up, so that the sender's time is that of the streams."""
    ready = BEFORE * window
    return Setting(
        Rates(rate),
        window=window,
        end=ready + AFTER * window + 5,
        keys=KEYS,
        costs=Costs(0.1, 0.1),
        ready=ready,
        seed=seed,
    )


def measure(chosen: Setting) -> Point:
    """The first move of each protocol."""
    lengths = []
    for protocol, by_intervals in (("ptlb", False), ("ptlb", True), ("mslb", False)):
        run = Run(replace(chosen, by_intervals=by_intervals), Adaptation(protocol=protocol)).run(moves=1)
        lengths.append(run.moves[0].length if run.moves else float("nan"))
    return Point(chosen.window, *lengths)


def dcape_length(seed: int = 1, rate: float = RATE) -> Report:
    """Runs the four windows."""
    on_job = {protocol: windows_on_job(protocol, seed=seed) for protocol in PROTOCOLS}
    return report_of([measure(setting(window, rate, seed)) for window in WINDOWS], on_job)


def report_of(points: Sequence[Point], on_job: Mapping[str, float] | None = None) -> Report:
    """What the points say about figure 12, and the windows that moves took on a running job, by protocol."""
    chosen = setting(points[0].window)
    listed = ", ".join(f"{p.window:g}" for p in points)
    report = Report(
        "dcape-length",
        "Length of load balancing (D-CAPE, figure 12)",
        {**chosen.describe(), "window": f"{listed} s", "balancing": "the first move, after one window"},
    )
    report.verdict(
        "PTLB takes about 2W",
        "always approximately 2W",
        ", ".join(f"{p.ptlb / p.window:.2f} W" for p in points),
        all(abs(p.ptlb / p.window - 2) <= 2 * NEAR for p in points),
    )
    report.verdict(
        "PTLB takes W where rows are kept for the intersection of their parts' intervals",
        "not in the paper, where a combined row is kept for a window after its latest part",
        ", ".join(f"{p.by_intervals / p.window:.2f} W" for p in points),
        all(abs(p.by_intervals / p.window - 1) <= NEAR for p in points),
        kind="own",
    )
    report.verdict(
        "MSLB takes much less",
        "usually much shorter",
        ", ".join(f"{p.mslb:.2f} s" for p in points),
        all(p.mslb <= 0.1 * p.ptlb for p in points),
    )
    if on_job is not None:
        report.verdict(
            "on a job with two slots PTLB and split-time balancing take W, and MSLB is over between two batches",
            "not in the paper",
            ", ".join(f"{protocol} {length:.2f} W" for protocol, length in on_job.items()),
            all(abs(length - (protocol != "mslb")) <= NEAR for protocol, length in on_job.items()),
            kind="own",
        )
    windows = [p.window for p in points]
    series = [
        Series("PTLB", windows, [p.ptlb for p in points]),
        Series("PTLB by intervals", windows, [p.by_intervals for p in points]),
        Series("MSLB", windows, [p.mslb for p in points]),
        Series("2W", windows, [2 * w for w in windows]),
    ]
    plot = Plot("Length of a move at 40 rows/s", "window in seconds", "seconds", series)
    report.figures.append(Figure(plot, "Figure 12", ["PTLB lies on 2W.", "MSLB is far below and grows little."]))
    report.notes.append(
        "A sender that is overloaded takes longer by as much as its rows wait: PTLB ends by the time of rows, and MSLB "
        "must process what is queued before it can send."
    )
    return report
