"""What moves between the stages of a plan whose rows lie in slots by their keys.

Rows that are joined by another key than they lie by move. Single inputs arrive by whichever key is wanted, but they
arrive in the first stage: where something that has moved is joined, the inputs of that stage come by an exchange too.
A stream that lives at a site comes in there, by no key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from midstream.optimizer.sites.topology import INTERVAL, Shares, Topology, Transfers, Travelling


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows in slots: by which class of equal keys (None: as they arrive), whether something has moved for them.

    `rate` is how many there are per tick, `arriving` how many per tick arrive in this stage without an exchange so far,
    `stage` the number of exchanges one after another that lie behind them. `width` is the bytes of a row, `at` the
    sites where they are, if slots have any.
    """

    rate: float
    key: int | None = None
    arriving: float = 0.0
    receiving: bool = False
    single: bool = False
    stage: int = 0
    width: float = 0.0
    at: Shares = ()

    def lies_by(self, key: int | None) -> bool:
        """Whether rows of equal keys of this class are in one slot, or can be."""
        return self.single or (key is not None and key == self.key)


@dataclass(frozen=True, slots=True)
class Meeting:
    """What brings parts together: the rows per tick that move, where the result lies, and the bytes between sites."""

    moved: float
    placed: PlacedRows
    transfers: Transfers | None = None


def single(rate: float, width: float = 0.0, at: Shares = ()) -> PlacedRows:
    """An input that arrives as is wanted."""
    return PlacedRows(rate, None, rate, False, True, width=width, at=at)


def meeting(
    parts: Sequence[PlacedRows],
    keys: Sequence[int],
    result: PlacedRows,
    topology: Topology | None = None,
    price: Callable[[Meeting], float] = lambda meeting: meeting.moved,
) -> Meeting:
    """The cheapest way in which parts meet by one of some keys; `result` has the rate and width of what they give."""
    options = [_by(parts, key, result, topology) for key in keys] or [_by(parts, None, result, topology)]
    return min(options, key=price)


def _by(parts: Sequence[PlacedRows], key: int | None, result: PlacedRows, topology: Topology | None) -> Meeting:
    staying = [part for part in parts if part.lies_by(key)]
    moved = sum(part.rate for part in parts if not part.lies_by(key))
    arriving = sum(part.arriving for part in staying)
    receiving = len(staying) < len(parts) or any(part.receiving for part in staying)
    at = () if topology is None else topology.one_slot if key is None else topology.everywhere
    width, rate = result.width, result.rate
    if not receiving:
        return Meeting(moved, PlacedRows(rate, key, arriving, False, width=width, at=at))
    moving = max((part.stage + 1 for part in parts if not part.lies_by(key)), default=0)
    stage = max(moving, *(part.stage for part in parts))
    placed = PlacedRows(rate, key, 0.0, True, stage=stage, width=width, at=at)
    if topology is None:
        return Meeting(moved + arriving, placed)
    travelling = Travelling(topology)
    for part in parts:
        rows = part.arriving if part.lies_by(key) else part.rate
        if rows:
            travelling.send(stage, part.at, at, rows * (part.width + INTERVAL))
    return Meeting(moved + arriving, placed, travelling.transfers)
