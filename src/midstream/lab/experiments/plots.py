"""Line plots as SVG text, without a plotting library.

A plot is a value: series over one pair of axes, and vertical marks for moments that matter. Drawing it is a pure
function of the value, so a report is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 44
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#555555")
"""Told apart by colour-blind readers too; dashes tell them apart in print."""
DASHES = ("", "7 3", "2 2", "9 3 2 3", "4 4", "1 3", "12 4")
MOST_POINTS = 600
"""What a line needs at this width; more only makes the file larger."""


@dataclass(frozen=True, slots=True)
class Series:
    """A named line; `points` draws each value apart instead, without a line."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    points: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """Series over one pair of axes; marks are vertical lines with a name."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    marks: Sequence[tuple[float, str]] = ()
    steps: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """Where values lie on the drawing; both axes start at their least value, or at 0."""

    x_ticks: Sequence[float]
    y_ticks: Sequence[float]

    def x(self, value: float) -> float:
        """The place of a value along the drawing's width."""
        return LEFT + _share(value, self.x_ticks) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """The place of a value along the drawing's height."""
        return HEIGHT - BOTTOM - _share(value, self.y_ticks) * (HEIGHT - TOP - BOTTOM)


def svg(plot: Plot) -> str:
    """The plot as one SVG element."""
    axes = _axes(plot)
    inside = [*_grid(axes), *_marks(plot, axes), *_lines(plot, axes), *_labels(plot)]
    opening = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(plot.title)}">'
    return "\n".join([opening, *inside, "</svg>"])


def legend(plot: Plot) -> str:
    """The names of the series beside samples of their lines."""
    entries = []
    for i, series in enumerate(plot.series):
        sample = (
            f'<circle cx="14" cy="6" r="3.5" fill="{_colour(i)}"/>'
            if series.points
            else f'<line x1="0" y1="6" x2="28" y2="6" {_stroke(i)}/>'
        )
        entries.append(f'<span><svg class="sample" viewBox="0 0 28 12">{sample}</svg>{escape(series.name)}</span>')
    return f'<p class="legend">{"".join(entries)}</p>'


def ticks(least: float, most: float, about: int = 6) -> list[float]:
    """Round values that cover a range.

    >>> ticks(0, 9)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    span = (most - least) or abs(most) or 1.0
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def _axes(plot: Plot) -> Axes:
    xs = [x for series in plot.series for x in series.xs] or [0.0]
    ys = [y for series in plot.series for y in series.ys] or [0.0]
    return Axes(ticks(min(xs), max(xs), 8), ticks(min(0.0, *ys) if ys else 0.0, max(ys), 5))


def _share(value: float, along: Sequence[float]) -> float:
    return (value - along[0]) / (along[-1] - along[0])


def _grid(axes: Axes) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in axes.y_ticks:
        y = axes.y(value)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>'
    for value in axes.x_ticks:
        x = axes.x(value)
        yield f'<line class="axis" x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 4}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{_number(value)}</text>'
    yield f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>'


def _marks(plot: Plot, axes: Axes) -> Iterator[str]:
    for i, (value, name) in enumerate(plot.marks):
        x, y = axes.x(value), TOP + 10 + 13 * (i % 4)
        anchor, beside = ("end", x - 4) if x > WIDTH - 150 else ("start", x + 4)
        yield f'<line class="mark" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text class="mark" x="{beside:.1f}" y="{y}" text-anchor="{anchor}">{escape(name)}</text>'


def _lines(plot: Plot, axes: Axes) -> Iterator[str]:
    for i, series in enumerate(plot.series):
        if series.points:
            for x, y in zip(series.xs, series.ys, strict=True):
                yield f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3.5" fill="{_colour(i)}"/>'
            continue
        places = [(axes.x(x), axes.y(y)) for x, y in _thinned(series)]
        if plot.steps:
            places = _stepped(places)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline fill="none" points="{path}" {_stroke(i)}/>'


def _stepped(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    corners = [corner for (_, y), (x, _) in zip(places, places[1:], strict=False) for corner in [(x, y)]]
    return [place for pair in zip(places, corners, strict=False) for place in pair] + places[-1:]


def _thinned(series: Series) -> list[tuple[float, float]]:
    """At most about `MOST_POINTS` points: of each run the least and the greatest, so that no peak is lost."""
    points = list(zip(series.xs, series.ys, strict=True))
    run = 2 * math.ceil(len(points) / MOST_POINTS)
    if len(points) <= MOST_POINTS:
        return points
    kept = []
    for start in range(0, len(points), run):
        part = points[start : start + run]
        ends = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        kept.extend(sorted(ends))
    return kept


def _labels(plot: Plot) -> Iterator[str]:
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    yield f'<text x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(plot.x_label)}</text>'
    height = TOP + (HEIGHT - TOP - BOTTOM) / 2
    turned = f'transform="rotate(-90 14 {height:.0f})"'
    yield f'<text x="14" y="{height:.0f}" text-anchor="middle" {turned}>{escape(plot.y_label)}</text>'


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _stroke(i: int) -> str:
    dash = DASHES[i % len(DASHES)]
    return f'stroke="{_colour(i)}" stroke-width="1.8"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
