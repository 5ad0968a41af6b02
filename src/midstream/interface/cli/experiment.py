"""`midstream experiment`: the papers' experiments rerun, with a verdict per claim."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json
from midstream.interface.tables import plain_table
from midstream.lab.experiments.gallery import SUMMARY, make_gallery, write_report
from midstream.lab.experiments.registry import EXPERIMENTS, PLACES, SIMULATED, run_experiment
from midstream.lab.experiments.report import Report

ALL = "all"


@ends_clearly
def experiment(
    name: Annotated[str, typer.Argument(help=f"'all', or one of: {', '.join(EXPERIMENTS)}.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Where to write pages and data (default: here; for 'all', the folder gallery).",
        ),
    ] = None,
    on: Annotated[
        str, typer.Option("--on", help=f"Where it runs: simulated, or on a job, {' or '.join(PLACES)}.")
    ] = SIMULATED,
    json: options.Json = False,
) -> None:
    """Rerun a paper's experiment, or all of them: HTML pages with figures, and a verdict per claim.

    \b
    Example:
      midstream experiment genmig-rates --out reports
      midstream experiment dcape-throughput --on local
      midstream experiment all -o gallery          some minutes; open gallery/index.html
    """
    if name == ALL:
        _all(out or Path("gallery"), json)
    else:
        _one(name, on, out, json)


def _one(name: str, on: str, out: Path | None, json: bool) -> None:
    report = run_experiment(name, on)
    if out is not None or not json:
        folder = out or Path()
        folder.mkdir(parents=True, exist_ok=True)
        note(f"report: {write_report(report, folder)}")
    if json:
        show_json(report.to_json())
    else:
        _show(report)


def _all(folder: Path, json: bool) -> None:
    reports = make_gallery(folder, note)
    note(f"gallery: {folder / 'index.html'}, summary: {folder / SUMMARY}")
    if json:
        show_json({"experiments": [report.to_json() for report in reports]})
    else:
        _show_totals(reports)


def _show(report: Report) -> None:
    table = plain_table(report.title)
    for heading in ("claim", "published", "measured", "holds"):
        table.add_column(heading)
    for verdict in report.verdicts:
        row = verdict.to_json()
        table.add_row(verdict.claim, verdict.published, row["measured"], "yes" if verdict.holds else "NO")
    Console().print(table)


def _show_totals(reports: Sequence[Report]) -> None:
    table = plain_table()
    for heading in ("experiment", "claims that hold", "claims that do not"):
        table.add_column(heading)
    for report in reports:
        failed = [verdict.claim for verdict in report.verdicts if not verdict.holds]
        held = len(report.verdicts) - len(failed)
        table.add_row(report.experiment, f"{held} of {len(report.verdicts)}", "\n".join(failed))
    Console().print(table)
