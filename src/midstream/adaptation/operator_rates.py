"""What the operators of a running box do per tick, since the last time that somebody asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from midstream.adaptation.timings import Timings
from midstream.algebra.statistics import OperatorStatistics
from midstream.operators.base import Work
from midstream.operators.box import Box

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
