"""What an experiment says: settings, verdicts computed from the run, and plots beside the published figures' facts.

Claims that were published, claims of our own and checks are counted apart. A check is what could fail only if the
experiment or the engine were wrong: it shows that the setting is the one meant, and is evidence of nothing. A claim
that does not hold stays in the report, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, TypedDict, Unpack

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
.yes { color: var(--yes); font-weight: 600; } .part, .no { color: var(--no); font-weight: 600; }
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


Kind = Literal["published", "own", "check"]
KINDS: dict[Kind, str] = {"published": "published claims", "own": "claims of our own", "check": "checks"}
"""What verdicts are about, in the order in which they are counted."""

Outcome = Literal["yes", "in part", "no"]


@dataclass(frozen=True, slots=True)
class Stable:
    """In how many runs a verdict held: with other seeds, and in other settings of the experiment's map."""

    seeds_held: int
    seeds: int
    settings_held: int = 0
    settings: int = 0
    values: tuple[float, ...] = ()
    """What was judged, in every run with another seed."""

    @property
    def share(self) -> float:
        """The share of all runs."""
        return (self.seeds_held + self.settings_held) / (self.seeds + self.settings)

    def __str__(self) -> str:
        span = f" ({min(self.values):.3g} to {max(self.values):.3g})" if len(self.values) > 1 else ""
        found = f"{self.seeds_held} of {self.seeds} seeds{span}"
        return found + (f", {self.settings_held} of {self.settings} runs of the map" if self.settings else "")

    def to_json(self) -> dict[str, Any]:
        """The counts, and the share of all runs."""
        counts = {"seeds": [self.seeds_held, self.seeds], "settings": [self.settings_held, self.settings]}
        return {"share": round(self.share, 4), **counts, "values": list(self.values)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, what was published, what this run measured, and whether the claim holds; if not, why.

    `value` is the number that decides. A reason is a `conjecture` unless the run has shown it. What is measured by the
    processor's clock (`clocked`) is another number in every run.
    """

    claim: str
    published: str
    measured: str
    holds: bool
    reason: str = ""
    kind: Kind = "published"
    value: float | None = None
    conjecture: bool = False
    clocked: bool = False
    stable: Stable | None = None

    @property
    def outcome(self) -> Outcome:
        """Whether it holds in all runs, in some or in none."""
        share = float(self.holds) if self.stable is None else self.stable.share
        return "yes" if share == 1 else "no" if share == 0 else "in part"

    @property
    def why(self) -> str:
        """The reason, said to be a conjecture if it is one; nothing where the claim holds."""
        if self.holds or not self.reason:
            return ""
        return f"conjecture: {self.reason}" if self.conjecture else self.reason

    def to_json(self) -> dict[str, Any]:
        """The verdict as the contract has it; a reason stands beside what was measured."""
        return {
            "claim": self.claim,
            "published": self.published,
            "measured": f"{self.measured} ({self.why})" if self.why else self.measured,
            "holds": self.outcome == "yes",
            "kind": self.kind,
            **({} if self.stable is None else {"stable": self.stable.to_json()}),
        }


class Further(TypedDict, total=False):
    """What only some verdicts say."""

    kind: Kind
    value: float
    conjecture: bool
    clocked: bool


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many claims of each kind hold, hold in part, and do not.

    >>> counted([Verdict("a", "", "", True), Verdict("b", "", "", False), Verdict("c", "", "", True, kind="own")])
    '1 of 2 published claims hold; 1 of 1 claims of our own'
    """
    parts: list[str] = []
    for kind, name in KINDS.items():
        outcomes = [verdict.outcome for verdict in verdicts if verdict.kind == kind]
        if outcomes:
            partly = f", {outcomes.count('in part')} in part" if "in part" in outcomes else ""
            verb = "" if parts else " hold"
            parts.append(f"{outcomes.count('yes')} of {len(outcomes)} {name}{verb}{partly}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot, and facts of the published figure that it stands beside."""

    plot: Plot
    published: str
    facts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class MapRow:
    """A setting of an experiment's map, and by claim that was judged there how often it held, with which values."""

    setting: Mapping[str, Any]
    found: Mapping[str, Stable]


@dataclass(slots=True)
class Report:
    """All that an experiment says."""

    experiment: str
    title: str
    settings: Mapping[str, Any]
    verdicts: list[Verdict] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    map: list[MapRow] = field(default_factory=list)

    def verdict(
        self, claim: str, published: str, measured: str, holds: bool, reason: str = "", **more: Unpack[Further]
    ) -> None:
        """Adds a verdict; the reason is shown only if the claim does not hold."""
        self.verdicts.append(Verdict(claim, published, measured, bool(holds), reason, **more))

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
        mapped = [
            {"setting": dict(row.setting), "claims": {claim: s.to_json() for claim, s in row.found.items()}}
            for row in self.map
        ]
        return {**self.to_json(), "title": self.title, "notes": list(self.notes), "figures": figures, "map": mapped}

    def map_table(self) -> tuple[list[str], list[list[str]]]:
        """The map as headings and rows: what was judged in each setting, the mean of its seeds and how many held."""
        claims = [claim for claim, found in self.map[0].found.items() if found.values]
        varied = [name for name, value in self.map[0].setting.items() if value != self.map[-1].setting[name]]
        rows = [
            [*(str(row.setting[name]) for name in varied), *(_map_cell(row.found[claim]) for claim in claims)]
            for row in self.map
        ]
        return [*varied, *claims], rows

    def to_html(self, data: str | None = None, index: str | None = None) -> str:
        """One page that needs no other file; it may link to its data and to an index beside it."""
        links = [(index, "all experiments"), (data, "data of the figures (JSON)")]
        linked = " · ".join(f'<a href="{escape(to)}">{escape(text)}</a>' for to, text in links if to)
        parts = [
            f"<h1>{escape(self.title)}</h1>",
            *([f"<p>{linked}</p>"] if linked else []),
            "<h2>Verdicts</h2>",
            f"<p>{escape(counted(self.verdicts))}.</p>",
            table(
                ("claim", "kind", "published", "measured", "holds", "stable"), [_verdict_row(v) for v in self.verdicts]
            ),
            *(["<h2>Map</h2>", table(*self.map_table())] if self.map else []),
            *(_figure(figure) for figure in self.figures),
            *(["<h2>Notes</h2>", *(f"<p>{escape(note)}</p>" for note in self.notes)] if self.notes else []),
            "<h2>Settings</h2>",
            table(("setting", "value"), [(escape(str(k)), escape(str(v))) for k, v in self.settings.items()]),
        ]
        return PAGE.format(title=escape(self.title), style=STYLE, body="\n".join(parts))


def _map_cell(found: Stable) -> str:
    mean = f"{sum(found.values) / len(found.values):.2f}" if found.values else "-"
    return f"{mean} ({found.seeds_held}/{found.seeds})"


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    reason = f'<div class="reason">{escape(verdict.why)}</div>' if verdict.why else ""
    shown = {"yes": "yes", "in part": "part", "no": "no"}[verdict.outcome]
    return (
        escape(verdict.claim),
        verdict.kind,
        escape(verdict.published),
        escape(verdict.measured) + reason,
        f'<span class="{shown}">{verdict.outcome}</span>',
        escape(str(verdict.stable or "one run")),
    )


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
