"""`midstream bench`: ratios, as a table or as one JSON object."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from midstream.errors import JobError
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import show_json
from midstream.lab.bench.figures import Report
from midstream.lab.bench.registry import BENCH_PARTS, BENCHES, SIZED


@ends_clearly
def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(BENCHES)}.")],
    only: Annotated[list[str] | None, typer.Option(help="Run just this part; can be given several times.")] = None,
    state: Annotated[str | None, typer.Option(help="How much state rescale moves, such as '1 GB'.")] = None,
    json: options.Json = False,
) -> None:
    """Measure ratios in one run on the same data.

    \b
    Example:
      midstream bench operators --json
      midstream bench spark-join --only two-way-100k --only genmig
      midstream bench rescale --state '1 GB'
    """
    if name not in BENCHES:
        raise JobError(f"there is no benchmark {name!r}", hint=f"use one of {', '.join(BENCHES)}")
    if state is not None and name not in SIZED:
        raise JobError(f"benchmark {name} has no state of a size to choose", hint="run it without --state")
    chosen: dict[str, object] = {} if state is None else {"state": state}
    report = BENCHES[name](**chosen, **({"only": _parts(name, only)} if only else {}))
    if json:
        show_json(report.to_json())
    else:
        _show(report)


def _parts(name: str, only: list[str]) -> list[str]:
    known = BENCH_PARTS.get(name, {})
    unknown = [part for part in only if part not in known]
    if unknown:
        hint = f"use one of {', '.join(known)}" if known else "run it without --only"
        raise JobError(f"benchmark {name} has no part {unknown[0]!r}", hint=hint)
    return only


def _show(report: Report) -> None:
    table = Table(title=f"bench {report.bench}")
    for heading in ("figure", "value", "unit", "bar", "holds"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for figure in report.figures:
        row = figure.to_json()
        holds = {True: "yes", False: "NO", None: ""}[figure.holds]
        table.add_row(figure.name, f"{figure.value:,.2f}", figure.unit, row["bar"] or "", holds)
    console = Console()
    console.print(table)
    for part, share in sorted(report.profile.items(), key=lambda entry: -entry[1]):
        console.print(f"  {share:6.1%}  {part}")
