"""What moving groups is predicted to cost, by protocol, in seconds of a machine's time.

MSLB processes what is queued at the sender, ships what the groups hold and stores it again; until then their rows wait.
PTLB and split-time balancing process what arrives during the move twice, and leave the sender its load for that long.
So large states speak for the latter, high rates and an overloaded sender for the former. States are as large as rates
were a window ago: where rates have just fallen, PTLB is the cheaper one (D-CAPE section 5.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds to store a row, to ship a byte, and to process an arriving row with all that follows from it."""

    store: float = 2e-6
    ship: float = 1e-8
    process: float = 1e-5


@dataclass(frozen=True, slots=True)
class Moved:
    """Groups that may move: the rows and bytes they hold, and the rows that arrive per second.

    `overload` is what the sender has to do per second beyond what it can do; a move that takes a while lets that wait.
    `queued` is for how many seconds it is busy with what waits in its queue.
    """

    rows: float
    bytes: float
    rate: float
    overload: float = 0.0
    queued: float = 0.0


@dataclass(frozen=True, slots=True)
class MoveCost:
    """A protocol's predicted length in seconds, the work it adds, how long rows wait for it, and work left waiting."""

    protocol: str
    length: float
    work: float
    pause: float
    delayed: float

    @property
    def total(self) -> float:
        """What counts when protocols are compared."""
        return self.work + self.pause + self.delayed

    def as_dict(self) -> dict[str, float | str]:
        """All fields as plain values."""
        figures = {"length": self.length, "work": self.work, "pause": self.pause, "delayed": self.delayed}
        return {"protocol": self.protocol, **figures, "total": self.total}


def predict(protocol: str, moved: Moved, window: float, prices: Prices | None = None) -> MoveCost:
    """What a protocol takes; `window` is the plan's memory in seconds.

    >>> still = Moved(rows=1e6, bytes=1e8, rate=10)
    >>> predict("ptlb", still, 60).total < predict("mslb", still, 60).total
    True
    >>> busy = Moved(rows=1e4, bytes=1e6, rate=5_000, overload=0.2)
    >>> predict("mslb", busy, 60).total < predict("ptlb", busy, 60).total
    True
    """
    prices = prices or Prices()
    if protocol == "mslb":
        work = prices.store * moved.rows + prices.ship * moved.bytes
        pause = moved.queued + work
        return MoveCost(protocol, pause, work, pause, moved.overload * pause)
    length = window + moved.queued  # by which every row of before has ended, whatever the plan
    return MoveCost(protocol, length, moved.rate * length * prices.process, 0.0, moved.overload * length)


def costs_text(costs: Sequence[MoveCost]) -> str:
    """Why the first of some protocols was taken.

    >>> costs_text([MoveCost("mslb", 0.5, 0.25, 0.25, 0.0), MoveCost("ptlb", 60.0, 2.0, 0.0, 0.0)])
    'By mslb it is predicted to cost 0.5 s; by ptlb 2 s.'
    """
    others = "".join(f"; by {cost.protocol} {cost.total:.3g} s" for cost in costs[1:])
    return f"By {costs[0].protocol} it is predicted to cost {costs[0].total:.3g} s{others}."


def predict_all(protocols: Iterable[str], moved: Moved, window: float, prices: Prices | None = None) -> list[MoveCost]:
    """What the protocols that are legal cost, the cheapest first; of equal ones those first that are named first."""
    costs = [predict(protocol, moved, window, prices) for protocol in protocols]
    return sorted(costs, key=lambda cost: cost.total)


def in_all(choices: Sequence[Sequence[MoveCost]]) -> list[MoveCost]:
    """What several moves cost together by each protocol that can do all of them, the cheapest first."""
    first = [cost.protocol for cost in choices[0]] if choices else []
    by_name = [{cost.protocol: cost for cost in each} for each in choices]
    common = [name for name in first if all(name in each for each in by_name)]
    totals = [_sum(name, [each[name] for each in by_name]) for name in common]
    return sorted(totals, key=lambda cost: cost.total)


def _sum(protocol: str, costs: Sequence[MoveCost]) -> MoveCost:
    work, pause, delayed = (sum(getattr(c, name) for c in costs) for name in ("work", "pause", "delayed"))
    return MoveCost(protocol, max(cost.length for cost in costs), work, pause, delayed)
