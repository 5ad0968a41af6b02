"""`midstream query`: a query over finite inputs, answered at once."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from midstream import api
from midstream.inputs import write_table
from midstream.inputs.files import format_of
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, progress_bar, show_json, show_table
from midstream.interface.plain_values import columns_as_json, table_as_json
from midstream.interface.stream_files import stream_tables
from midstream.language.foreign import to_cql

DEFAULT_LIMIT = 50


class Engine(StrEnum):
    """What can answer a query."""

    EMBEDDED = "embedded"
    SPARK = "spark"
    REFERENCE = "reference"


@ends_clearly
def query(
    cql: options.Cql,
    stream: options.Streams,
    time: options.TimeColumn = [],  # noqa: B006
    on: Annotated[
        Engine,
        typer.Option(help="The engine, here or on local Spark, or the naive reference for small inputs."),
    ] = Engine.EMBEDDED,
    plan: options.Plan = None,
    dialect: options.Dialect = None,
    lateness: options.Lateness = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the result to this file.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Rows to show; 0 shows all.")] = None,
    json: options.Json = False,
) -> None:
    """Answer a query over files.

    \b
    Example:
      midstream query "SELECT A.k, B.v FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k" \\
        --stream A=a.parquet --stream B=b.csv --time ts
      midstream query "SELECT COUNT(*) AS n FROM P [TUMBLE 1 HOUR]" --stream P=positions
      midstream query "SELECT COUNT(*) AS n FROM P [TUMBLE 1 HOUR]" --stream "P=positions/2024-*.csv"
    """
    if on is Engine.REFERENCE and plan is not None:
        raise typer.BadParameter("the reference evaluates without a plan", param_hint="--plan")
    if out is not None:
        format_of(out)  # a suffix that cannot be written is told before the work, not after it
    paths = options.stream_paths(stream)
    columns = options.time_columns(time, paths)
    late = options.latenesses(lateness, paths)
    text = options.query_text(cql)
    if dialect is not None:
        text = to_cql(text, dialect, columns)
    tables = stream_tables(paths)
    if on is Engine.REFERENCE:
        result = api.reference(text, tables, time=columns, lateness=late)
    else:
        rows = sum(table.num_rows for name, table in tables.items() if re.search(rf"\b{re.escape(name)}\b", text, re.I))
        with progress_bar(rows or None) as progress:
            result = api.run(text, tables, time=columns, lateness=late, on=on.value, plan=plan, progress=progress)
    if out is not None:
        write_table(result, out)
    if json:
        show_json(_as_json(result, on, out, limit))
    elif out is not None:
        note(f"{result.num_rows:,} rows written to {out}")
    else:
        show_table(result, DEFAULT_LIMIT if limit is None else limit)


def _as_json(result: pa.Table, on: Engine, out: Path | None, limit: int | None) -> dict[str, Any]:
    """The result itself, or where it was written."""
    common = {"on": on.value, "row_count": result.num_rows}
    if out is not None:
        return {**common, "columns": columns_as_json(result.schema), "out": str(out)}
    return {**common, **table_as_json(result, limit or 0)}
