"""The machine that receives results and puts them in order: what starts before every processor's promise may leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from midstream.algebra.time import BEGINNING
from midstream.cluster.local.live_query import Release
from midstream.lab.papers.partitioned_load_balancing.delivery import Ends, Packet, Queues
from midstream.lab.simulated_cluster.machines import Disk, MachineStep
from midstream.operators.elements import Elements


class Sink:
    """The program of the machine that receives results."""

    def __init__(self, disk: Disk, processors: Sequence[str], sure: bool = False) -> None:
        start: tuple[Any, ...] = ((), (), dict.fromkeys(processors, BEGINNING), None, 0)
        released, waiting, passed, ends, broken = disk.get("sink", start)
        self.released: list[Elements] = list(released)
        self.release = Release()
        self.release.waiting = list(waiting)
        self.passed: dict[str, int] = dict(passed)
        self.broken: int = broken
        ends_known: Ends | None = ends
        self.queues = Queues(sure, ends_known)
        self.sure = sure

    @property
    def frontier(self) -> int:
        """Before which everything has been released."""
        return min(self.passed.values())

    def start(self, step: MachineStep) -> None:
        """Nothing to do: others send again."""

    def wake(self, step: MachineStep, timer: str) -> None:
        """Has no timers."""

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes results; counts those that break their processor's promise."""
        if isinstance(message, Packet):
            for results in self.queues.take(step, sender, message):
                for part in results.parts:
                    self.broken += int((part.valid_from < self.frontier).sum())
                    self.release(part)
                self.passed[sender] = results.passed
                given = self.release.release(self.frontier)
                if given is not None:
                    self.released.append(given)
        if not self.sure:
            saved = (
                tuple(self.released),
                tuple(self.release.waiting),
                dict(self.passed),
                self.queues.ends(),
                self.broken,
            )
            step.write("sink", saved)
