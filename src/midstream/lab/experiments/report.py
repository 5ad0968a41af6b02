"""What an experiment says: settings, verdicts computed from the run, and plots beside the published figures' facts.

A claim that does not hold stays in the report, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from midstream.lab.experiments.plots import Plot, legend, svg

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --soft: #666; --line: #ddd;
  --yes: #1a7f37; --no: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #181818; --soft: #aaa; --line: #3a3a3a; --yes: #5fcf80; --no: #ff8a80; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
a { color: inherit; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin: 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .7rem .4rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
.yes { color: var(--yes); font-weight: 600; } .no { color: var(--no); font-weight: 600; }
.reason, .legend, ul { color: var(--soft); font-size: .9rem; } ul { padding-left: 1.1rem; }
.legend span { margin-right: 1.2rem; white-space: nowrap; }
.sample { width: 28px; height: 12px; margin-right: .35rem; }
.beside { display: grid; grid-template-columns: 2fr 1fr; gap: 1.5rem; } figure { margin: 0; }
@media (max-width: 50rem) { .beside { grid-template-columns: 1fr; } }
figure svg[role] { width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--ink); }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); }
line.mark { stroke: var(--soft); stroke-dasharray: 3 3; } svg text.mark { fill: var(--soft); font-size: 11px; }
"""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{style}</style></head><body>
{body}
</body></html>
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, what was published, what this run measured, and whether the claim holds; if not, why."""

    claim: str
    published: str
    measured: str
    holds: bool
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The verdict as the contract has it; a reason stands beside what was measured."""
        measured = self.measured if self.holds or not self.reason else f"{self.measured} ({self.reason})"
        return {"claim": self.claim, "published": self.published, "measured": measured, "holds": bool(self.holds)}


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot, and facts of the published figure that it stands beside."""

    plot: Plot
    published: str
    facts: Sequence[str] = ()


@dataclass(slots=True)
class Report:
    """All that an experiment says."""

    experiment: str
    title: str
    settings: Mapping[str, Any]
    verdicts: list[Verdict] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def verdict(self, claim: str, published: str, measured: str, holds: bool, reason: str = "") -> None:
        """Adds a verdict; the reason is shown only if the claim does not hold."""
        self.verdicts.append(Verdict(claim, published, measured, bool(holds), reason))

    def to_json(self) -> dict[str, Any]:
        """One object, as the contract has it."""
        return {
            "experiment": self.experiment,
            "settings": dict(self.settings),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
        }

    def data(self) -> dict[str, Any]:
        """All that was measured: what `to_json` has, notes, and every point of every figure."""
        figures = [
            {
                "title": figure.plot.title,
                "x": figure.plot.x_label,
                "y": figure.plot.y_label,
                "published": figure.published,
                "facts": list(figure.facts),
                "series": [{"name": s.name, "x": list(s.xs), "y": list(s.ys)} for s in figure.plot.series],
            }
            for figure in self.figures
        ]
        return {**self.to_json(), "title": self.title, "notes": list(self.notes), "figures": figures}

    def to_html(self, data: str | None = None, index: str | None = None) -> str:
        """One page that needs no other file; it may link to its data and to an index beside it."""
        links = [(index, "all experiments"), (data, "data of the figures (JSON)")]
        linked = " · ".join(f'<a href="{escape(to)}">{escape(text)}</a>' for to, text in links if to)
        parts = [
            f"<h1>{escape(self.title)}</h1>",
            *([f"<p>{linked}</p>"] if linked else []),
            "<h2>Verdicts</h2>",
            table(("claim", "published", "measured", "holds"), [_verdict_row(v) for v in self.verdicts]),
            *(_figure(figure) for figure in self.figures),
            *(["<h2>Notes</h2>", *(f"<p>{escape(note)}</p>" for note in self.notes)] if self.notes else []),
            "<h2>Settings</h2>",
            table(("setting", "value"), [(escape(str(k)), escape(str(v))) for k, v in self.settings.items()]),
        ]
        return PAGE.format(title=escape(self.title), style=STYLE, body="\n".join(parts))


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    reason = "" if verdict.holds or not verdict.reason else f'<div class="reason">{escape(verdict.reason)}</div>'
    holds = '<span class="yes">yes</span>' if verdict.holds else '<span class="no">no</span>'
    return escape(verdict.claim), escape(verdict.published), escape(verdict.measured) + reason, holds


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _figure(figure: Figure) -> str:
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in figure.facts)
    drawn = f"<figure>{svg(figure.plot)}{legend(figure.plot)}</figure>"
    beside = f"<div><h3>{escape(figure.published)}, as published</h3><ul>{facts}</ul></div>"
    return f'<h2>{escape(figure.plot.title)}</h2>\n<div class="beside">{drawn}{beside}</div>'
