"""`midstream results`: what a query of a job has released, without Spark and without the job's program."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.retention import RemovedWarning, removed_text
from midstream.checkpoint.stored_results import read_query_results
from midstream.checkpoint.subscriptions import Subscription
from midstream.errors import JobError
from midstream.inputs import write_table
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json, show_table
from midstream.interface.plain_values import table_as_json


@ends_clearly
def results(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new results until the job stops.")] = False,
    current: Annotated[bool, typer.Option("--current", help="Show only what is valid at the newest instant.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write Parquet, CSV, JSON lines or Arrow.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="The number of rows to show; 0 shows all.")] = 50,
    json: options.Json = False,
) -> None:
    """Show the results that a query of a job has released, whether the job runs or not.

    With --follow, --json prints one object a line for each batch that released something.

    \b
    Example:
      midstream results orders.checkpoint hot --current
    """
    warnings.simplefilter("ignore", RemovedWarning)  # said in our own words
    removed = removed_text(StoredJob.open(checkpoint).manifest, query)
    if removed is not None:
        note(removed)
    if follow and (current or out is not None):
        raise JobError("--follow shows results as they come", hint="leave --current and --out out")
    if follow:
        with suppress(KeyboardInterrupt):
            for table in Subscription(checkpoint, query):
                show_json(table_as_json(table)) if json else show_table(table, 0)
                sys.stdout.flush()  # whoever reads a pipe sees results when they come
        return
    table = read_query_results(checkpoint, query, current=current)
    if out is not None:
        write_table(table, out)
        note(f"{table.num_rows:,} rows in {out}")
    if json:
        show_json(table_as_json(table))
    elif out is None:
        show_table(table, limit)
