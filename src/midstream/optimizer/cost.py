"""What a plan costs per tick of event time.

A tuple that arrives probes, meets candidates, and is stored; a slice operator looks at what is alive whenever time
passes its grid; what is stored takes memory. The counts follow from rates and populations; the constants turn them
into one number and can be calibrated on the machine at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import add, attrgetter
from typing import Any

from midstream.algebra.time import TimeDomain
from midstream.optimizer.sites.topology import Transfers

SECOND = 1_000_000
"""How many ticks of timestamps are a second."""

ROW_OVERHEAD = 24.0
"""What keeping a tuple takes beside its columns, in bytes."""


@dataclass(frozen=True, slots=True)
class Constants:
    """The cost of handling one tuple in each way, and of keeping a thousand bytes of state for a tick.

    Where ticks are microseconds, state is paid for by the second: what a plan is worth must not hang on the clock.
    Where rows are spread, `exchange` is that of sending a tuple to another slot between two stages, `copy` that of a
    tuple that arrives in one slot more, and `stage` that of a further stage, once a batch however many tuples it takes.
    `second` is how many probes a second is worth, by which what links take is weighed. `fragment` is that of one of the
    many fragments of a routed join, once a batch: it is sent to slots, opened and closed there.
    """

    probe: float = 1.0
    insert: float = 1.0
    match: float = 0.05
    give: float = 0.1
    evaluate: float = 0.3
    row: float = 0.1
    state: float = 0.0001
    exchange: float = 8.0
    stage: float = 0.0
    copy: float = 5.0
    second: float = 4_000_000.0
    fragment: float = 0.0

    def by_tick(self, domain: TimeDomain) -> Constants:
        """The same by the ticks of a domain."""
        return self if domain.is_integer else replace(self, state=self.state / SECOND)


SPARK = Constants(exchange=25.0, stage=2_000_000.0, copy=12.0, second=3_300_000.0, fragment=16_000.0)
"""The same where slots are executors of Spark."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Tuples per tick, what is kept, and the seconds per tick that rows take on links between sites.

    `transfers` are the bytes that travel, where slots are known.
    """

    probed: float = 0.0
    inserted: float = 0.0
    matched: float = 0.0
    given: float = 0.0
    evaluated: float = 0.0
    rows: float = 0.0
    state_rows: float = 0.0
    state_bytes: float = 0.0
    moved: float = 0.0
    stages: float = 0.0
    copied: float = 0.0
    linked: float = 0.0
    fragments: float = 0.0
    transfers: Transfers | None = None

    def __add__(self, other: Cost) -> Cost:
        found: list[Any] = [*map(add, _FIGURES(self), _FIGURES(other)), _both(self.transfers, other.transfers)]
        return Cost(*found)

    @property
    def work(self) -> float:
        """Tuples probed and inserted per tick: the measure that operators count exactly."""
        return self.probed + self.inserted

    def per_tick(self, constants: Constants) -> float:
        """All of it as one number."""
        c = constants
        handling = c.probe * self.probed + c.insert * self.inserted + c.match * self.matched + c.give * self.given
        handling += c.evaluate * self.evaluated + c.row * self.rows + c.exchange * self.moved + c.stage * self.stages
        handling += c.copy * self.copied + c.second * self.linked + c.fragment * self.fragments
        return handling + c.state * self.state_bytes / 1000


_FIGURES = attrgetter(*(each.name for each in fields(Cost) if each.name != "transfers"))


def _both(left: Transfers | None, right: Transfers | None) -> Transfers | None:
    if left is None or right is None:
        return left or right
    return left + right
