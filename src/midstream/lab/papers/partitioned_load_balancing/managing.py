"""The distribution manager's machine: starts moves that it is asked for, and asks again until all is answered."""

from __future__ import annotations

from typing import Any

from midstream.lab.papers.partitioned_load_balancing.protocols import manager
from midstream.lab.papers.partitioned_load_balancing.protocols.manager import ManagerState, MoveRequest
from midstream.lab.papers.partitioned_load_balancing.protocols.messages import Message, Send
from midstream.lab.papers.partitioned_load_balancing.splitting import AGAIN
from midstream.lab.simulated_cluster.machines import Disk, MachineStep


class Managing:
    """The program of the distribution manager."""

    def __init__(self, disk: Disk, start: ManagerState, again: float | None = AGAIN) -> None:
        """`again` is after how long it asks again; None where no message can be lost."""
        self.again = again
        written = disk.get("manager")
        self.state = start if written is None else ManagerState.from_json(written)

    def start(self, step: MachineStep) -> None:
        """Asks again for whatever is unanswered."""
        self._end(step, manager.resend(self.state))

    def wake(self, step: MachineStep, timer: str) -> None:
        """Asks again for whatever is unanswered."""
        self._end(step, manager.resend(self.state))

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes a request or an answer."""
        if isinstance(message, MoveRequest):
            self.state, sends = manager.begin(self.state, message)
            self._end(step, sends)
        elif isinstance(message, Message):
            self.state, sends = manager.receive(self.state, sender, message)
            self._end(step, sends)

    def _end(self, step: MachineStep, sends: tuple[Send, ...]) -> None:
        for send in sends:
            step.send(send.to, send.message, urgent=True)
        step.write("manager", self.state.to_json())
        if self.state.moves and self.again is not None:
            step.set_timer("again", self.again)
        else:
            step.cancel_timer("again")
