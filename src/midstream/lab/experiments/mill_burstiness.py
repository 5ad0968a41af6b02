"""`mill-burstiness`: a sliding aggregate lets a union's output come in bursts; timestamps on demand smooth it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from midstream.lab.experiments.mill_graphs import COST, SECOND, SEED, Setting, Traffic, simulate, union_with_count
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.mill.virtual_time import Measured

SECONDS = 6.0
BIN = SECOND // 50
SLIDES = (0.02, 0.05, 0.1, 0.2, 0.4)


def mill_burstiness(seconds: float = SECONDS, slides: Sequence[float] = SLIDES, seed: int = SEED) -> Report:
    """Figure 16."""
    without, with_them = [], []
    for slide in slides:
        traffic = {"a": Traffic(1000), "b": Traffic(200)}
        setting = Setting(union_with_count(int(slide * SECOND)), traffic, seconds, seed)
        without.append(burstiness(simulate(setting, "none"), seconds))
        with_them.append(burstiness(simulate(setting, "on demand"), seconds))
    report = Report(
        "mill-burstiness",
        "Burstiness of the output by the slide of an aggregate",
        {
            "graph": "a stream behind a selection, united with the count per slide of another one",
            "rates": "1000/s and 200/s, Poisson",
            "burstiness": "(max - min) / mean of the number of results per 0.02 s",
            "slides": ", ".join(f"{slide:g} s" for slide in slides),
            "virtual seconds": seconds,
            "cost of an execution": f"{COST // 1000} microseconds of virtual time",
        },
    )
    report.verdict(
        "without timestamps on demand, burstiness grows with the slide",
        "curve A rises",
        _listed(slides, without),
        without == sorted(without) and without[-1] > 2 * without[0],
    )
    report.verdict(
        "with timestamps on demand, the slide no longer matters",
        "line B: the burstiness caused by the slide is gone",
        _listed(slides, with_them),
        max(with_them) < 1.25 * min(with_them),
        value=max(with_them) / min(with_them),
    )
    report.verdict(
        "timestamps on demand smooth the output at every slide",
        "line B lies below curve A",
        f"by {min(a / b for a, b in zip(without, with_them, strict=True)):.1f} times or more",
        all(a > b for a, b in zip(without, with_them, strict=True)),
    )
    report.figures.append(
        Figure(
            Plot(
                "Burstiness by slide",
                "slide in seconds",
                "(max - min) / mean",
                [Series("none", list(slides), without), Series("on demand", list(slides), with_them)],
            ),
            "Figure 16",
            ("curve A, without timestamps on demand, rises with the slide", "line B, with them, is flat"),
        )
    )
    return report


def burstiness(measured: Measured, seconds: float) -> float:
    """How uneven the output was, after the first and before the last tenth of the time."""
    bins = int(seconds * SECOND) // BIN
    counts = Counter(left // BIN for left, _ in measured.results)
    inner = [counts.get(i, 0) for i in range(bins // 10, bins - bins // 10)]
    return (max(inner) - min(inner)) / (sum(inner) / len(inner))


def _listed(slides: Sequence[float], values: Sequence[float]) -> str:
    return ", ".join(f"{slide:g} s: {value:.2f}" for slide, value in zip(slides, values, strict=True))
