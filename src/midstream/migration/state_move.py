"""Filling a new box's states from an old box's, exactly as if the new box had run all along.

A state whose id the old box knows is taken over: its segments as they are if they are sorted by the same key, sorted
anew otherwise. Any other state is filled by running the new box's own operators, silently, over what is known below it:
`Backlog`s are contents to be sent along wires of the new box. A join all of whose inputs are known gives its result by
letting one input meet the others; where some input is itself being filled, results come by themselves, because a
symmetric join gives every pair exactly once in whatever order its inputs come. Operators that answer by slices have
given nothing that is still valid, so there is nothing to fill above them.

While a move lasts, the old box goes on. `Feed`s say which wires of the new box must then be given what comes along
which wire of the old box, or from which source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from midstream.algebra import physical as p
from midstream.algebra.physical.routed import OneWayJoin
from midstream.algebra.time import BEGINNING
from midstream.errors import InternalError, MigrationError
from midstream.migration.contents import HeldState, KeptLeaf, Known, Read, held_states, parts_of, ports_of, shareable
from midstream.migration.legality import describe, is_to_stream
from midstream.migration.protocol import Functions
from midstream.operators.base import Operator
from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.build import build
from midstream.operators.elements import Elements
from midstream.operators.join import SymmetricJoin, prepare
from midstream.operators.multiway_join import MultiwayJoinOperator
from midstream.operators.state.segment import make_segment
from midstream.operators.state.sorted_state import SortedState

SLICE_ROWS = 65_536
"""How many elements of a backlog are sent at a time."""

FIRST_SLICE = 64
"""Which part of a budget goes, in elements, into the first slice, from which is learned what an element costs."""


OnWork = Callable[[Operator, int, int, bool], None]
"""Is told what an operator takes for a move: on which port, how many rows, and whether it joins them."""


@dataclass(frozen=True, slots=True)
class Portions:
    """How many elements are moved at a time at most, and what is done after each time."""

    rows: int = SLICE_ROWS
    after: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Feed:
    """What the new box must hear of while it is being filled: a wire of the old box, or a source by alias."""

    origin: Wire | str
    target: Wire


@dataclass(slots=True)
class Backlog:
    """What is still to be sent along a wire: the rest of a content, shaped as the wire wants it.

    `through` joins each part with inputs that are known already, as they were when the move began.
    """

    wire: Wire
    rest: SortedState
    read: Read
    shape: Callable[[Elements], Elements]
    through: Operator | None = None
    port: int = 0
    like: Operator | None = None
    """The operator that has these inputs in the new box."""

    @property
    def left(self) -> int:
        """How many elements are still to be sent."""
        return self.rest.rows

    def next_part(self, most: int, frontier: int) -> Elements:
        """Takes out some elements and gives those that still count."""
        segment = self.rest.segments.pop(0)
        elements = segment.elements
        if len(elements) > most:
            later = elements.slice(most, len(elements) - most)
            self.rest.segments.insert(0, make_segment(later, segment.hashes[most:], segment.bucket, segment.born))
            elements = elements.slice(0, most)
        return self.shape(elements.where(elements.valid_to > frontier))

    def joined(self, part: Elements) -> Iterator[Elements]:
        """What is to be sent because of a part: the part itself, or what it makes with the other inputs."""
        if self.through is None or len(part) == 0:
            yield part
            return
        yield from self.through.pieces(self.port, part)
        for port, state in ports_of(self.through):
            if port == self.port:
                state.segments = []


class Offer(Protocol):
    """What is known of an old plan: whole contents by what they are, wherever they lie."""

    def match(self, held: HeldState) -> HeldState | None:
        """The old state with the content of a new one."""

    def top(self, held: HeldState) -> HeldState | None:
        """What lies below an ISTREAM, DSTREAM or RSTREAM."""

    def find(self, node: p.PhysicalNode) -> Known | None:
        """A node's output, if some state holds it."""

    def leaf(self, node: p.PhysicalNode) -> KeptLeaf | None:
        """What was kept of a leaf."""


