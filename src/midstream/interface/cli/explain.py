"""`midstream explain`: what a query means and what would run, before anything does."""

from __future__ import annotations

from midstream.inputs import catalog_of, read_schema
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import columns_as_json, show_json, show_text
from midstream.language import parse
from midstream.optimizer.plans import plan_query


@ends_clearly
def explain(
    cql: options.Cql,
    stream: options.Streams,
    time: options.TimeColumn = [],  # noqa: B006
    plan: options.Plan = None,
    json: options.Json = False,
) -> None:
    """Show the plan of a query over files: what it means, and what would run.

    \b
    Example:
      midstream explain "SELECT DISTINCT k FROM A [RANGE 100]" --stream A=a.parquet --time ts
    """
    files = options.stream_files(stream)
    schemas = {name: read_schema(path) for name, path in files.items()}
    logical = parse(options.query_text(cql), catalog_of(schemas, options.time_columns(time, files)))
    chosen = plan_query(logical, plan)
    if json:
        show_json(
            {
                "logical_plan": str(logical),
                "plan": chosen.text,
                "physical_plan": str(chosen.physical),
                "columns": columns_as_json(logical.schema),
            }
        )
    else:
        shape = f" {chosen.text}" if chosen.text else ""
        show_text(f"Logical plan\n\n{logical}\n\nPhysical plan{shape}\n\n{chosen.physical}")
