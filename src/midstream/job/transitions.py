"""How events change a job: a state and an event give the next state, and what is to be done besides.

Nothing else changes a state. An event works on a copy, so one that is refused leaves the state as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from midstream.job.actions import Action
from midstream.job.state import JobState

Actions = tuple[Action, ...]


class Event(ABC):
    """Something that happens to a job; `events` has all that can."""

    __slots__ = ()

    @abstractmethod
    def happen(self, state: JobState) -> Actions | None:
        """Changes a state of its own, and gives what the job is to do; raises an error if it is refused."""


def after(state: JobState, event: Event) -> tuple[JobState, Actions]:
    """The state after an event, and what the job is to do; raises an error if the event is refused."""
    state = state.copy()
    return state, event.happen(state) or ()
