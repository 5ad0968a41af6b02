"""A box over signed tuples: windows that send a positive tuple when one comes and its negative when it ends."""

from __future__ import annotations

from collections.abc import Callable

from midstream.algebra.physical import PhysicalNode, SourceNode
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.lab.papers.positive_negative.signed_operators import SignedOperator, build_signed
from midstream.lab.papers.positive_negative.signs import signed
from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.build import Functions
from midstream.operators.elements import Elements, concatenate, empty_elements

Sink = Callable[[Elements], None]


class SignedBox:
    """Signed operators, wired as a plan says; gives signed tuples in order of their times once time has passed them."""

    def __init__(self, plan: PhysicalNode, functions: Functions, sink: Sink) -> None:
        shape = Box(plan, functions)
        self.plan, self.sink = plan, sink
        self.wires = [wire for (wire,) in shape.wires]
        self.operators: list[SignedOperator] = [build_signed(node, functions) for node in shape.nodes]
        self.inputs = {source.stream.alias: (source, wire) for source, (wire,) in shape.sources}
        self.ending = {alias: empty_elements(source.schema) for alias, (source, _) in self.inputs.items()}
        self.frontier = BEGINNING

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """What the box reads."""
        return tuple(source for source, _ in self.inputs.values())

    @property
    def rows(self) -> int:
        """How many signed tuples it remembers."""
        kept = [getattr(operator, "kept", ()) for operator in self.operators]
        inside = sum(len(k) if isinstance(k, Elements) else sum(map(len, k)) for k in kept)
        return inside + sum(map(len, self.ending.values()))

    def feed(self, alias: str, batch: Elements, until: int = INFINITY) -> None:
        """Takes windowed elements: positives go on at once, negatives when they are due, and none from `until` on."""
        source, wire = self.inputs[alias]
        if batch.columns.schema.names != source.schema.names:
            batch = batch.with_columns(batch.columns.select(source.schema.names))
        events = signed(batch)
        events = events.where(events.valid_from < until)
        positive = events.valid_to > 0
        self._send(wire, events.where(positive))
        self.ending[alias] = concatenate([self.ending[alias], events.where(~positive)])

    def advance(self, frontier: int) -> None:
        """Sends the negatives that are due and carries the frontier through the box."""
        if frontier <= self.frontier:
            return
        self.frontier = frontier
        for alias, (_, wire) in self.inputs.items():
            due = self.ending[alias].valid_from < frontier
            self._send(wire, self.ending[alias].where(due))
            self.ending[alias] = self.ending[alias].where(~due)
        for i, operator in enumerate(self.operators):
            self._send(self.wires[i], operator.advance(frontier))

    def _send(self, wire: Wire, batch: Elements | None) -> None:
        while batch is not None and len(batch):
            if wire.operator == ROOT:
                self.sink(batch)
                return
            batch = self.operators[wire.operator].process(wire.port, batch)
            wire = self.wires[wire.operator]
