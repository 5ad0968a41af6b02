"""Reports what a batch did: to the log, and to the listeners of a session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from midstream.job.outputs.progress import batch_line

log = logging.getLogger(__name__)

Progress = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Announcements:
    """The listeners, and the last event they received."""

    listeners: list[Progress] = field(default_factory=list)
    last: dict[str, Any] | None = None

    def announce(self, progress: dict[str, Any]) -> None:
        """Logs what a batch did, warns of what needs attention, and calls the listeners."""
        self.last = progress
        log.info("%s", batch_line(progress))
        for sentence in progress["warnings"]:
            log.warning("%s", sentence)
        for listener in self.listeners:
            listener(progress)
