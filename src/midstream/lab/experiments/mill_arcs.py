"""`mill-arcs`: timestamps that skip what has no use for them, against punctuation that passes every operator."""

from __future__ import annotations

from collections.abc import Mapping

from midstream.lab.experiments.mill_graphs import (
    COST,
    SECOND,
    Build,
    Setting,
    Traffic,
    nested_unions,
    nested_unions_and_count,
    simple_union,
    simulate,
    union_with_count,
)
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.mill.virtual_time import Measured, Mode

SECONDS = 8.0
MODES: tuple[Mode, ...] = ("none", "punctuation", "on demand")
RATES = {"a": Traffic(300), "b": Traffic(30), "c": Traffic(3), "d": Traffic(100)}
WHOLE = "nested unions, selections and a sliding count"


def _settings(seconds: float) -> dict[str, Setting]:
    def setting(build: Build, names: str) -> Setting:
        return Setting(build, {name: RATES[name] for name in names}, seconds)

    slide = SECOND // 10
    return {
        "one union": setting(simple_union, "ab"),
        "a union with a sliding count": setting(union_with_count(slide), "ab"),
        "nested unions": setting(nested_unions, "abc"),
        "nested unions and a count, no selections": setting(nested_unions_and_count(slide, 0), "abcd"),
        WHOLE: setting(nested_unions_and_count(slide), "abcd"),
    }


def mill_arcs(seconds: float = SECONDS) -> Report:
    """Figure 15."""
    runs = {graph: {mode: simulate(setting, mode) for mode in MODES} for graph, setting in _settings(seconds).items()}
    report = Report(
        "mill-arcs",
        "Timestamps along arcs against punctuation through every operator",
        {
            "graph of the figure": "a and b, two selections each, united; two selections; united with c behind two"
            " selections; two selections; united with the count per 0.1 s of d behind two selections",
            "rates": ", ".join(f"{name}: {traffic.rate:g}/s" for name, traffic in RATES.items()),
            "selections": "97.5 % pass each",
            "virtual seconds": seconds,
            "cost of an execution": f"{COST // 1000} microseconds of virtual time",
            "strategy": "dfs",
        },
    )
    _verdicts(report, runs)
    graphs = list(runs)
    report.figures.append(
        Figure(
            Plot(
                "Operator executions by graph (in the order of the verdicts)",
                "graph",
                "executions",
                [Series(m, list(range(len(graphs))), [float(runs[g][m].steps) for g in graphs]) for m in MODES],
            ),
            "Figure 15b",
            ("punctuation has a latency 14 % higher", "the difference grows with the share of operators passed by"),
        )
    )
    return report


def _verdicts(report: Report, runs: Mapping[str, Mapping[Mode, Measured]]) -> None:
    whole = runs[WHOLE]
    for mode in ("punctuation", "on demand"):
        cut = whole["none"].mean_latency / whole[mode].mean_latency
        report.verdict(
            f"idle waiting is resolved by {'arcs' if mode == 'on demand' else mode}",
            "effectively (figure 15a)",
            f"mean latency cut {cut:,.0f} times, to {whole[mode].mean_latency / 1e6:.3f} ms",
            cut >= 10,
        )
    slower = whole["punctuation"].mean_latency / whole["on demand"].mean_latency - 1
    report.verdict(
        "punctuation has a higher latency than arcs",
        "14 % higher (figure 15b)",
        f"{100 * slower:.1f} % higher",
        slower > 0,
    )
    for graph, measured in runs.items():
        arcs, punctuation = measured["on demand"].steps, measured["punctuation"].steps
        report.verdict(
            f"arcs need fewer operator executions: {graph}",
            "arcs bypass operators that have no use for timestamps",
            f"{arcs:,} against {punctuation:,} ({100 * (punctuation / arcs - 1):.0f} % more)",
            arcs < punctuation,
        )
