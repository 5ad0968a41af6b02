"""Any strategy on a part of a plan: the part migrates, the operators below and above it just go on.

Why a part may migrate by itself. To the part, what the operators below it give is a stream of elements like any other:
whole validities, a frontier, nothing earlier than the frontier afterwards. Both sub-plans mean the same by themselves,
so whatever a strategy guarantees for two plans of one query it guarantees for the part: what leaves it has the
snapshots of an unmigrated run, and nothing starts before what it has passed. That is all that operators above rely on.
Those that answer by slices are told what the part has passed, so they answer only for time that is complete; the others
take what comes when it comes, in whatever order. So operators above may be of any kind, also where a strategy is
refused for plans that contain them:

- With reference points and with parallel track, a part of selections, projections, unions and inner joins gives, after
  every batch, exactly the elements of an unmigrated part. A count above it sees no difference at all. (The count that
  these strategies cannot migrate is one that is itself run twice.)
- A split needs ends that are known. What comes from below a part ends when it ends, whatever windows there are below:
  a ROWS window below the part is no obstacle. The latest end seen on the inputs is the latest in the part's states, as
  far as it matters: what has left no trace in them the old part cannot tell from what never came, so neither can the
  new one, which means the same.
- Moving state needs the states of the part only, and finds what it misses in the part only. Where the part has not kept
  it, the whole plan may have, so then the whole plan migrates.

While the part migrates, the old box is run in three layers: what is below the part, the part, and what is above. The
layers run the box's own operators, so nothing is copied and nothing forgets; only the wires between the layers are now
someone else's to carry. The whole box has one grid, to which all its operators move; a layer may have no operator that
knows the grid, so whoever runs the layers must tell them the box's floor and not the frontier itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from midstream.algebra.physical import PhysicalNode, SourceNode, replaced
from midstream.algebra.time import BEGINNING
from midstream.errors import MigrationError
from midstream.migration.execution import SingleBox, named
from midstream.migration.legality import require_one_query
from midstream.migration.moving_state import MovedState
from midstream.migration.plan_part import PlanPart, logical_parts, output_of, part_of
from midstream.migration.protocol import Decision, Figures, Functions, Migrating, OnTheWay, Situation, Strategy
from midstream.migration.state_move import Portions
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.slices import SliceOperator
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.fixed_plan import FixedPlan
from midstream.optimizer.plans import Plan

PARTS = ("auto", "smallest", "whole")
"""What migrates: the smallest part in which the plans differ, whatever the plans contain beside it ("smallest"); the
same part, and a strategy that was named must be one that could migrate the whole plans as well ("auto"); or always
everything ("whole")."""


def way(strategy: Strategy, old: Plan, new: Plan, functions: Functions, part: str = "auto") -> Strategy:
    """The strategy as it will be used, on a part or on the whole; refuses if it cannot be used as is asked for."""
    require_part(part)
    require_one_query(strategy.name, old, new)
    confined = InPart(strategy)
    if part == "whole" or part_of(old.physical, new.physical).whole:
        strategy.refuse(old, new, functions)
        return strategy
    if part == "smallest":
        confined.refuse(old, new, functions)
        return confined
    try:
        strategy.refuse(old, new, functions)
    except MigrationError as error:
        raise _with_a_way_out(error, confined, old, new, functions) from None
    return confined if _refusal(confined, old, new, functions) is None else strategy


def require_part(part: str) -> None:
    """Refuses what is not the name of a kind of part."""
    if part not in PARTS:
        raise MigrationError(f"a migration cannot be of the part {part!r}", hint=f"use one of {', '.join(PARTS)}")


def _refusal(strategy: Strategy, old: Plan, new: Plan, functions: Functions) -> MigrationError | None:
    try:
        strategy.refuse(old, new, functions)
    except MigrationError as error:
        return error
    return None


def _with_a_way_out(error: MigrationError, confined: InPart, old: Plan, new: Plan, functions: Functions) -> Exception:
    """The refusal of the whole plans, with a hint if the strategy could migrate the part in which they differ."""
    if _refusal(confined, old, new, functions) is not None:
        return error
    text = part_of(old.physical, new.physical).text
    hint = f'part="smallest", which migrates {text} and leaves the rest of the plan as it is'
    return MigrationError(error.message, detail=error.detail, hint=f"{error.hint}; or {hint}" if error.hint else hint)


def way_decided(strategy: Strategy, decision: Decision) -> Strategy:
    """The strategy as a decision says that it is used."""
    return InPart(strategy) if decision.get("part") else strategy


def move_by(migrating: Migrating, portions: Portions) -> None:
    """Has states moved in portions, if moving them is what begins a migration."""
    inner = migrating.part if isinstance(migrating, MigratingPart) else migrating
    if isinstance(inner, MovedState):
        inner.portions = portions


class InPart:
    """A strategy confined to the part in which the plans differ."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.name = strategy.name

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks the strategy about the part."""
        require_one_query(self.name, old, new)
        part = part_of(old.physical, new.physical)
        self.strategy.refuse(*_plans(old, new, part), functions)

    def decide(self, situation: Situation) -> Decision:
        """What the strategy decides for the part, and which part that is."""
        here, part = confined(situation)
        return {**self.strategy.decide(here), "part": part.text}

    def open(self, old: SingleBox, new: Box, decision: Decision) -> MigratingPart:
        """The part's execution between those of what is below and above it."""
        return MigratingPart(old, new, part_of(old.box.plan, new.plan), self.strategy, decision)


