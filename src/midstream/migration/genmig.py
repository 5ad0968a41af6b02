"""GenMig: the old box answers for all time before a split, the new box for all time after it (GenMig, Algorithms 1-3).

Snapshots of snapshot-equivalent plans are equal, so it does not matter which box answers for an instant as long as
exactly one does and has seen all that is valid then. The split lies after every end that the old box can contain, so
the new box, which starts empty, sees everything that is valid after it. What crosses the split goes to both boxes; the
halves of results that cross it are mended where the boxes meet. The migration ends when both boxes have answered up to
the split.

The old box keeps the true ends of its elements and its results are cut at the root instead. It can therefore go on
alone at any time: to cancel, it is given what only the new box has seen, silently, because the new box has given the
results of that already.

If one plan gives results early and the other by slices of time, what the new box has given is not what the old one
would have. Then nothing after the split leaves before the end of the migration, at which time has passed the split and
both agree. To cancel, the old box is given what only the new box has seen, and its results after the split leave
instead of the new one's. For that it must not have forgotten anything, nor answered for any time, after the split, so
it is not told of such time before the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from midstream.algebra.physical import SourceNode
from midstream.migration.coalesce import Coalesce, CutAtSplit, Joint, Pairing
from midstream.migration.execution import SingleBox, named
from midstream.migration.legality import emission_class, keeps_intervals, require_one_query, require_split_time
from midstream.migration.protocol import Decision, Figures, Functions, OnTheWay, Situation, common_sources, rows_in
from midstream.migration.split import Split, split_after
from midstream.migration.tracks import Top, hand_over, named_tracks, relational
from midstream.operators.box import Box
from midstream.operators.elements import Elements, concatenate
from midstream.operators.state.segment import Grouping, key_hashes
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.plans import Plan


class GenMig:
    """For any plan whose tuples' validity is known when they come."""

    name = "genmig"

    def __init__(
        self,
        split_rule: Callable[[Situation], int] | None = None,
        splitter: Callable[[int], Split] = Split,
        pairing: Pairing | None = None,
    ) -> None:
        self.split_rule = split_rule or after_every_start_seen
        self.splitter = splitter
        self.pairing = pairing

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks for a split time."""
        require_one_query(self.name, old, new)
        require_split_time(self.name, (old, new))

    def decide(self, situation: Situation) -> Decision:
        """The split time, as the last tick of the old box."""
        return {"split_after": self.split_rule(situation)}

    def open(self, old: SingleBox, new: Box, decision: Decision) -> SplitExecution:
        """Two boxes and the split between them."""
        return SplitExecution(old, new, self.splitter(decision["split_after"]), self.joint)

    def joint(self, box: Box, other: Box, split: Split) -> Joint:
        """Mends what the split has cut, or leaves it cut if the halves would not come at one time."""
        if emission_class(box.plan) != emission_class(other.plan):
            return CutAtSplit(box.plan.schema, split)
        exact = keeps_intervals(box.plan) and keeps_intervals(other.plan)
        return Coalesce(box.plan.schema, split, exact, self.pairing)


def _ahead(source: SourceNode) -> SortedState:
    """A state that keeps a source's rows, in an order by which their groups can leave."""
    state = SortedState(f"{source.stream.alias} ahead of the split", (), source.schema, None)
    state.grouping = Grouping.of(source.partition, source.schema.names)
    return state


def after_every_start_seen(situation: Situation) -> int:
    """The latest end given to any start seen on any input."""
    return max(split_after(situation.sources, situation.starts, situation.registers), situation.seen_below)


