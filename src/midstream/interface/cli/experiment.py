"""`midstream experiment`: a paper's experiment run anew, with a verdict per claim."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json
from midstream.lab.experiments.registry import EXPERIMENTS, run_experiment
from midstream.lab.experiments.report import Report


@ends_clearly
def experiment(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(EXPERIMENTS)}.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where to write the HTML report (default: here).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Rerun a paper's experiment: an HTML report with plots, and a verdict per claim.

    \b
    Example:
      midstream experiment genmig-rates --out reports
    """
    report = run_experiment(name)
    if out is not None or not json:
        folder = out or Path()
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / f"{name}.html"
        page.write_text(report.to_html(), encoding="utf-8")
        note(f"report: {page}")
    if json:
        show_json(report.to_json())
    else:
        _show(report)


def _show(report: Report) -> None:
    table = Table(title=report.title)
    for heading in ("claim", "published", "measured", "holds"):
        table.add_column(heading)
    for verdict in report.verdicts:
        row = verdict.to_json()
        table.add_row(verdict.claim, verdict.published, row["measured"], "yes" if verdict.holds else "NO")
    Console().print(table)