def confined(situation: Situation) -> tuple[Situation, PlanPart]:
    """Where the part stands in which the plans of a situation differ."""
    if situation.old is None or situation.new is None:
        raise MigrationError("the part in which plans differ cannot be found without the plans")
    part = part_of(situation.old.physical, situation.new.physical)
    old, new = _plans(situation.old, situation.new, part)
    box = Box(old.physical, situation.functions)
    inside = situation.inside
    if situation.ends:
        inside = max((situation.ends.get(state.id, BEGINNING) for state in box.states()), default=BEGINNING)
    here = replace(
        situation,
        sources=tuple(source for source, _ in box.sources),
        inside=inside,
        seen_below=inside if part.below else BEGINNING,
        old=old,
        new=new,
        unchanged=logical_parts(situation.old.logical, situation.new.logical)[2],
    )
    return here, part


def _plans(old: Plan, new: Plan, part: PlanPart) -> tuple[Plan, Plan]:
    mine, its, _ = logical_parts(old.logical, new.logical)
    return (
        FixedPlan(old.query, mine, old.emission, part.old_plan),
        FixedPlan(new.query, its, new.emission, part.new_plan),
    )


class MigratingPart(OnTheWay):
    """What is below the part, the part on its way, and what is above."""

    def __init__(self, old: SingleBox, new: Box, part: PlanPart, strategy: Strategy, decision: Decision) -> None:
        self.before, self.after = old, old.beside(new, old.sink)
        self.mine = layered(old.box, part.old, {name: pair[0] for name, pair in part.below.items()})
        self.its = layered(new, part.new, {name: pair[1] for name, pair in part.below.items()})
        self.frontier = old.box.frontier
        self.above = None if self.mine.above is None else old.beside(self.mine.above, old.sink)
        sink = old.sink if self.above is None else partial(self.above.feed, PART)
        self.part: Migrating = strategy.open(old.beside(self.mine.part, sink), self.its.part, decision)
        self.below = {name: old.beside(box, partial(self.part.feed, name)) for name, box in self.mine.below.items()}
        readers: dict[str, SingleBox | Migrating] = {s.stream.alias: self.part for s in self.part.sources}
        for execution in (*self.below.values(), *(() if self.above is None else (self.above,))):
            readers |= {source.stream.alias: execution for source in execution.sources}
        self.readers = readers

    @property
    def figures(self) -> Figures:
        """What the part's migration cost so far."""
        return self.part.figures

    @figures.setter
    def figures(self, figures: Figures) -> None:
        self.part.figures = figures

    def begin(self) -> None:
        """Begins with the part."""
        self.part.begin()

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """What the part, and the operators below and above it, must be fed with from outside."""
        inner = {*self.below, PART}
        everyone = (self.part, *self.below.values(), *(() if self.above is None else (self.above,)))
        return tuple(s for execution in everyone for s in execution.sources if s.stream.alias not in inner)

    def feed(self, alias: str, batch: Elements) -> None:
        """Takes windowed elements of a source to whoever reads it."""
        self.readers[alias].feed(alias, batch)

    def advance(self, frontier: int) -> None:
        """Carries the frontier through the layers."""
        self.frontier = max(self.frontier, frontier)
        floor = self.before.box.floor(self.frontier)
        for execution in self.below.values():
            execution.advance(floor)
        self.part.advance(self._reached_below(floor))
        self._advance_above(self.part.passed)

    def _reached_below(self, floor: int) -> int:
        return min([floor, *(execution.passed for execution in self.below.values())])

    def _advance_above(self, passed: int) -> None:
        if self.above is not None:
            self.above.advance(self._above_at(passed))

    def _above_at(self, passed: int) -> int:
        return self.before.box.floor(min(self.frontier, passed))

    @property
    def passed(self) -> int:
        """The frontier of the results."""
        return self.part.passed if self.above is None else self.above.passed

    @property
    def held_from(self) -> int | None:
        """The earliest start of what the part holds back; what follows from it starts no earlier."""
        return self.part.held_from

    @property
    def done(self) -> bool:
        """Whether the new part can go on alone."""
        return self.part.done

    def finish(self) -> SingleBox:
        """Leaves a box of the new part and of everything else as it was."""
        self._advance_above(self.part.finish().passed)
        for name, box in self.mine.below.items():
            go_on_in(box, self.its.below[name])
        if self.mine.above is not None and self.its.above is not None:
            go_on_in(self.mine.above, self.its.above)
        self.after.box.frontier = self.frontier
        return self.after

    def cancel(self) -> SingleBox:
        """Leaves the old box, of which all but the part never noticed."""
        self._advance_above(self.part.cancel().passed)
        self.before.box.frontier = self.frontier
        return self.before

    def named_states(self) -> Iterator[tuple[str, SortedState]]:
        """The states by layer."""
        for name, execution in self.below.items():
            yield from named(execution.states(), f"below {name}/")
        yield from ((f"part/{name}", state) for name, state in self.part.named_states())
        if self.above is not None:
            yield from named(self.above.states(), "above/")

    def restore(self, frontier: int) -> None:
        """Sets all layers to a frontier that was reached earlier."""
        self.frontier = frontier
        floor = self.before.box.floor(frontier)
        for execution in self.below.values():
            execution.restore(floor)
        self.part.restore(self._reached_below(floor))
        if self.above is not None:
            self.above.restore(self._above_at(self.part.passed))


