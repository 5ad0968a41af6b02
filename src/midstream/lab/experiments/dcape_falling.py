"""D-CAPE's figure 13: rates that have just fallen favour PTLB."""

from __future__ import annotations

from midstream.lab.experiments.dcape_run import Adaptation, Observed, Rates, Run, Setting
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.experiments.virtual_processor import Costs

COST, WINDOW, END, KEYS, TICK = 0.3, 60.0, 90.0, 5000, 5.0
MAP = {"cost": (0.3, 0.7), "window": (20.0, 60.0), "end": (90.0, 150.0), "keys": (500, 5000)}
"""Where figure 13 is repeated: speed, window, length of the run, and C's domain as large as A's or ten times that."""

MORE = 0.01
"""From what share on one protocol counts as ahead of the other at the end."""

ADAPTATIONS = (Adaptation(), Adaptation(True, "ptlb"), Adaptation(True, "mslb"))


def setting_of(cost: float, window: float, end: float, keys: int, seed: int) -> Setting:
    """A setting of the map: balancing begins five seconds after the rates have fallen."""
    return Setting(
        Rates(100, 5),
        window=window,
        end=end,
        keys={"A": 500, "B": 500, "C": keys},
        costs=Costs(cost, cost),
        ready=35,
        tick=TICK,
        optimised="fullest",
        seed=seed,
    )


def dcape_falling(
    seed: int = 1, cost: float = COST, window: float = WINDOW, end: float = END, keys: int = KEYS
) -> Report:
    """Runs both protocols after the fall."""
    setting = setting_of(cost, window, end, keys, seed)
    return report_of(setting, [Run(setting, adaptation).run() for adaptation in ADAPTATIONS])


def report_of(setting: Setting, runs: list[Observed]) -> Report:
    """What the runs say about figure 13."""
    base, ptlb, mslb = runs
    report = Report("dcape-falling", "Rates that have fallen favour PTLB (D-CAPE, figure 13)", setting.describe())
    report.verdict(
        f"PTLB gives more results than MSLB after balancing has begun, by {MORE:.0%} or more",
        "PTLB has better performance after the load balancing process is triggered",
        f"{ptlb.results:,} with LM-PTLB, {mslb.results:,} with LM-MSLB, {base.results:,} without adaptation",
        ptlb.results >= (1 + MORE) * mslb.results,
        "where nobody is overloaded for long, both have given all results by the end of the run",
        conjecture=True,
        value=ptlb.results / max(1, mslb.results),
    )
    seconds = [s.second for s in ptlb.samples if s.second > setting.ready]
    ahead = sum(ptlb.at(second).results >= mslb.at(second).results for second in seconds) / max(1, len(seconds))
    report.verdict(
        "PTLB is ahead of MSLB at every moment from then on",
        "the curves part when balancing begins",
        f"ahead or level in {ahead:.0%} of the time",
        ahead == 1.0,
        "while rows of MSLB's groups wait, its sender has less to do and is ahead with its other groups for a while",
        conjecture=True,
        value=ahead,
    )
    _standstill(report, ptlb, mslb)
    series = [
        Series(run.adaptation.name, [s.second for s in run.samples], [float(s.results) for s in run.samples])
        for run in runs
    ]
    marks = [(setting.rates.at, "rates of B and C fall"), (setting.ready, "balancing")]
    plot = Plot("Accumulated results", "seconds", "results", series, marks)
    report.figures.append(Figure(plot, "Figure 13", ["PTLB is ahead of MSLB from the start of balancing on."]))
    report.notes.append(
        "Most of MSLB's time is spent before anything is sent: the sender first processes what is queued for the "
        "groups, while new rows of them wait. The local plan of the fullest machine differs from the receiver's by "
        "then, so states of intermediate results cannot be matched and are recomputed."
    )
    return report


def _standstill(report: Report, ptlb: Observed, mslb: Observed) -> None:
    """How much of MSLB's lag arises while the groups it moves stand still."""
    longest = max((*mslb.moves, *mslb.unfinished), key=lambda move: move.length, default=None)
    final = ptlb.results - mslb.results
    opened = 0 if longest is None else _lag(ptlb, mslb, longest.ended) - _lag(ptlb, mslb, longest.begun)
    share = opened / final if final > 0 else 0.0
    stood = 0.0 if longest is None else longest.length
    report.verdict(
        "MSLB falls behind while its groups stand still: at least half of its lag arises then",
        "large states are costly to move and recompute, purging is cheap at low rates",
        f"{opened:,} of {final:,} results of lag ({share:.0%}) arise while groups stand still for {stood:.1f} s"
        f"{', to the end of the run' if mslb.unfinished else ''}; {sum(m.shipped for m in mslb.moves):,} rows shipped",
        share >= 0.5,
        "there is no lag" if final <= 0 else "the lag arises at other times",
        value=share,
    )


def _lag(ahead: Observed, behind: Observed, second: float) -> int:
    return ahead.at(second).results - behind.at(second).results
