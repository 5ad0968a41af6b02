"""The plan of a query of a job that does not run, as its checkpoint tells it."""

from __future__ import annotations

from typing import Any

from midstream.adaptation.cost_corrections import costs_text
from midstream.algebra.plan.base import draw
from midstream.algebra.time import size
from midstream.checkpoint.reading import StoredJob


def stored_plan(checkpoint: str, name: str) -> dict[str, Any]:
    """What a running job would answer: the query's name, its plan, and the operators in words."""
    job = StoredJob.open(checkpoint)
    query = job.query(name)
    lines = [f"Plan {query.plan or 'without joins'}, as of batch {job.batch}; the job does not run", ""]
    lines += [
        *(draw(tree, lambda _: "") for tree in query.graph.trees()),
        f"Keeps {query.state_rows:,} rows in {size(query.state_bytes)}",
    ]
    if query.migration is not None:
        lines.append(f"A migration to {query.migration.new_plan} by {query.migration.strategy} is under way")
    if costs := job.manifest.settings.costs:
        lines.append(costs_text(costs))
    return {"query": name, "plan": query.plan, "explain": "\n".join(lines)}
