"""Groups that several slots share because a test says so; a job decides that by itself, or when it is rebalanced."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.distribution.fragments import GroupName, SpreadGroup
from midstream.job.state import Event, JobState


@dataclass(frozen=True, slots=True)
class GroupSpread(Event):
    """Several slots are to share a group from the next batch on that can have it so."""

    group: SpreadGroup

    def happen(self, state: JobState) -> None:
        state.spread.ask(self.group)


@dataclass(frozen=True, slots=True)
class GroupBroughtHome(Event):
    """A group is to have one slot again."""

    group: GroupName

    def happen(self, state: JobState) -> None:
        state.spread.end(self.group)
