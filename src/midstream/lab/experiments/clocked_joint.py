"""The processor time that joining the results of two plans takes, measured around the engine's own operators."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from midstream.migration.coalesce import Joint
from midstream.migration.genmig import GenMig
from midstream.migration.split import Split
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState

T = TypeVar("T")


@dataclass(slots=True)
class Stopwatch:
    """Adds up the processor time of calls."""

    clock: Callable[[], float] = time.process_time
    seconds: float = 0.0

    def around(self, call: Callable[..., T], *arguments: object) -> T:
        """Calls, and adds the time that the call took."""
        start = self.clock()
        try:
            return call(*arguments)
        finally:
            self.seconds += self.clock() - start


def clocked(strategy: GenMig, watch: Stopwatch) -> GenMig:
    """The same strategy with a stopwatch around its joint."""
    plain = strategy.joint

    def joint(box: Box, other: Box, split: Split) -> Joint:
        return ClockedJoint(plain(box, other, split), watch)

    strategy.joint = joint  # type: ignore[method-assign]
    return strategy


class ClockedJoint:
    """A joint whose work is timed."""

    def __init__(self, inner: Joint, watch: Stopwatch) -> None:
        self.inner, self.watch = inner, watch

    def old(self, batch: Elements) -> Elements | None:
        """Times the taking of the old box's results."""
        return self.watch.around(self.inner.old, batch)

    def new(self, batch: Elements) -> Elements | None:
        """Times the taking of the new box's results."""
        return self.watch.around(self.inner.new, batch)

    def release(self) -> Elements | None:
        """Times the mending of halves."""
        return self.watch.around(self.inner.release)

    def flush(self) -> Elements | None:
        """Times the giving of what is held back."""
        return self.watch.around(self.inner.flush)

    @property
    def held_from(self) -> int | None:
        """What the joint holds back."""
        return self.inner.held_from

    def states(self) -> Iterator[SortedState]:
        """The joint's states."""
        return self.inner.states()