class StateMove:
    """Which of a new box's states are taken over, and how the others are filled.

    `onward` is given the content of the root as far as it is not known elsewhere. `follows` says that the old box goes
    on meanwhile, so that the new one must hear of what it learns. A state that is wanted by another key is taken over
    by sorting all of it, or, if the move is `paced`, filled like a missing one.
    """

    def __init__(
        self,
        contents: Offer,
        new: Box,
        functions: Functions,
        onward: Callable[[Elements], None] | None = None,
        follows: bool = True,
        paced: bool = False,
    ) -> None:
        self.new, self.functions, self.contents = new, functions, contents
        self.onward, self.follows = onward, follows
        self.matched: dict[int, HeldState] = {}
        self.unmatched: list[HeldState] = []
        for held in held_states(new):
            its = self._match(held)
            if its is None:
                self.unmatched.append(held)
            else:
                self.matched[id(held.state)] = its
        self.sorted_ports = self._open_what_must_be_sorted() if paced else set()
        self.open_ports = {(h.operator, 0 if h.port is None else h.port) for h in self.unmatched}
        self.feeds: list[Feed] = []
        self.backlogs: list[Backlog] = []
        self.rows_sent = self.rows_heard = 0
        self.on_work: OnWork = lambda *_: None
        self.portions = Portions()
        for operator, port in sorted(self.open_ports):
            self._fill_port(operator, port)
        if onward is not None:
            self._fill(new.plan, Wire(ROOT, 0))

    def _match(self, held: HeldState) -> HeldState | None:
        if self._is_top(held):
            return self.contents.top(held)
        return self.contents.match(held)

    def _open_what_must_be_sorted(self) -> set[tuple[int, int]]:
        """All states of an input of which one is wanted by another key: what is sent to one is sent to all."""
        ports = {
            (held.operator, held.port)
            for held in held_states(self.new)
            if (its := self.matched.get(id(held.state))) is not None
            and held.port is not None
            and not self._is_top(held)
            and not shareable(its.state, held.state)
        }
        for held in held_states(self.new):
            if (held.operator, held.port) in ports:
                del self.matched[id(held.state)]
                self.unmatched.append(held)
        return ports

    def _is_top(self, held: HeldState) -> bool:
        return is_to_stream(self.new.plan) and held.operator == len(self.new.operators) - 1

    def _fill_port(self, operator: int, port: int) -> None:
        node = self.new.nodes[operator]
        if isinstance(node, p.OrderedRows | p.FollowedBy):
            raise self._not_derivable(node)
        known = self.contents.find(node.inputs[port]) if (operator, port) in self.sorted_ports else None
        if known is not None:
            self._fill_from(known, Wire(operator, port), node.inputs[port])
        else:
            self._fill(node.inputs[port], Wire(operator, port))

    def _fill(self, node: p.PhysicalNode, wire: Wire) -> None:
        """Plans where the content of a node comes from, which is to arrive along a wire."""
        if not isinstance(node, p.SourceNode):
            here = self._operator_before(wire)
            if any((here, port) in self.open_ports for port in range(len(node.inputs))):
                # Its own states are being filled, and what they are filled with goes on from there.
                self._feed_known_ports(node, here)
                return
        known = self.contents.find(node)
        if known is not None:
            self._fill_from(known, wire, node)
            return
        match node:
            case p.SourceNode() | p.AssignWindow():
                self._fill_leaf(node, wire)
            case p.Filter() | p.Compute() | p.Unnest() | p.Concatenate() | p.WindowBounds():
                for port, child in enumerate(node.inputs):
                    self._fill(child, Wire(here, port))
            case OneWayJoin():
                raise self._not_derivable(node)
            case p.HashJoin() | p.MultiwayJoin():
                self._feed_known_ports(node, here)
                self._fill_from_join(node, here, wire)

    def _fill_from(self, known: Known, wire: Wire, node: p.PhysicalNode) -> None:
        self.feeds.append(Feed(known.wire, wire))
        schema = node.schema
        rest = SortedState(f"rest of {node.content}", (), known.schema, None)
        self.backlogs.append(Backlog(wire, rest, known.read, lambda part: part.arranged(schema)))

    def _fill_leaf(self, node: p.PhysicalNode, wire: Wire) -> None:
        leaf = self.contents.leaf(node)
        if leaf is None:
            raise self._not_derivable(node)
        self.feeds.append(Feed(node.stream.alias if isinstance(node, p.SourceNode) else "", wire))
        rest = SortedState(f"rest of {node.content}", (), leaf.known.schema, None)
        self.backlogs.append(Backlog(wire, rest, leaf.known.read, partial(leaf.shaped, node.schema)))

    def _fill_from_join(self, node: p.PhysicalNode, here: int, wire: Wire) -> None:
        """The result of a join whose inputs are all known: one input meets the others as they are at the start."""
        live = next(state for port, state in ports_of(self.new.operators[here]) if port == 0)
        rest = SortedState(f"rest of {node.inputs[0].content}", (), live.schema, None)
        twin = build(node, self.functions)
        source = partial(parts_of, live)
        self.backlogs.append(Backlog(wire, rest, source, lambda part: part, twin, like=self.new.operators[here]))

    def _feed_known_ports(self, node: p.PhysicalNode, here: int) -> None:
        if not self.follows:
            return
        for port, child in enumerate(node.inputs):
            if (here, port) not in self.open_ports and isinstance(node, p.HashJoin | p.MultiwayJoin):
                known = self.contents.find(child)
                if known is None:
                    raise InternalError(f"the content of {child.label} was matched but is not known")
                self.feeds.append(Feed(known.wire, Wire(here, port)))

    def _operator_before(self, wire: Wire) -> int:
        """The operator of the new box whose output goes along a wire."""
        return self.new.before(wire)

    def _not_derivable(self, node: p.PhysicalNode) -> MigrationError:
        what = f"the window of {node.stream.alias}" if isinstance(node, p.SourceNode) else describe(node)
        return MigrationError(
            f"moving_state cannot migrate to this plan: it needs {what}, which the old plan has not kept",
            detail="the old plan keeps only some columns, or only a result, of what the new plan would have to store",
            hint="use strategy genmig, which starts the new plan empty",
        )

    def begin(self, frontier: int) -> None:
        """Takes over what matches and reads what is to be sent."""
        self.take_over(frontier)
        self.new.restore(frontier)
        for twin, live in self._twins():
            twin.restore(frontier)
            if isinstance(twin, SymmetricJoin | MultiwayJoinOperator) and isinstance(
                live, SymmetricJoin | MultiwayJoinOperator
            ):
                twin.at_once = live.at_once
            for (port, mine), (_, its) in zip(ports_of(twin), ports_of(live), strict=True):
                if port != 0:
                    mine.replace_segments(its.segments)
        for backlog in self.backlogs:
            content = backlog.read(frontier)
            for elements in [content] if isinstance(content, Elements) else content:
                backlog.rest.append(elements, np.zeros(len(elements), np.uint64))

    def _twins(self) -> Iterator[tuple[Operator, Operator]]:
        """The joins through which backlogs are sent, with the operators that they stand for."""
        for backlog in self.backlogs:
            if backlog.through is not None and backlog.like is not None:
                yield backlog.through, backlog.like

    def take_over(self, frontier: int) -> None:
        """Gives every matched state what its twin in the old box holds now."""
        for held in held_states(self.new):
            twin = self.matched.get(id(held.state))
            if twin is not None:
                stored = _take_over(held.state, twin.state, frontier, self.portions)
                self.new.operators[held.operator].work.inserted += stored

    @property
    def left(self) -> int:
        """How many elements are still to be sent."""
        return sum(backlog.left for backlog in self.backlogs)

    def send(self, frontier: int, budget: int | None = None) -> None:
        """Sends backlogs, within a budget of rows and pairs if there is one."""
        end = None if budget is None else self.work + budget
        for backlog in self.backlogs:
            most = self.portions.rows if budget is None else max(1, budget // FIRST_SLICE)
            while backlog.left:
                left, work = backlog.left, self.work
                part = backlog.next_part(most, frontier)
                if backlog.through is not None:
                    self.on_work(backlog.through, backlog.port, len(part), True)
                for piece in backlog.joined(part):
                    self.run(backlog.wire, piece)
                self.portions.after()
                sent = left - backlog.left
                self.rows_sent += len(part)
                if end is not None:
                    if self.work >= end:
                        return
                    # As many more as the last ones say that the budget allows.
                    most = max(1, min(SLICE_ROWS, (end - self.work) * sent // max(1, self.work - work)))

    @property
    def work(self) -> int:
        """Rows taken and stored and pairs looked at so far."""
        moved = self.new.work
        return (
            moved.matched + moved.inserted + moved.taken + sum(t.work.taken + t.work.matched for t, _ in self._twins())
        )

    def hear(self, wire: Wire, batch: Elements) -> None:
        """Sends along a wire what the old box has just learned."""
        self.rows_heard += len(batch)
        node = self.new.nodes[wire.operator].inputs[wire.port]
        self.run(wire, batch.arranged(node.schema))

    def run(self, wire: Wire, batch: Elements) -> None:
        """Sends a batch along a wire of the new box as far as states are still being filled."""
        if len(batch) == 0:
            return
        if wire.operator == ROOT:
            if self.onward is not None:
                self.onward(batch)
            return
        operator = self.new.operators[wire.operator]
        further = self.new.wire(wire.operator)
        stops = self._stops_at(further)
        self.on_work(operator, wire.port, len(batch), not stops)
        if stops:
            operator.store(wire.port, batch)
            return
        for piece in operator.pieces(wire.port, batch):
            self.run(further, piece)

    def _stops_at(self, wire: Wire) -> bool:
        """Whether what comes along a wire is not needed: its states get what the old box's hold."""
        if wire.operator == ROOT:
            return self.onward is None
        operator, place = self.new.operators[wire.operator], (wire.operator, wire.port)
        if not any(port is None or port == wire.port for port, _ in ports_of(operator)):
            return self._stops_at(self.new.wire(wire.operator))
        return place not in self.open_ports or place in self.sorted_ports

    def rests(self) -> Iterator[SortedState]:
        """What is still to be sent, and what it is to be joined with."""
        for backlog in self.backlogs:
            yield backlog.rest
            if backlog.through is not None:
                yield from (state for port, state in ports_of(backlog.through) if port != backlog.port)

    def states(self) -> Iterator[SortedState]:
        """The new box's states and what is still to be sent."""
        yield from self.new.states()
        yield from self.rests()

    def finish(self, frontier: int) -> None:
        """Ends a move that took a while: matched states as they are by now, the frontier where the old box stands."""
        self.take_over(frontier)
        self.new.restore(frontier)


def _take_over(state: SortedState, twin: SortedState, frontier: int, portions: Portions) -> int:
    """Gives a state what its twin holds, and how many rows had to be stored anew for that."""
    if shareable(twin, state):
        state.replace_segments(twin.segments)
        return 0
    state.segments = []
    # One tick more than joins need: DSTREAM has yet to see what ends at the frontier.
    since, anew = max(frontier - 1, BEGINNING), 0
    for stored in parts_of(twin, since):
        for start in range(0, len(stored), portions.rows):
            part = stored.slice(start, min(portions.rows, len(stored) - start))
            part = part.where(part.valid_to > since).arranged(state.schema)
            if len(part):
                state.append(*prepare(part, state.key, True, state.grouping))
                portions.after()
                anew += len(part)
    return anew
