"""What moves between the stages of a plan whose rows lie in slots by their keys.

Rows that are joined by another key than they lie by move. Single inputs arrive by whichever key is wanted, but they
arrive in the first stage: where something that has moved is joined, the inputs of that stage come by an exchange too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows in slots: by which class of equal keys (None: as they arrive), whether something has moved for them.

    `rate` is how many there are per tick, `arriving` how many per tick arrive in this stage without an exchange so far,
    `stage` the number of exchanges one after another that lie behind them.
    """

    rate: float
    key: int | None = None
    arriving: float = 0.0
    receiving: bool = False
    single: bool = False
    stage: int = 0

    def lies_by(self, key: int | None) -> bool:
        """Whether rows of equal keys of this class are in one slot, or can be."""
        return self.single or (key is not None and key == self.key)


def single(rate: float) -> Placed:
    """An input that arrives as is wanted."""
    return Placed(rate, None, rate, False, True)


def meeting(parts: Sequence[Placed], keys: Sequence[int], rate: float) -> tuple[float, Placed]:
    """The fewest rows per tick that have to move so that parts meet by one of some keys, and where the result lies."""
    options = [_by(parts, key, rate) for key in keys] or [_by(parts, None, rate)]
    return min(options, key=lambda option: option[0])


def _by(parts: Sequence[Placed], key: int | None, rate: float) -> tuple[float, Placed]:
    staying = [part for part in parts if part.lies_by(key)]
    moved = sum(part.rate for part in parts if not part.lies_by(key))
    arriving = sum(part.arriving for part in staying)
    receiving = len(staying) < len(parts) or any(part.receiving for part in staying)
    if receiving:
        moving = max((part.stage + 1 for part in parts if not part.lies_by(key)), default=0)
        stage = max(moving, *(part.stage for part in parts))
        return moved + arriving, Placed(rate, key, 0.0, True, stage=stage)
    return moved, Placed(rate, key, arriving, False)
