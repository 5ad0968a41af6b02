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
from midstream.lab.experiments.registry import EXPERIMENTS, run_experiment
from midstream.lab.experiments.report import PAGE, STYLE, Report, table

SUMMARY = "gallery.md"
YES, NO = "yes", "**no**"


def make_gallery(folder: Path, progress: Callable[[str], None] = lambda _: None) -> list[Report]:
    """Reruns every experiment and writes the site and its summary."""
    folder.mkdir(parents=True, exist_ok=True)
    reports = []
    for number, name in enumerate(EXPERIMENTS, start=1):
        progress(f"{number} of {len(EXPERIMENTS)}: {name}")
        report = run_experiment(name)
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
    parts = ["<h1>The papers' experiments, rerun</h1>", f"<p>{escape(_total(reports))}</p>"]
    for paper, found in _by_paper(reports):
        rows = [
            (
                f'<a href="{escape(r.experiment)}.html">{escape(r.title)}</a>',
                _holds(r),
                "<br>".join(escape(v.claim) for v in r.verdicts if not v.holds) or "none",
            )
            for r in found
        ]
        parts += [
            f"<h2>{escape(paper.name)}</h2>",
            f"<p>{escape(paper.title)}</p>",
            table(("experiment", "claims that hold", "claims that do not"), rows),
        ]
    return PAGE.format(title="The papers' experiments, rerun", style=STYLE, body="\n".join(parts))


def summary(reports: Sequence[Report]) -> str:
    """The same as one page of Markdown, with every claim."""
    parts = [
        "# Gallery\n",
        "Every experiment of the five papers, rerun by `midstream experiment all`, which writes this page; "
        "[Experiments](experiments.md) says how things are measured and why some claims do not hold.\n",
        f"{_total(reports)} Run with Python {platform.python_version()} on {platform.system()} "
        f"({platform.machine()}). All figures but processor time are of virtual time and the same on every machine.\n",
    ]
    for paper, found in _by_paper(reports):
        parts.append(f"## {paper.name}\n\n{paper.title}.\n")
        parts += [section(report) for report in found]
    return "\n".join(parts)


def section(report: Report) -> str:
    """An experiment's part of the summary."""
    rows = [
        f"| {_cell(v.claim)} | {_cell(v.published)} | {_cell(v.to_json()['measured'])} | {YES if v.holds else NO} |"
        for v in report.verdicts
    ]
    head = f"### {report.experiment}\n\n{report.title}: {_holds(report)} claims hold.\n"
    return "\n".join([head, "| claim | published | measured | holds |", "|---|---|---|---|", *rows, ""])


def _by_paper(reports: Iterable[Report]) -> list[tuple[Paper, list[Report]]]:
    found = list(reports)
    return [(paper, [r for r in found if paper_of(r.experiment) is paper]) for paper in PAPERS]


def _holds(report: Report) -> str:
    return f"{sum(v.holds for v in report.verdicts)} of {len(report.verdicts)}"


def _total(reports: Sequence[Report]) -> str:
    verdicts = [verdict for report in reports for verdict in report.verdicts]
    return f"{sum(v.holds for v in verdicts)} of {len(verdicts)} claims hold in {len(reports)} experiments."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("[", "\\[").replace("*", "\\*")
