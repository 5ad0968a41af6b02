"""Depth-first execution: a batch travels as far towards the root as it can before the next one starts."""

from __future__ import annotations

from collections.abc import Callable

from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.elements import Elements

Sink = Callable[[Elements], None]


class DepthFirst:
    """Runs a box depth-first."""

    def __init__(self, box: Box, sink: Sink) -> None:
        self.box = box
        self.sink = sink

    def feed(self, wire: Wire, batch: Elements | None) -> None:
        """Sends a batch along a wire and whatever follows from it onwards."""
        if batch is None or len(batch) == 0:
            return
        if wire.operator == ROOT:
            self.sink(batch)
            return
        onwards = self.box.wires[wire.operator]
        for piece in self.box.operators[wire.operator].pieces(wire.port, batch):
            self.feed(onwards, piece)

    def advance(self, frontier: int) -> None:
        """Carries a frontier from the sources to the root."""
        self.box.frontier = max(self.box.frontier, frontier)
        for i, operator in enumerate(self.box.operators):
            incoming = self.box.incoming(i, frontier)
            if incoming > operator.frontier:
                self.feed(self.box.wires[i], operator.advance(incoming))
