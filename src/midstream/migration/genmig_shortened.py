"""GenMig with the earliest split time (GenMig section 4.5, optimization 2).

The split need only lie after the latest end inside the old box. That is earlier than the latest end given to a start
whenever the longest-lived elements have left no trace: dropped by a selection, without a partner's key, or never come.
"""

from __future__ import annotations

from midstream.migration.genmig import GenMig
from midstream.migration.protocol import Situation


class GenMigShortened(GenMig):
    """For any plan whose tuples' validity is known when they come."""

    name = "genmig_shortened"

    def __init__(self) -> None:
        super().__init__(after_everything_inside)


def after_everything_inside(situation: Situation) -> int:
    """The latest end inside the old box; nothing that starts before the frontier can still come."""
    return max(situation.inside, situation.frontier - 1)
