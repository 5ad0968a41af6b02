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

from collections.abc import Iterator
from dataclasses import dataclass

from midstream.algebra import physical as p
from midstream.algebra.time import BEGINNING
from midstream.errors import InternalError, MigrationError
from midstream.migration.contents import Contents, Held, Known, held_states, ports_of
from midstream.migration.execution import arranged
from midstream.migration.legality import describe, is_to_stream
from midstream.migration.protocol import Functions
from midstream.operators.base import Operator
from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.build import build
from midstream.operators.distinct import CoverageState
from midstream.operators.elements import Elements
from midstream.operators.join import prepare
from midstream.operators.state.sorted_state import SortedState

SLICE_ROWS = 65_536
"""How many elements of a backlog are sent at a time."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What the new box must hear of while it is being filled: a wire of the old box, or a source by alias."""

    origin: Wire | str
    target: Wire


Filling = tuple[Wire, Known | None, int | None, p.PhysicalNode]
"""A wire, and what goes along it: a known content, the result of a join of the new box, or what was kept of a leaf."""


@dataclass(slots=True)
class Backlog:
    """What is still to be sent along a wire; `through` joins each slice with inputs that are known already."""

    wire: Wire
    elements: Elements
    through: Operator | None = None
    port: int = 0
    sent: int = 0

    @property
    def left(self) -> int:
        """How many elements are still to be sent."""
        return len(self.elements) - self.sent

    def next_slice(self, most: int) -> Elements | None:
        """What the next elements give."""
        part = self.elements.slice(self.sent, min(most, self.left))
        self.sent += len(part)
        if self.through is None:
            return part
        result = self.through.process(self.port, part)
        for port, state in ports_of(self.through):
            if port == self.port:
                state.segments = []
        return result