class SplitExecution(OnTheWay):
    """Runs the old box before the split and the new box after it."""

    def __init__(self, old: SingleBox, new: Box, split: Split, joint: Callable[[Box, Box, Split], Joint]) -> None:
        self.before, self.after = old, old.beside(new, old.sink)
        self.split = split
        self.figures = Figures()
        self.frontier = old.box.frontier
        self.top = Top(old.box, old.sink)
        self.old = relational(old, self._from_old)
        self.new = relational(self.after, self._from_new)
        self.joint = joint(self.old.box, self.new.box, split)
        self.sources: tuple[SourceNode, ...] = common_sources(self.old, self.new)
        # What only the new box has seen: the old one needs it if the migration is cancelled.
        self.ahead = {source.stream.alias: _ahead(source) for source in self.sources}

    def begin(self) -> None:
        """The new box starts empty, where the old one stands."""
        self.frontier = self.old.box.frontier
        self.new.restore(self.old.box.frontier)

    def feed(self, alias: str, batch: Elements) -> None:
        """Splits the batch between the boxes."""
        before, crossing, later = self.split.parts(batch)
        if len(before):
            self.old.feed(alias, before)
        if len(crossing):
            self.new.feed(alias, crossing)
        if len(later):
            self.new.feed(alias, later)
            ahead = self.ahead[alias]
            ahead.insert(later, key_hashes(later.columns, ahead.key, ahead.grouping))
        self.figures.processed_twice += len(crossing)
        self.top.give(self.joint.release())

    def _from_old(self, batch: Elements) -> None:
        self.top.give(self.joint.old(batch))

    def _from_new(self, batch: Elements) -> None:
        self.top.give(self.joint.new(batch))

    def advance(self, frontier: int) -> None:
        """Carries the frontier through both boxes and what stands above them."""
        self.frontier = frontier
        self.old.advance(self._old_frontier)
        self.new.advance(frontier)
        self.top.give(self.joint.release())
        self.top.advance(self._relation_passed)
        self.figures.holding(rows_in(state for name, state in self.named_states() if not name.startswith("old/")))

    @property
    def _old_frontier(self) -> int:
        return min(self.frontier, self.split.first) if self._parted else self.frontier

    @property
    def _parted(self) -> bool:
        return isinstance(self.joint, CutAtSplit)

    @property
    def passed(self) -> int:
        """The frontier of the results."""
        return self.top.passed(self._relation_passed)

    @property
    def _relation_passed(self) -> int:
        first = self.split.first
        passed = self.old.passed if self.old.passed < first else max(first, self.new.passed)
        held = self.joint.held_from
        return passed if held is None else min(passed, held)

    @property
    def held_from(self) -> int | None:
        """The earliest start of what waits for its other half."""
        return self.joint.held_from

    @property
    def done(self) -> bool:
        """Whether both boxes have answered, or can answer, for all time before the split."""
        passed = self.old.box.floor(self.frontier) if self._parted else self.old.passed
        return passed >= self.split.first and self.new.passed >= self.split.first

    def finish(self) -> SingleBox:
        """Gives what was held back and leaves the new box."""
        if self._parted:
            self.old.advance(self.frontier)
        self.top.give(self.joint.flush())
        self.top.advance(self._relation_passed)
        hand_over(self.top, self.after.box, self.new.box)
        return self.after

    def cancel(self) -> SingleBox:
        """Gives what was held back, tells the old box what it has missed, and leaves it."""
        self.top.give(self.joint.forgo() if isinstance(self.joint, CutAtSplit) else self.joint.flush())
        rest = self.before.beside(self.old.box, self.top.give if self._parted else lambda _: None)
        for alias, state in self.ahead.items():
            if state.segments:
                rest.feed(alias, concatenate([segment.elements for segment in state.segments]))
        if self.frontier > self.old.box.frontier:
            rest.advance(self.frontier)
        hand_over(self.top, self.before.box, self.old.box)
        return self.before

    def named_states(self) -> Iterator[tuple[str, SortedState]]:
        """The states of both boxes, of the top and of what is held."""
        yield from named_tracks(self.top, self.old, self.new)
        yield from named(self.joint.states(), "joint/")
        yield from named(self.ahead.values(), "ahead/")

    def restore(self, frontier: int) -> None:
        """Sets both boxes to a frontier that was reached earlier."""
        self.frontier = frontier
        self.old.restore(self._old_frontier)
        self.new.restore(frontier)
        self.top.restore(self._relation_passed)
