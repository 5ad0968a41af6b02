"""`midstream experiment`: the papers' experiments rerun, with a verdict per claim."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from midstream.errors import JobError
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json
from midstream.interface.tables import plain_table
from midstream.lab.experiments.gallery import SUMMARY, make_gallery, total, write_report
from midstream.lab.experiments.registry import EXPERIMENTS, PLACES, SIMULATED, repeat_experiment, run_experiment
from midstream.lab.experiments.report import Report, counted

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
    seed: Annotated[int | None, typer.Option(help="The first seed; without it, the experiment's own.")] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="How many seeds; with several, in every setting of the experiment's map too.")
    ] = 1,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the experiment; repeatable.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many runs at a time, where there are several.")] = 1,
    json: options.Json = False,
) -> None:
    """Rerun a paper's experiment, or all of them: HTML pages with figures, and a verdict per claim.

    \b
    Example:
      midstream experiment genmig-rates --out reports
      midstream experiment dcape-throughput --on local --seeds 5
      midstream experiment dcape-falling --set window=30 --seeds 5
      midstream experiment all -o gallery          some minutes; open gallery/index.html
    """
    if name == ALL:
        if on != SIMULATED or settings or seed is not None:
            raise JobError("all experiments together take --seeds alone", hint="name one for --on, --seed and --set")
        _all(out or Path("gallery"), seeds, processes, json)
        return
    chosen = settings or []
    if seeds > 1:
        report = repeat_experiment(name, seeds, on, chosen, seed, processes)
    else:
        report = run_experiment(name, on, chosen, seed)
    _write(report, out, json)


def _write(report: Report, out: Path | None, json: bool) -> None:
    if out is not None or not json:
        folder = out or Path()
        folder.mkdir(parents=True, exist_ok=True)
        note(f"report: {write_report(report, folder)}")
    if json:
        show_json(report.to_json())
    else:
        _show(report)


def _all(folder: Path, seeds: int, processes: int, json: bool) -> None:
    reports = make_gallery(folder, seeds, processes, note)
    note(f"gallery: {folder / 'index.html'}, summary: {folder / SUMMARY}")
    if json:
        show_json({"experiments": [report.to_json() for report in reports]})
    else:
        _show_totals(reports)


def _show(report: Report) -> None:
    table = plain_table(f"{report.title}: {counted(report.verdicts)}")
    for heading in ("claim", "kind", "published", "measured", "holds", "stable"):
        table.add_column(heading)
    for verdict in report.verdicts:
        measured, outcome = verdict.to_json()["measured"], verdict.outcome
        shown = outcome if outcome == "yes" else outcome.upper()
        table.add_row(verdict.claim, verdict.kind, verdict.published, measured, shown, str(verdict.stable or "one run"))
    Console().print(table)


def _show_totals(reports: Sequence[Report]) -> None:
    table = plain_table(total(reports))
    for heading in ("experiment", "claims that hold", "claims that do not, or in part"):
        table.add_column(heading)
    for report in reports:
        failed = [f"{verdict.claim}: {verdict.outcome}" for verdict in report.verdicts if verdict.outcome != "yes"]
        table.add_row(report.experiment, counted(report.verdicts), "\n".join(failed))
    Console().print(table)
