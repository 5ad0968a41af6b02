"""The plan of a query of a job that does not run, as its checkpoint tells it."""

from __future__ import annotations

from typing import Any

from midstream.adaptation.cost_corrections import costs_text
from midstream.algebra.time import size
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stored import PlanGraph


def stored_plan(checkpoint: str, name: str) -> dict[str, Any]:
    """What a running job would answer: the query's name, its plan, and the operators in words."""
    job = StoredJob.open(checkpoint)
    query = job.query(name)
    lines = [f"Plan {query.plan or 'without joins'}, as of batch {job.batch}; the job does not run", ""]
    lines += [*drawn_graph(query.graph), f"Keeps {query.state_rows:,} rows in {size(query.state_bytes)}"]
    if query.migration is not None:
        lines.append(f"A migration to {query.migration.new_plan} by {query.migration.strategy} is under way")
    if costs := job.manifest.settings.costs:
        lines.append(costs_text(costs))
    return {"query": name, "plan": query.plan, "explain": "\n".join(lines)}


def drawn_graph(graph: PlanGraph) -> list[str]:
    """The operators of a plan, each below the one it feeds.

    >>> from midstream.checkpoint.plan_graphs import join_tree
    >>> print("\\n".join(drawn_graph(join_tree("((A B) C)"))))
    Join
    ├─ Join
    │  ├─ A
    │  └─ B
    └─ C
    """
    nodes = {node.id: node for node in graph.nodes}
    fed = {feeder for node in graph.nodes for feeder in node.inputs}
    lines: list[str] = []

    def draw(id: str, first: str, rest: str) -> None:
        lines.append(first + nodes[id].label)
        below = [feeder for feeder in nodes[id].inputs if feeder in nodes]
        for place, feeder in enumerate(below):
            last = place == len(below) - 1
            draw(feeder, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    for node in graph.nodes:
        if node.id not in fed:
            draw(node.id, "", "")
    return lines
