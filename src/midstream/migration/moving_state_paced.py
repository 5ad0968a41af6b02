"""Moving state, paced: the new box's states are filled a little per batch while the old box goes on answering.

Why this is right. Call P0 what had been fed when the migration began and D what has been fed since. At the switch the
new box must hold, of every state, the content over P0 and D together. There are two kinds of states.

Matched states hold what some state of the old box holds, sorted by the same key. At the switch they take over that
state's segments as they are then. The old box has had P0 and D, so they are right whatever was in them before, and
nothing is sorted or copied in that moment.

All other states, also those that the old box has by another key, are filled from both ends. (1) What the old box held
at the start, over P0, is read once: segments are immutable, so reading costs nothing and later changes do not show. It
is sent in slices, as a budget allows. (2) What the old box learns in the meantime, over D, is sent as it comes: at each
place where a content is known to the old box, the batches that go along the old box's wire go along the new box's wire
as well. So every place of the new box at which something is known gets exactly the content over P0 and D, each element
once, in some order. The operators above are inner joins, duplicate eliminations and operators without state. What a
symmetric join has stored and given when its inputs have come completely does not depend on the order in which they
came: every pair meets once, when its later part comes. The coverage that a duplicate elimination keeps is a union, for
which order does not matter either. One pair of inputs could meet twice or not at all: two contents that are both known,
because neither is sent, both are simply there. Their result over P0 is a backlog of its own, computed slice by slice
against the other's segments as they were at the start; pairs with a part from D are found by the join when that part
comes, and by nothing else.

Nothing the new box gives leaves it before the switch: by the emission rule it has been given by the old box. Slice
operators are not asked to answer before the switch, and then go on from where the old box's have answered up to. So
output never pauses, the switch happens between two batches, and how long it takes is a matter of budget alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator

from midstream.algebra.physical import SourceNode
from midstream.errors import MigrationError
from midstream.migration.contents import Contents
from midstream.migration.execution import SingleBox, named
from midstream.migration.legality import require_one_query
from midstream.migration.moving_state import require_one_emission
from midstream.migration.protocol import Decision, Figures, Functions, OnTheWay, Situation, common_sources
from midstream.migration.state_move import StateMove
from midstream.operators.base import Operator
from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.plans import Plan

SHARE = 4
"""How many times the work that a batch costs the old box may be spent on filling the new one."""

LEAST_WORK = 1024
"""What may be spent on filling per batch in any case, in rows and pairs."""


class MovingStatePaced:
    """For the plans that `moving_state` can take over; `budget` is work per batch (None: a share of the old box's)."""

    name = "moving_state_paced"

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks that every state of the new plan can be derived, and that what it misses can be listened to."""
        require_one_query(self.name, old, new)
        require_one_emission(self.name, old, new)
        move = StateMove(Contents(Box(old.physical, functions)), Box(new.physical, functions), functions, paced=True)
        if any(feed.origin == "" for feed in move.feeds):
            raise MigrationError(
                f"{self.name} cannot migrate to this plan: it would store a window over a sub-query again",
                hint="use strategy moving_state, which does it at once",
            )

    def decide(self, situation: Situation) -> Decision:
        """Nothing: a partition's states follow from its own."""
        return {}

    def open(self, old: SingleBox, new: Box, decision: Decision) -> PacedMove:
        """Both boxes; the old one is listened to."""
        return PacedMove(old, new, self.budget)


class PacedMove(OnTheWay):
    """The old box answers; the new one is filled and listens."""

    def __init__(self, old: SingleBox, new: Box, budget: int | None) -> None:
        self.before = old
        self.after = old.beside(new, old.sink)
        self.budget = budget
        self.figures = Figures()
        self.move = StateMove(Contents(old.box), new, new.functions, paced=True)
        self.sources: tuple[SourceNode, ...] = common_sources(self.before, self.after)
        self.targets: dict[Wire | str, list[Wire]] = defaultdict(list)
        for feed in self.move.feeds:
            self.targets[feed.origin].append(feed.target)
        self.old = old.beside(tapped(old.box, self.targets, self._hear), self._give)
        self._worked = self._work

    def begin(self) -> None:
        """Reads what is to be sent."""
        self.move.begin(self._frontier)

    def feed(self, alias: str, batch: Elements) -> None:
        """Feeds the old box, and the new one with what it cannot learn from the old."""
        self.old.feed(alias, batch)
        self._hear(alias, batch)

    def advance(self, frontier: int) -> None:
        """Carries the frontier through the old box; spends the budget on the new one."""
        self.old.advance(frontier)
        self.move.new.restore(self._frontier)
        for state in self.move.states():
            state.expire(self._frontier)
        self.move.send(self._frontier, self.budget or max(LEAST_WORK, SHARE * (self._work - self._worked)))
        self._worked = self._work
        self.figures.processed_twice = self.move.rows_sent + self.move.rows_heard
        self.figures.holding(sum(held.state.rows for held in self.move.unmatched) + self.move.left)

    @property
    def _frontier(self) -> int:
        return self.old.box.floor(self.old.box.frontier)

    @property
    def _work(self) -> int:
        done = self.before.box.work
        return done.taken + done.inserted + done.matched

    def _hear(self, origin: Wire | str, batch: Elements) -> None:
        for target in self.targets.get(origin, ()):
            self.move.hear(target, batch)

    def _give(self, batch: Elements) -> None:
        self._hear(Wire(ROOT, 0), batch)
        self.before.sink(batch)

    @property
    def passed(self) -> int:
        """The frontier of the old box's results."""
        return self.old.passed

    @property
    def done(self) -> bool:
        """Whether everything has been sent."""
        return self.move.left == 0

    def finish(self) -> SingleBox:
        """Takes over what matches, as it is now, and leaves the new box."""
        self.move.finish(self._frontier)
        return self.after

    def cancel(self) -> SingleBox:
        """Leaves the old box, which never stopped."""
        self.before.box.frontier = self.old.box.frontier
        return self.before

    def named_states(self) -> Iterator[tuple[str, SortedState]]:
        """The states of both boxes and what is still to be sent."""
        yield from named(self.old.states(), "old/")
        yield from named(self.after.states(), "new/")
        yield from named(self.move.rests(), "rest/")

    def restore(self, frontier: int) -> None:
        """Sets both boxes to a frontier that was reached earlier."""
        self.old.restore(frontier)
        self.after.restore(frontier)
        self._worked = self._work


Hear = Callable[[Wire, Elements], None]


class Tapped(Operator):
    """A live operator with an ear at its wires: its inputs are heard before it takes them."""

    def __init__(self, operator: Operator, number: int, hear: Hear) -> None:
        super().__init__(operator.schema)
        self.operator, self.number, self.hear = operator, number, hear
        self.ports, self.name, self.states = operator.ports, operator.name, operator.states
        self.frontier, self.work = operator.frontier, operator.work

    @property
    def passed(self) -> int:
        return self.operator.passed

    def pieces(self, port: int, batch: Elements) -> Iterator[Elements]:
        self.hear(Wire(self.number, port), batch)
        return self.operator.pieces(port, batch)

    def advances(self, frontier: int) -> Iterator[Elements]:
        self.frontier = frontier
        return self.operator.advances(frontier)

    def restore(self, frontier: int) -> None:
        self.frontier = frontier
        self.operator.restore(frontier)


def tapped(box: Box, wires: Container[object], hear: Hear) -> Box:
    """A box that runs the same operators and tells what goes along the given wires."""
    operators = [
        Tapped(operator, i, hear) if any(Wire(i, port) in wires for port in range(operator.ports)) else operator
        for i, operator in enumerate(box.operators)
    ]
    return box.running(box.plan, operators)