PART = "the part"
"""The name under which what is above a part reads it."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The boxes below a part by name, the part's own, and the one above, if the part is not the top."""

    below: dict[str, Box]
    part: Box
    above: Box | None


def layered(box: Box, root: PhysicalNode, below: Mapping[str, PhysicalNode]) -> Layers:
    """Takes a live box apart around a part, given by its root and by what is below it."""
    part, above = (box, None) if root is box.plan else split_box(box, root, PART)
    lower = {}
    for name, node in below.items():
        lower[name], part = split_box(part, node, name)
    floor = box.floor(box.frontier)
    for layer in (part, *lower.values(), *(() if above is None else (above,))):
        if layer is not box:
            layer.frontier = floor
    return Layers(lower, part, above)


def split_box(box: Box, part: PhysicalNode, name: str) -> tuple[Box, Box]:
    """A live box as two: the part with its operators, and the rest, which reads the part; no state is touched."""
    inside = box.inside(box.place_of(part))
    read = output_of(part, name)
    above = replaced(box.plan, lambda node: read if node is part else None)
    rest = [operator for i, operator in enumerate(box.operators) if i not in inside]
    return box.running(part, box.operators[inside.start : inside.stop]), box.running(above, rest)


def copied(box: Box) -> Box:
    """A box of its own that goes on as another one; segments never change, so a copy of a state is a list."""
    made = Box(box.plan, box.functions)
    go_on_in(box, made)
    return made


def go_on_in(old: Box, new: Box) -> None:
    """Lets the operators of one box go on as those of another box of the same operators."""
    new.frontier = old.frontier
    for mine, its in zip(old.operators, new.operators, strict=True):
        its.frontier = mine.frontier
        if isinstance(its, SliceOperator) and isinstance(mine, SliceOperator):
            its.done = mine.done
        for state, twin in zip(mine.states, its.states, strict=True):
            twin.replace_segments(state.segments)
