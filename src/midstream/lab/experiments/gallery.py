"""All experiments as one site that opens offline, and as a summary in Markdown.

Every page is one file: verdicts, figures beside published facts, settings. Beside each page lies its data as JSON. The
summary holds what was measured and nothing else, so it is in step with the registry if it has the same experiments.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path

from midstream.lab.experiments.papers import PAPERS, Paper, paper_of
from midstream.lab.experiments.registry import EXPERIMENTS, repeat_experiment
from midstream.lab.experiments.report import PAGE, STYLE, Report, Verdict, counted, table

SUMMARY = "gallery.md"
SHOWN = {"yes": "yes", "in part": "**in part**", "no": "**no**"}
SEEDS = 5
"""How many seeds the committed gallery has."""


def make_gallery(
    folder: Path, seeds: int = 1, processes: int = 1, progress: Callable[[str], None] = lambda _: None
) -> list[Report]:
    """Reruns every experiment and writes the site and its summary."""
    folder.mkdir(parents=True, exist_ok=True)
    reports = []
    for number, name in enumerate(EXPERIMENTS, start=1):
        progress(f"{number} of {len(EXPERIMENTS)}: {name}")
        report = repeat_experiment(name, seeds, processes=processes)
        write_report(report, folder, index="index.html")
        reports.append(report)
    (folder / "index.html").write_text(index_page(reports), encoding="utf-8")
    (folder / SUMMARY).write_text(summary(reports), encoding="utf-8")
    return reports


def write_report(report: Report, folder: Path, index: str | None = None) -> Path:
    """Writes an experiment's page and its data."""
    data = f"{report.experiment}.json"
    (folder / data).write_text(json.dumps(report.data(), default=str), encoding="utf-8")
    page = folder / f"{report.experiment}.html"
    page.write_text(report.to_html(data=data, index=index), encoding="utf-8")
    return page


def index_page(reports: Sequence[Report]) -> str:
    """The front page: every experiment by paper, with how many of its claims hold."""
    parts = ["<h1>The papers' experiments, rerun</h1>", f"<p>{escape(total(reports))}</p>"]
    for paper, found in _by_paper(reports):
        rows = [
            (
                f'<a href="{escape(r.experiment)}.html">{escape(r.title)}</a>',
                counted(r.verdicts),
                "<br>".join(escape(f"{v.claim}: {v.outcome}") for v in r.verdicts if v.outcome != "yes") or "none",
            )
            for r in found
        ]
        parts += [
            f"<h2>{escape(paper.name)}</h2>",
            f"<p>{escape(paper.title)}</p>",
            table(("experiment", "claims that hold", "claims that do not, or in part"), rows),
        ]
    return PAGE.format(title="The papers' experiments, rerun", style=STYLE, body="\n".join(parts))


def summary(reports: Sequence[Report]) -> str:
    """The same as one page of Markdown, with every claim."""
    parts = [
        "# Gallery\n",
        f"Every experiment of the five papers, rerun by `midstream experiment all --seeds {SEEDS}`, which writes this "
        "page; [Experiments](experiments.md) says how things are measured and why some claims do not hold.\n",
        f"{total(reports)}\n",
        "A claim is *published*, our *own*, or a *check*: what could fail only if the experiment or the engine were "
        "wrong. *Measured* is the first seed's run. *Stable* says in how many runs the verdict holds: with other seeds "
        "(and between which values), and in the settings of the experiment's map, where the paper leaves them open. "
        "It *holds* if it does in all of them. A reason that a run has not shown is called a conjecture.\n",
        f"Run with Python {platform.python_version()} on {platform.system()} ({platform.machine()}). All figures but "
        "processor time are of virtual time and the same on every machine.\n",
    ]
    for paper, found in _by_paper(reports):
        parts.append(f"## {paper.name}\n\n{paper.title}. {counted([v for r in found for v in r.verdicts])}.\n")
        parts += [section(report) for report in found]
    return "\n".join(parts)


def section(report: Report) -> str:
    """An experiment's part of the summary."""
    rows = [f"{measured_cells(v)} {SHOWN[v.outcome]} | {v.stable or 'one run'} |" for v in report.verdicts]
    head = f"### {report.experiment}\n\n{report.title}. {counted(report.verdicts)}.\n"
    heading = ["| claim | kind | published | measured | holds | stable |", "|---|---|---|---|---|---|"]
    return "\n".join([head, *heading, *rows, *_map(report), ""])


def measured_cells(verdict: Verdict) -> str:
    """The part of a verdict's row that one run says."""
    said = (verdict.claim, verdict.kind, verdict.published, str(verdict.to_json()["measured"]))
    return f"| {' | '.join(map(_cell, said))} |"


def _map(report: Report) -> list[str]:
    """The map as a table: the mean of what is judged in each setting, and with how many seeds the claim holds."""
    if not report.map:
        return []
    headings, rows = report.map_table()
    lines = [f"| {' | '.join(map(_cell, line))} |" for line in (headings, *rows)]
    return [
        "",
        "The map: means over seeds, and with how many of them the claim holds.",
        "",
        lines[0],
        f"|{'---|' * len(headings)}",
        *lines[1:],
    ]


def _by_paper(reports: Iterable[Report]) -> list[tuple[Paper, list[Report]]]:
    found = list(reports)
    return [(paper, [r for r in found if paper_of(r.experiment) is paper]) for paper in PAPERS]


def total(reports: Sequence[Report]) -> str:
    """The claims of all experiments, by kind."""
    verdicts = [verdict for report in reports for verdict in report.verdicts]
    return f"{counted(verdicts)}, in {len(reports)} experiments."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("[", "\\[").replace("*", "\\*")
