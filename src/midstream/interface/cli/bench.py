"""`midstream bench`: ratios, as a table or as one JSON object."""

from __future__ import annotations

from inspect import signature
from typing import Annotated

import typer
from rich.console import Console

from midstream.errors import JobError
from midstream.interface.cli import options
from midstream.interface.cli.endings import USER_ERROR, ends_clearly
from midstream.interface.cli.output import show_json
from midstream.interface.tables import plain_table
from midstream.lab.bench.figures import Report
from midstream.lab.bench.registry import BENCHES, bench_named, parts_of


@ends_clearly
def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(BENCHES)}.")],
    only: Annotated[list[str] | None, typer.Option(help="Run only this part. Repeatable.")] = None,
    state: Annotated[str | None, typer.Option(help="rescale, evolution: how much state, such as '1 GB'.")] = None,
    batches: Annotated[int | None, typer.Option(min=1, help="soak: after how many batches to end.")] = None,
    hours: Annotated[float | None, typer.Option(min=0.0, help="soak, chaos: after how many hours to end.")] = None,
    on: Annotated[str | None, typer.Option(help="soak: local or spark; chaos: local, or Spark's master.")] = None,
    kills: Annotated[int | None, typer.Option(min=1, help="chaos: how many times to strike.")] = None,
    cases: Annotated[int | None, typer.Option(min=1, help="fuzz: how many cases.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="simulation, adaptivity-on-spark: how many seeds.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="chaos, fuzz, simulation, adaptivity-on-spark: the first seed.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure ratios in one run on the same data.

    The exit code is 2 if results are wrong, however fast or slow they are.

    \b
    Example:
      midstream bench operators --json
      midstream bench spark-join --only two-way-100k --only genmig
      midstream bench rescale --state '1 GB'
      midstream bench simulation --seeds 1000
    """
    if name not in BENCHES:
        raise JobError(f"there is no benchmark {name!r}", hint=f"use one of {', '.join(BENCHES)}")
    given = {
        "state": state,
        "batches": batches,
        "hours": hours,
        "on": on,
        "kills": kills,
        "cases": cases,
        "seeds": seeds,
        "seed": seed,
    }

    wanted: dict[str, object] = {option: value for option, value in given.items() if value is not None}
    _require_options(name, wanted)
    run = bench_named(name)
    report = run(**wanted, only=_parts(name, only)) if only else run(**wanted)
    if json:
        show_json(report.to_json())
    else:
        _show(report)
    if any(figure.is_wrong for figure in report.figures):
        raise typer.Exit(USER_ERROR)


def _require_options(name: str, wanted: dict[str, object]) -> None:
    known = signature(bench_named(name)).parameters
    for option in wanted:
        if option not in known:
            raise JobError(
                f"benchmark {name} has no option --{option}", hint="midstream bench --help tells whose it is"
            )


def _parts(name: str, only: list[str]) -> list[str]:
    known = parts_of(name)
    unknown = [part for part in only if part not in known]
    if unknown:
        hint = f"use one of {', '.join(known)}" if known else "run it without --only"
        raise JobError(f"benchmark {name} has no part {unknown[0]!r}", hint=hint)
    return only


def _show(report: Report) -> None:
    table = plain_table(f"bench {report.bench}")
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
