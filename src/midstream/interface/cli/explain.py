"""`midstream explain`: what a query means, what would run, what it costs, and why this plan."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from midstream.algebra.statistics import Statistics
from midstream.api import ask
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import columns_as_json, show_json, show_text
from midstream.optimizer.explanation import Explanation, explain_plan, heavy_hitters
from midstream.optimizer.plans import plan_query
from midstream.runtime.observing import observe


@ends_clearly
def explain(
    cql: options.Cql,
    stream: options.Streams,
    time: options.TimeColumn = [],  # noqa: B006
    plan: options.Plan = None,
    why: Annotated[bool, typer.Option("--why", help="Say in one paragraph why this plan and not another.")] = False,
    json: options.Json = False,
) -> None:
    """Show the plan of a query over files: what it means, what would run, and what it is expected to cost.

    The files are read to see how fast the streams are and how their keys meet.

    \b
    Example:
      midstream explain "SELECT DISTINCT k FROM A [RANGE 100]" --stream A=a.parquet --time ts
    """
    files = options.stream_files(stream)
    question = ask(options.query_text(cql), files, time=options.time_columns(time, files))
    statistics = observe(question.plan, question.tables, question.catalog)
    chosen = plan_query(question.plan, plan, statistics=statistics)
    explanation = explain_plan(chosen, statistics)
    if json:
        show_json(
            {
                "logical_plan": str(question.plan),
                "physical_plan": str(chosen.physical),
                "columns": columns_as_json(question.plan.schema),
                **explanation.as_dict(),
                "statistics": _statistics_as_json(statistics),
            }
        )
    elif why:
        show_text(explanation.why)
    else:
        show_text(_as_text(str(question.plan), explanation))


def _as_text(logical: str, explanation: Explanation) -> str:
    chosen = explanation.plan
    shape = f" {chosen.text}" if chosen.text else ""
    parts = [
        f"Logical plan\n\n{logical}",
        f"Chosen plan{shape}, cost {explanation.cost:.4g} per tick\n\n{explanation.tree}",
        f"Physical plan{shape}\n\n{chosen.physical}",
    ]
    if explanation.alternatives:
        lines = ["Alternatives", ""]
        for other in explanation.alternatives:
            wins = f"would win if {other.wins_if}" if other.wins_if else "wins under no single change that was tried"
            lines.append(f"{other.plan.text}  [cost {other.cost:.4g}] {wins}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _statistics_as_json(statistics: Statistics) -> dict[str, Any]:
    return {
        "streams": {
            alias: {
                "rate": s.rate.value,
                "confidence": s.rate.confidence,
                "burstiness": s.burstiness,
                "population": s.population,
            }
            for alias, s in statistics.streams.items()
        },
        "selectivities": {
            text: {"value": e.value, "confidence": e.confidence} for text, e in statistics.selectivities.items()
        },
        "keys": {
            text: {"heavy_hitters": heavy_hitters(p), "skew": p.skew, "rows": p.rows}
            for text, p in statistics.keys.items()
        },
    }
