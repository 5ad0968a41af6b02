"""All strategies by name: a new one is a file, a line here and a test file."""

from __future__ import annotations

from difflib import get_close_matches

from midstream.errors import MigrationError
from midstream.migration.auto import Auto
from midstream.migration.genmig import GenMig
from midstream.migration.genmig_reference_point import GenMigReferencePoint
from midstream.migration.genmig_shortened import GenMigShortened
from midstream.migration.moving_state import MovingState
from midstream.migration.moving_state_paced import MovingStatePaced
from midstream.migration.parallel_track import ParallelTrack
from midstream.migration.protocol import Strategy

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        MovingState(),
        MovingStatePaced(),
        ParallelTrack(),
        GenMig(),
        GenMigReferencePoint(),
        GenMigShortened(),
    )
}
STRATEGIES["auto"] = Auto(STRATEGIES)


def strategy_named(name: str) -> Strategy:
    """A strategy by name."""
    found = STRATEGIES.get(name)
    if found is None:
        near = get_close_matches(name, STRATEGIES, 1)
        raise MigrationError(
            f"unknown migration strategy {name!r}",
            hint=f"did you mean {near[0]}?" if near else f"use one of {', '.join(STRATEGIES)}",
        )
    return found
