"""A schedule: which table each part of a graph follows, where it is broken, and which fragment goes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.errors import QueryError
from midstream.scheduling.graph import GraphNode, QueryGraph
from midstream.scheduling.tables import DEPTH_FIRST, Table, table_named

Place = str | tuple[str, int]
"""An arc by the name of the operator behind it, and its input if it has several."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a graph runs. `parts` names operators that follow another table, `breaks` the arcs that are break nodes.

    With `chain`, break nodes are chosen from what the operators have done so far, again and again. `rows` is how many
    rows a tuple has at most, if it is to be less than usual.
    """

    table: Table = DEPTH_FIRST
    parts: Mapping[str, Table] = field(default_factory=dict, hash=False)
    breaks: frozenset[Place] = frozenset()
    chain: bool = False
    rows: int | None = None

    @property
    def name(self) -> str:
        """The schedule as `schedule_of` takes it."""
        return "chain" if self.chain else self.table.name

    def table_of(self, node: GraphNode) -> Table:
        """The table an operator follows."""
        return self.parts.get(node.name, self.table)


def schedule_of(wanted: str | Schedule | Table) -> Schedule:
    """A schedule from its name (dfs, bfs, rr, batch:K, chain) or as it is."""
    if isinstance(wanted, Schedule):
        return wanted
    if isinstance(wanted, Table):
        return Schedule(wanted)
    if not isinstance(wanted, str):
        raise QueryError(f"a scheduling strategy is a name, not {type(wanted).__name__}")
    name = wanted.strip().lower()
    return Schedule(chain=True) if name == "chain" else Schedule(table_named(name))


def apply_breaks(graph: QueryGraph, schedule: Schedule) -> None:
    """Sets and unsets break nodes so that the graph is as the schedule wants it; no tuple moves."""
    for node in graph.nodes:
        for port in range(len(node.inputs)):
            wanted = node.name in schedule.breaks or (node.name, port) in schedule.breaks
            graph.set_break(node, port, wanted or _needs_path(node, port, schedule))


def _needs_path(node: GraphNode, port: int, schedule: Schedule) -> bool:
    """Whether a table for paths meets a place where the graph is not one."""
    before = node.feeders[port]
    if before is None:
        return False
    near = schedule.table_of(node).paths_only or schedule.table_of(before).paths_only
    return near and (len(node.inputs) > 1 or len(before.readers) > 1 or before.is_fork)