class StateMove:
    """Which of a new box's states are taken over, and how the others are filled."""

    def __init__(self, old: Box, new: Box, functions: Functions) -> None:
        self.old, self.new, self.functions = old, new, functions
        self.contents = Contents(old)
        self.matched: dict[int, Held] = {}
        self.unmatched: list[Held] = []
        for held in held_states(new):
            its = self._match(held)
            if its is None:
                self.unmatched.append(held)
            else:
                self.matched[id(held.state)] = its
        self.open_ports = {(h.operator, 0 if h.port is None else h.port) for h in self.unmatched}
        self.backlogs: list[Backlog] = []
        self.feeds: list[Feed] = []
        self.rows_sent = 0
        self._plan = list(self._plan_all())

    def _match(self, held: Held) -> Held | None:
        if is_to_stream(self.new.plan) and held.operator == len(self.new.operators) - 1:
            # Below the top, equivalent plans hold the same relation under whatever name.
            return Held(self.old.operators[-1].states[0], len(self.old.operators) - 1, 0)
        found = [h for h in self.contents.by_id.get(held.state.id, ()) if (h.port is None) == (held.port is None)]
        same_key = [h for h in found if h.state.key == held.state.key]
        if held.port is None:
            return next((h for h in same_key if _shareable(h.state, held.state)), None)
        return next(iter(same_key or found), None)

    # Planning: what is to be sent where. Contents are read when the move begins.

    def _plan_all(self) -> Iterator[Filling]:
        for operator, port in sorted(self.open_ports):
            node = self.new.nodes[operator]
            if isinstance(node, p.RowWindow | p.FollowedBy):
                raise self._not_derivable(node)
            yield from self._fill(node.inputs[port], Wire(operator, port))

    def _fill(self, node: p.PhysicalNode, wire: Wire) -> Iterator[Filling]:
        """Where the content of a node comes from, which is to arrive along a wire."""
        if not isinstance(node, p.Source):
            here = self._operator_before(wire)
            if any((here, port) in self.open_ports for port in range(len(node.inputs))):
                # Its own states are being filled, and what they are filled with goes on from there.
                self._feed_known_ports(node, here)
                return
        known = self.contents.find(node)
        if known is not None:
            self.feeds.append(Feed(known.wire, wire))
            yield wire, known, None, node
            return
        match node:
            case p.Source() | p.AssignWindow():
                if self.contents.leaf(node) is None:
                    raise self._not_derivable(node)
                self.feeds.append(Feed(node.stream.alias if isinstance(node, p.Source) else "", wire))
                yield wire, None, None, node
            case p.Filter() | p.Compute() | p.Concatenate():
                for port, child in enumerate(node.inputs):
                    yield from self._fill(child, Wire(here, port))
            case p.HashJoin() | p.MultiwayJoin():
                self._feed_known_ports(node, here)
                yield wire, None, here, node

    def _feed_known_ports(self, node: p.PhysicalNode, here: int) -> None:
        for port, child in enumerate(node.inputs):
            if (here, port) not in self.open_ports and isinstance(node, p.HashJoin | p.MultiwayJoin):
                known = self.contents.find(child)
                if known is None:
                    raise InternalError(f"the content of {child.label} was matched but is not known")
                self.feeds.append(Feed(known.wire, Wire(here, port)))

    def _operator_before(self, wire: Wire) -> int:
        """The operator of the new box whose output goes along a wire."""
        return self.new.wires.index(wire)

    def _not_derivable(self, node: p.PhysicalNode) -> MigrationError:
        what = f"the window of {node.stream.alias}" if isinstance(node, p.Source) else describe(node)
        return MigrationError(
            f"moving_state cannot migrate to this plan: it needs {what}, which the old plan has not kept",
            detail="the old plan keeps only some columns, or only a result, of what the new plan would have to store",
            hint="use strategy genmig, which starts the new plan empty",
        )

    # Moving.

    def begin(self, frontier: int) -> None:
        """Takes over what matches and reads what is to be sent."""
        self.take_over(frontier)
        for wire, known, operator, node in self._plan:
            if operator is not None:
                self.backlogs.append(self._join_backlog(wire, operator, node, frontier))
            elif known is not None:
                self.backlogs.append(Backlog(wire, arranged(known.read(frontier), node.schema)))
            else:
                leaf = self.contents.leaf(node)
                assert leaf is not None
                self.backlogs.append(Backlog(wire, leaf.read(node.schema, frontier)))
        self.new.restore(frontier)

    def take_over(self, frontier: int) -> None:
        """Gives every matched state what its twin in the old box holds now."""
        for held in held_states(self.new):
            twin = self.matched.get(id(held.state))
            if twin is not None:
                _take_over(held.state, twin.state, frontier)

    def _join_backlog(self, wire: Wire, operator: int, node: p.PhysicalNode, frontier: int) -> Backlog:
        """The result of a join whose inputs are all known: the smallest one meets the others, slice by slice."""
        twin = build(node, self.functions)
        live = self.new.operators[operator]
        states = list(zip(ports_of(twin), ports_of(live), strict=True))
        sizes = {port: its.rows for _, (port, its) in states if port is not None}
        smallest = min(sizes, key=lambda port: sizes[port])
        for (port, mine), (_, its) in states:
            if port != smallest:
                mine.replace_segments(its.segments)
        twin.restore(frontier)
        source = next(its for port, its in ports_of(live) if port == smallest)
        return Backlog(wire, source.alive(frontier), twin, smallest)

    @property
    def left(self) -> int:
        """How many elements are still to be sent."""
        return sum(backlog.left for backlog in self.backlogs)

    def send(self, budget: int | None = None) -> None:
        """Sends backlogs, within a budget of pairs and insertions if there is one."""
        start = self._work()
        while self.backlogs:
            backlog = self.backlogs[0]
            if backlog.left == 0:
                self.backlogs.pop(0)
                continue
            before = backlog.sent
            self.run(backlog.wire, backlog.next_slice(SLICE_ROWS if budget is None else min(SLICE_ROWS, budget)))
            self.rows_sent += backlog.sent - before
            if budget is not None and self._work() - start >= budget:
                return

    def _work(self) -> int:
        moved = self.new.work
        extra = sum(b.through.work.matched for b in self.backlogs if b.through is not None)
        return moved.matched + moved.inserted + moved.taken + extra + self.rows_sent

    def run(self, wire: Wire, batch: Elements | None) -> None:
        """Sends a batch along a wire of the new box as far as states are still being filled."""
        while batch is not None and len(batch) and wire.operator != ROOT:
            operator = self.new.operators[wire.operator]
            batch = operator.process(wire.port, batch)
            wire = self.new.wires[wire.operator]
            if wire.operator == ROOT or self._stops_at(wire):
                return

    def _stops_at(self, wire: Wire) -> bool:
        """Whether what comes along a wire is not needed: its states are taken over from the old box."""
        operator = self.new.operators[wire.operator]
        has_state = any(port is None or port == wire.port for port, _ in ports_of(operator))
        return has_state and (wire.operator, wire.port) not in self.open_ports

    def settle(self, frontier: int) -> None:
        """Ends a move that took a while: matched states as they are by now, the frontier where the old box stands."""
        self.take_over(frontier)
        self.new.restore(frontier)


def _take_over(state: SortedState, twin: SortedState, frontier: int) -> None:
    if _shareable(twin, state):
        state.replace_segments(twin.segments)
        return
    state.segments = []
    # One tick more than joins need: DSTREAM has yet to see what ends at the frontier.
    elements = arranged(twin.alive(max(frontier - 1, BEGINNING)), state.schema)
    if len(elements):
        kept, hashes = prepare(elements, state.key, nulls_equal=True)
        state.append(kept, hashes)


def _shareable(one: SortedState, other: SortedState) -> bool:
    """Whether the segments of one state can serve the other as they are."""
    same_kind = isinstance(one, CoverageState) == isinstance(other, CoverageState)
    return same_kind and one.key == other.key and one.schema.equals(other.schema) and one.longest == other.longest
