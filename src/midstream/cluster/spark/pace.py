"""Decides where long batches run, in the driver or in executors: where a row takes less time.

After a batch that took the driver long, executors run two. The faster place runs the next twenty batches, and twice as
many each time that the same place is the faster one again.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 1.0
"""A batch that takes the driver more seconds than this is long."""

TRIED = 2
"""How many batches executors run for the comparison. The last one counts, because the first may start workers."""

STANDS, STANDS_LONGEST = 20, 640
"""How many batches the faster place runs before the next comparison, at first and at most."""


@dataclass(slots=True)
class SparkPace:
    """Whose turn it is, and what is known of both."""

    executors: int = 0
    """How many of the next batches executors run."""
    driver: int = 0
    """How many of the next batches the driver runs, however long they take."""
    _row: float | None = None
    """What a row took the driver, while executors are compared with it."""
    _faster: str = ""
    _stands: int = STANDS

    def is_drivers_turn(self) -> bool:
        """Whether the driver may run the batch that comes; it is asked once for each."""
        if self.executors:
            self.executors -= 1
            return False
        return True

    def driver_failed(self) -> None:
        """Has executors run the next batches."""
        self.executors, self.driver, self._row = STANDS, 0, None

    def driver_took(self, seconds: float, rows: int) -> None:
        """Learns from a batch that the driver ran."""
        if self.driver:
            self.driver -= 1
        elif seconds > LONGEST:
            self.executors, self._row = TRIED, seconds / max(1, rows)

    def executors_took(self, seconds: float, rows: int) -> None:
        """Learns from a batch that executors ran."""
        if self._row is None or self.executors or not rows:
            return
        faster = "executors" if seconds / rows < self._row else "driver"
        self._stands = min(2 * self._stands, STANDS_LONGEST) if faster == self._faster else STANDS
        self._faster, self._row = faster, None
        if faster == "driver":
            self.driver = self._stands
        else:
            self.executors = self._stands
