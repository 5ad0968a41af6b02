"""How long operators take, per row and for letting go of what has expired, and what they do per tick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from midstream.algebra.statistics import OperatorStatistics
from midstream.operators.base import Operator, Work
from midstream.operators.box import Box
from midstream.operators.shared_graph import SharedGraph

FADE = 0.98
"""What is left of the past after a call."""


@dataclass(slots=True)
class Spent:
    """Seconds and rows of processing, seconds and calls of advancing."""

    seconds: float = 0.0
    rows: float = 0.0
    purging: float = 0.0
    purges: float = 0.0


class Timings:
    """Times the operators of boxes, with a clock that is given."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._spent: dict[int, Spent] = {}
        self._attached: list[Operator] = []

    def attach(self, box: SharedGraph) -> None:
        """Times every operator of a box from now on; those of boxes that are gone are forgotten."""
        if self._attached and len(self._attached) == len(box.operators) and self._attached[0] is box.operators[0]:
            return
        self._attached = list(box.operators)
        self._spent = {id(operator): Spent() for operator in box.operators}
        for operator in box.operators:
            spent = self._spent[id(operator)]
            if type(operator).pieces is Operator.pieces:
                operator.process = self._timed(operator.process, spent)  # type: ignore[method-assign]
            else:
                # What gives piece by piece is called so, and processes a batch by way of that too.
                operator.pieces = self._timed_pieces(operator.pieces, spent)  # type: ignore[method-assign]
            operator.advance = self._purging(operator.advance, spent)  # type: ignore[method-assign]

    def clear(self) -> None:
        """Forgets what the operators took so far."""
        for spent in self._spent.values():
            spent.seconds = spent.rows = spent.purging = spent.purges = 0.0

    def spent(self, operator: Operator) -> Spent:
        """What an operator took lately."""
        return self._spent.get(id(operator)) or Spent()

    def per_row(self, operator: Operator) -> float | None:
        """Seconds per row that an operator takes in."""
        spent = self._spent.get(id(operator))
        return spent.seconds / spent.rows if spent and spent.rows else None

    def purge(self, operator: Operator) -> float | None:
        """Seconds per advance."""
        spent = self._spent.get(id(operator))
        return spent.purging / spent.purges if spent and spent.purges else None

    def _timed(self, process: Callable[..., Any], spent: Spent) -> Callable[..., Any]:
        clock = self.clock

        def timed(port: int, batch: Any) -> Any:
            start = clock()
            result = process(port, batch)
            spent.seconds = FADE * spent.seconds + clock() - start
            spent.rows = FADE * spent.rows + len(batch)
            return result

        return timed

    def _timed_pieces(self, pieces: Callable[..., Any], spent: Spent) -> Callable[..., Any]:
        clock = self.clock

        def timed(port: int, batch: Any) -> Any:
            took, start = 0.0, clock()
            for piece in pieces(port, batch):
                took += clock() - start
                yield piece
                start = clock()
            spent.seconds = FADE * spent.seconds + took + clock() - start
            spent.rows = FADE * spent.rows + len(batch)

        return timed

    def _purging(self, advance: Callable[..., Any], spent: Spent) -> Callable[..., Any]:
        clock = self.clock

        def timed(frontier: int) -> Any:
            start = clock()
            result = advance(frontier)
            spent.purging = FADE * spent.purging + clock() - start
            spent.purges = FADE * spent.purges + 1
            return result

        return timed


COUNTED = ("taken", "given", "probed", "inserted", "matched")


class OperatorRates:
    """Remembers what operators had done when they were last seen; times them, if there is a clock."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.timings = Timings(clock) if clock else None
        self._seen: dict[int, tuple[Work, int]] = {}

    def since_last_time(self, box: Box, now: int) -> tuple[OperatorStatistics, ...]:
        """What each operator did per tick; `now` is how many ticks have passed by now."""
        if self.timings is not None:
            self.timings.attach(box)
        seen, found = {}, []
        for node, operator in zip(box.nodes, box.operators, strict=True):
            before, since = self._seen.get(id(operator), (Work(), 0))
            ticks = max(1, now - since)
            done = replace(operator.work)
            seconds = self.timings.per_row(operator) if self.timings else None
            purge = self.timings.purge(operator) if self.timings else None
            rows = sum(state.rows for state in operator.states)
            size = sum(state.bytes for state in operator.states)
            rates = {name: (getattr(done, name) - getattr(before, name)) / ticks for name in COUNTED}
            found.append(
                OperatorStatistics(
                    node.label, **rates, seconds_per_row=seconds, purge_seconds=purge, state_rows=rows, state_bytes=size
                )
            )
            seen[id(operator)] = (done, now)
        self._seen = seen
        return tuple(found)
