"""Whether the running plan's own work has changed, which every batch shows for nothing.

Some join of the running plan checks every condition between streams. So a change of rates or selectivities that makes
the plan dearer shows at once in what its operators handle for each row that comes in, whereas looking at rows takes
time. A false alarm costs one look: one batch beyond the noise is enough.
"""

from __future__ import annotations

from midstream.adaptation.smoothing import Smoothed
from midstream.operators.base import Work
from midstream.operators.box import Box

LEAST = 0.2
"""From which relative deviation on a batch is out of the ordinary, however little noise there is."""

NOISES = 3.0
"""And how many times the usual deviation of a batch it has to be."""

LEARNING = 3
"""From how many batches what is usual is learned."""

FADE = 0.8


class Alarm:
    """Follows what the operators of a box handle per row."""

    def __init__(self) -> None:
        self.box: Box | None = None
        self.handled = 0
        self.usual = Smoothed(FADE)

    def rings(self, box: Box, rows: int) -> bool:
        """Sees the box after a batch of so many rows; whether it has done more, or less, than usual for them."""
        handled = _handled(box.work)
        if box is not self.box:
            self.box, self.handled, self.usual = box, handled, Smoothed(FADE)
            return False
        done, self.handled = handled - self.handled, handled
        if rows <= 0 or done <= 0:
            return False
        unusual = self._unusual(done / rows)
        if unusual:
            self.usual = Smoothed(FADE)
        self.usual.add(float(done), float(rows))
        return unusual

    def _unusual(self, ratio: float) -> bool:
        if self.usual.weight <= _learned():
            return False
        usual = self.usual.value
        return max(ratio / usual, usual / ratio) - 1 > max(LEAST, NOISES * self.usual.noise)


def _learned() -> float:
    """The weight of what is usual before the last of the batches from which it is learned."""
    return sum(FADE**i for i in range(LEARNING - 1))


def _handled(work: Work) -> int:
    return work.probed + work.inserted + work.matched + work.given
