"""`midstream explain`: what a query means, what would run, what it costs, and why this plan."""

from __future__ import annotations

from typing import Annotated

import typer

from midstream.adaptation.summary import statistics_summary
from midstream.algebra.time import rate, work
from midstream.api import ask
from midstream.cluster.local.observing import observe
from midstream.interface.cli import options
from midstream.interface.cli.decided import decided, decided_text
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import show_json, show_text
from midstream.interface.plain_values import columns_as_json
from midstream.interface.stream_files import stream_tables
from midstream.language.foreign import to_cql
from midstream.optimizer.explanation import Explanation, explain_plan
from midstream.optimizer.growth import growth
from midstream.optimizer.plans import plan_query


@ends_clearly
def explain(
    cql: options.Cql,
    stream: options.Streams = [],  # noqa: B006
    time: options.TimeColumn = [],  # noqa: B006
    plan: options.Plan = None,
    dialect: options.Dialect = None,
    why: Annotated[bool, typer.Option("--why", help="Say in one paragraph why this plan and not another.")] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="CHECKPOINT", help="Explain a query of a job instead: give its name in place of CQL."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show the plan of a query over files: what it means, what would run, and what it is expected to cost.

    The files are read to estimate rates and selectivities. With --checkpoint, shows what an adaptive query of a job has
    measured and decided, whether the job is running or not.

    \b
    Example:
      midstream explain "SELECT DISTINCT k FROM A [RANGE 100]" --stream A=a.parquet --time ts
      midstream explain "SELECT k, count(*) FROM A GROUP BY k, window(ts, '10 minutes')" --dialect spark \\
        --stream A=a.parquet --time ts
      midstream explain hot --checkpoint orders.checkpoint --why
    """
    if checkpoint is not None:
        record = decided(checkpoint, cql)
        show_json(record) if json else show_text(record["why"] if why else decided_text(record))
        return
    if not stream:
        raise typer.BadParameter("at least one stream is needed", param_hint="--stream")
    paths = options.stream_paths(stream)
    times = options.time_columns(time, paths)
    text = options.query_text(cql)
    if dialect is not None:
        text = to_cql(text, dialect, times)
    question = ask(text, stream_tables(paths), time=times)
    statistics = observe(question.plan, question.tables, question.catalog)
    chosen = plan_query(question.plan, plan, statistics=statistics)
    explanation = explain_plan(chosen, statistics)
    if json:
        show_json(
            {
                **({} if dialect is None else {"cql": text}),
                "logical_plan": str(question.plan),
                "physical_plan": str(chosen.physical),
                "columns": columns_as_json(question.plan.schema),
                **explanation.as_dict(),
                "statistics": statistics_summary(statistics),
                "warnings": list(growth(chosen.physical)),
            }
        )
    elif why:
        show_text(explanation.why)
    else:
        shown = explained(str(question.plan), explanation)
        show_text(shown if dialect is None else f"CQL\n\n{text}\n\n{shown}")


def explained(logical: str, explanation: Explanation) -> str:
    """A plan for people: what it means, what would run, what it costs, and what else there is."""
    chosen = explanation.plan
    shape = f" {chosen.text}" if chosen.text else ""
    parts = [
        f"Logical plan\n\n{logical}",
        f"Chosen plan{shape}, cost {work(explanation.cost, chosen.query.domain)}\n\n{explanation.tree}",
        f"Physical plan{shape}\n\n{chosen.physical}",
    ]
    if explanation.alternatives:
        lines = ["Alternatives", ""]
        for other in explanation.alternatives:
            wins = f"would win if {other.wins_if}" if other.wins_if else "wins under no single change that was tried"
            wins = "is cheaper as things are" if explanation.beaten_by(other) else wins
            lines.append(f"{other.plan.text}  [cost {rate(other.cost, chosen.query.domain)}] {wins}")
        parts.append("\n".join(lines))
    parts += [f"Warning: {sentence}" for sentence in growth(chosen.physical)]
    return "\n\n".join(parts)
