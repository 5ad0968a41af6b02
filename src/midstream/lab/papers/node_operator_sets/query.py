"""The join of a query as a routed plan sees it: its streams, its conditions, and what each probe compares.

What a probe compares follows from the head, the streams met so far and the target, not from the rest of the plan. So
a node that knows its operators can serve partial results of any plan, also of one that it has never seen as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.declarations import UserFunction
from midstream.algebra.plan import Relation
from midstream.errors import QueryError
from midstream.optimizer.join_graph import JoinGraph
from midstream.optimizer.plans import Plan, plan_query
from midstream.optimizer.prepare import as_written, normalize, prepare
from midstream.optimizer.routed.shapes import conditions_of
from midstream.optimizer.shapes import alias_text


@dataclass
class RoutedQuery:
    """A query whose joins form one group, with nothing but selections and projections above."""

    relation: Relation
    functions: Mapping[str, UserFunction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graphs: list[JoinGraph] = []

        def note(graph: JoinGraph) -> Relation:
            graphs.append(graph)
            return as_written(graph)

        prepare(normalize(self.relation), note)
        if len(graphs) != 1:
            raise QueryError("a routed join needs a query that joins at one place", detail=f"this one at {len(graphs)}")
        self.conditions = conditions_of(graphs[0])
        self._joins: dict[tuple[str, ...], p.MultiwayJoin] = {}
        self.plan = self._plan(self._orders({}))
        self.default = self._join_of(self._orders({}))
        self.above = _above(self.plan.physical)

    @property
    def streams(self) -> tuple[str, ...]:
        """The joined streams, in the order of the query."""
        return self.conditions.streams

    def input(self, stream: str) -> p.PhysicalNode:
        """What is joined of a stream: its window after all that it can check and compute alone."""
        return self.default.joined[self.conditions.numbers[stream]]

    def source(self, stream: str) -> p.SourceNode:
        """The stream itself under an input."""
        found = [node for node in p.walk_physical(self.input(stream)) if isinstance(node, p.SourceNode)]
        return found[0]

    def step(self, head: str, met: tuple[str, ...], target: str) -> p.ProbeStep:
        """What a probe compares and gathers."""
        rest = [s for s in self.streams if s != head and s not in met and s != target]
        order, inside = [*met, target], [head, *met, target]
        while rest:
            order.append(self.conditions.next(inside, rest)[0])
            inside.append(order[-1])
            rest.remove(order[-1])
        join = self._join_of(self._orders({head: tuple(order)}))
        return join.routes[self.conditions.numbers[head]][len(met)]

    def _orders(self, given: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        texts = []
        for head in self.streams:
            order, rest = list(given.get(head, ())), [s for s in self.streams if s != head]
            rest = [s for s in rest if s not in order]
            while rest:
                order.append(self.conditions.next([head, *order], rest)[0])
                rest.remove(order[-1])
            texts.append(f"{alias_text(head)}: {' '.join(map(alias_text, order))}")
        return tuple(texts)

    def _plan(self, orders: tuple[str, ...]) -> Plan:
        return plan_query(self.relation, ", ".join(orders))

    def _join_of(self, orders: tuple[str, ...]) -> p.MultiwayJoin:
        if orders not in self._joins:
            found = [n for n in p.walk_physical(self._plan(orders).physical) if isinstance(n, p.MultiwayJoin)]
            self._joins[orders] = self._same_inputs(found[0])
        return self._joins[orders]

    def _same_inputs(self, join: p.MultiwayJoin) -> p.MultiwayJoin:
        """Windows move between plans as they are, so all plans must keep the same columns."""
        first: p.MultiwayJoin | None = getattr(self, "default", None)
        if first is not None and [i.schema for i in first.joined] != [i.schema for i in join.joined]:
            raise QueryError(
                "the probe orders of this query keep different computed keys",
                hint="join by plain columns, or compute the keys in a sub-query",
            )
        return join


def _above(physical: p.PhysicalNode) -> tuple[p.PhysicalNode, ...]:
    """What is above the join, the lowest first."""
    found: list[p.PhysicalNode] = []
    node = physical
    while not isinstance(node, p.MultiwayJoin):
        if not isinstance(node, p.Filter | p.Compute):
            raise QueryError(f"a routed join has only selections and projections above it, not {node.label}")
        found.append(node)
        node = node.input
    return tuple(reversed(found))


def batch_column() -> pa.Field:
    """The column in which windows remember the batch of each row."""
    return pa.field("#batch", pa.int64())
