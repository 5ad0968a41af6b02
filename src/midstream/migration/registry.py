"""All strategies by name: a new one is a file, a line here and a test file."""

from __future__ import annotations

from midstream.errors import MigrationError, instead_of
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
        raise MigrationError(f"unknown migration strategy {name!r}", hint=instead_of(name, STRATEGIES))
    return found
