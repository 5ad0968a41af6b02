"""Moving state: the new box takes over at once, with its states as if it had run all along (CAPE section 4.1).

Everything that came before the start has been processed (a box has no queues between batches), so what has been given
out is a function of the input and the frontier alone, the same for both plans: everything known, for a query that
emits at once, or everything before the last multiple of its grid. So the new box must only hold the right states and
the right frontier; what it gives while its states are being filled was given before, and is dropped.

All states are purged at the frontier of the whole query. A register that is ahead (A and B at 20, C at 3) does not
count: a leaf that another plan may still need is still there.

How each operator's state follows from the windows: a join keeps its inputs, which are joins of what is below; a
duplicate elimination keeps each tuple's coverage, the union of its input's intervals; aggregation, difference,
intersection and outer joins keep their inputs and have answered up to the frontier's grid point. Row windows and
sequences are the same in every plan and are taken over.
"""

from __future__ import annotations

from collections.abc import Iterator

from midstream.algebra.physical import SourceNode
from midstream.errors import MigrationError
from midstream.migration.contents import Contents
from midstream.migration.execution import SingleBox
from midstream.migration.legality import emission_class, relational_part, require_one_query
from midstream.migration.protocol import Decision, Figures, Functions, OnTheWay, Situation
from midstream.migration.state_move import Portions, StateMove
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.plans import Plan


class MovingState:
    """For any plan whose states can be derived from what the old plan has kept."""

    name = "moving_state"

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks that every state of the new plan can be derived."""
        require_one_query(self.name, old, new)
        require_one_emission(self.name, old, new)
        StateMove(Contents(Box(old.physical, functions)), Box(new.physical, functions), functions)

    def decide(self, situation: Situation) -> Decision:
        """Nothing: a partition's states follow from its own."""
        return {}

    def open(self, old: SingleBox, new: Box, decision: Decision) -> MovedState:
        """Both boxes; the move itself is what begins it."""
        return MovedState(old, new)


def require_one_emission(strategy: str, old: Plan, new: Plan) -> None:
    """Both plans must have given out the same when they have had the same."""
    mine, its = (emission_class(relational_part(plan.physical)) for plan in (old, new))
    if mine != its:
        raise MigrationError(
            f"{strategy} cannot migrate between these plans: they do not give out results at the same time",
            detail=f"beyond the frontier the old one gives {mine}, the new one {its}",
            hint="use strategy genmig, which lets each plan answer for its own time",
        )


class MovedState(OnTheWay):
    """The new box, filled from the old one; nothing remains to be done once it has begun."""

    def __init__(self, old: SingleBox, new: Box) -> None:
        self.old = old
        self.new = old.beside(new, old.sink)
        self.figures = Figures()
        self.portions = Portions()

    def begin(self) -> None:
        """Moves the states."""
        box = self.old.box
        move = StateMove(Contents(box), self.new.box, self.new.box.functions)
        move.portions = self.portions
        frontier = box.floor(box.frontier)
        move.begin(frontier)
        move.send(frontier)
        self.figures.processed_twice = move.rows_sent
        self.figures.holding(sum(held.state.rows for held in move.unmatched))

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """What the new box reads."""
        return self.new.sources

    def feed(self, alias: str, batch: Elements) -> None:
        """Feeds the new box."""
        self.new.feed(alias, batch)

    def advance(self, frontier: int) -> None:
        """Carries the frontier through the new box."""
        self.new.advance(frontier)

    @property
    def passed(self) -> int:
        """The frontier of the new box's results."""
        return self.new.passed

    @property
    def done(self) -> bool:
        """Always: there is nothing to wait for."""
        return True

    def finish(self) -> SingleBox:
        """Leaves the new box."""
        return self.new

    def cancel(self) -> SingleBox:
        """Refused: what has come since is in the new box alone."""
        raise MigrationError(
            "a migration by moving_state cannot be cancelled",
            detail="the state has moved, and rows that have come since are in the new plan's alone",
            hint="migrate back",
        )

    def named_states(self) -> Iterator[tuple[str, SortedState]]:
        """The new box's states."""
        return self.new.named_states()

    def restore(self, frontier: int) -> None:
        """Sets the new box to a frontier that was reached earlier."""
        self.new.restore(frontier)
