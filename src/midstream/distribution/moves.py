"""Planning how the state of one plan becomes that of another, when both are spread over slots.

Contents go by what they are, so what a fragment of the new plan needs can be found in any fragment of the old one: a
state of the same content, a content from which its own states follow, or what was kept of a leaf. Each is sent to the
slots where the new fragment's rows lie. What the old plan holds nowhere is the output of another new fragment, which
then gives it, once its own states are filled. So fragments are filled producers first, and asked readers first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.time import BEGINNING
from midstream.distribution.fragments import Fragment, Key, Received, Staged
from midstream.distribution.placement import Placed, Placements
from midstream.errors import InternalError
from midstream.migration.contents import Contents, HeldState, KeptLeaf, Known, held_states, leaf_name, shareable
from midstream.migration.protocol import Functions
from midstream.migration.state_move import StateMove
from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.distinct import CoverageState
from midstream.operators.elements import Elements, empty_elements, rows_without_columns
from midstream.operators.sequence import FollowedByOperator
from midstream.operators.state.narrowing import RowTests
from midstream.operators.state.portions import parts_by_hash, slices
from midstream.operators.state.segment import Grouping, Segment
from midstream.operators.state.sorted_state import SortedState

StateName = tuple[str, Key]
What = Literal["state", "content", "leaf"]
Address = tuple[int, What, str, Key]
"""What tells a shipment from all others: its fragment, what it is, its name and its key."""
ALL_TIME = -(2**63)


@dataclass(frozen=True, slots=True)
class MoveOrigin:
    """A state of the old plan: the fragment it is in, what it is, and where its rows lie."""

    fragment: int
    name: StateName
    schema: pa.Schema
    longest: int | None
    kind: Literal["input", "coverage", "own"]
    placed: Placed
    grouping: Grouping | None = None
    tests: RowTests | None = None

    def pieces(self, segments: Sequence[Segment], frontier: int, most: int) -> Iterator[Elements]:
        """What some of its segments hold that can still matter, about so many bytes at a time."""
        # One tick more than joins need: DSTREAM has yet to see what ends at the frontier.
        since = max(frontier - 1, BEGINNING)
        if self.kind == "coverage":
            for part in parts_by_hash(segments, most):
                yield CoverageState(*self.name, self.schema, self.longest, part).current(since)
            return
        # Row windows and sequences keep rows whose ends do not say for how long they count.
        ended = ALL_TIME if self.kind == "own" else since
        for segment in segments:
            if segment.latest_to > ended:
                for piece in slices(segment.elements, segment.bytes, most):
                    yield piece.where(piece.valid_to > ended)


@dataclass(frozen=True, slots=True)
class Shipment:
    """A content of the old plan that a fragment of the new plan is given, under the name by which it asks for it.

    `columns` are those of the old state, in the order of `schema`; `as_is` says that its segments can serve unchanged,
    `grouped` that old and new state are sorted by partition group.
    """

    fragment: int
    what: What
    name: str
    key: Key
    schema: pa.Schema
    columns: tuple[str, ...]
    placed: Placed
    origin: MoveOrigin | None
    as_is: bool = False
    grouped: bool = False

    @property
    def address(self) -> Address:
        """What tells it from all others."""
        return self.fragment, self.what, self.name, self.key

    def shaped(self, elements: Elements) -> Elements:
        """Elements of the old state, as they travel."""
        if tuple(elements.columns.schema.names) == self.columns == tuple(self.schema.names):
            return elements
        if not self.columns:
            return elements.with_columns(rows_without_columns(len(elements)))
        arrays = [elements.columns.column(name) for name in self.columns]
        return Elements(pa.RecordBatch.from_arrays(arrays, schema=self.schema), elements.valid_from, elements.valid_to)


@dataclass(frozen=True, slots=True)
class FragmentFill:
    """How the states of a new fragment are filled.

    `gives` says that its own content must go on to its reader, `derives` that something must be computed at all.
    """

    fragment: Fragment
    shipments: tuple[Shipment, ...]
    receives: frozenset[int]
    gives: bool
    derives: bool


def plan_move(old: Staged, old_plan: p.PhysicalNode, new: Staged, functions: Functions) -> list[FragmentFill]:
    """How each fragment of the new plan is filled, producers first; refuses what does not follow from the old plan."""
    contents = Contents(Box(old_plan, functions))
    # Of a window that is kept both in every slot and spread, the latter is cheaper to read.
    origins = dict(sorted(origins_of(old, functions), key=lambda named: not named[1].placed.everywhere))
    fills: list[FragmentFill] = []
    wanted: set[int] = set()
    for fragment in reversed(new.fragments):
        asking = Asking(fragment, Box(fragment.plan, functions), contents, origins, new)
        gives = fragment.number in wanted
        move = StateMove(asking, asking.box, functions, (lambda _: None) if gives else None, follows=False)
        wanted |= asking.outputs
        asked, received = tuple(asking.shipments.values()), frozenset(asking.outputs)
        fills.append(FragmentFill(fragment, asked, received, gives, bool(move.backlogs)))
    return fills[::-1]


def plan_move_within(old: Staged, new: Staged, functions: Functions) -> list[FragmentFill]:
    """How each fragment is filled from the same one of a plan in the same stages: rows that meet stay together."""
    fills = []
    for mine, its in zip(old.fragments, new.fragments, strict=True):
        contents = Contents(Box(mine.plan, functions))
        origins = dict(_origins_in(mine, old, functions))
        asking = Asking(its, Box(its.plan, functions), contents, origins, new, within=True)
        move = StateMove(asking, asking.box, functions, follows=False)
        fills.append(FragmentFill(its, tuple(asking.shipments.values()), frozenset(), False, bool(move.backlogs)))
    return fills


def origins_of(old: Staged, functions: Functions) -> Iterator[tuple[StateName, MoveOrigin]]:
    """The states of a plan by name, where they are and where their rows lie."""
    return (origin for fragment in old.fragments for origin in _origins_in(fragment, old, functions))


def _origins_in(fragment: Fragment, old: Staged, functions: Functions) -> Iterator[tuple[StateName, MoveOrigin]]:
    box = Box(fragment.plan, functions)
    placements = Placements(fragment, old.routes)
    for held in held_states(box):
        state = held.state
        name = (state.id, state.key)
        placed = placements(input_of(box, held))
        kind = _kind(held)
        yield (
            name,
            MoveOrigin(fragment.number, name, state.schema, state.longest, kind, placed, state.grouping, state.tests),
        )


def _same_order(old: Grouping | None, new: Grouping | None) -> bool:
    return new is None if old is None else old.same_order(new)


def _kind(held: HeldState) -> Literal["input", "coverage", "own"]:
    if isinstance(held.state, CoverageState):
        return "coverage"
    return "own" if held.port is None else "input"


def input_of(box: Box, held: HeldState) -> p.PhysicalNode:
    """The node whose rows a state keeps."""
    operator, node = box.operators[held.operator], box.nodes[held.operator]
    if held.state.rests:
        return node
    if held.port is not None:
        return node.inputs[held.port]
    if isinstance(operator, FollowedByOperator):
        return node.inputs[1 if held.state is operator.kept[1] else 0]
    return node.inputs[0]


@dataclass(slots=True)
class Asking:
    """Stands for the old plan while a new fragment is planned, and notes what the fragment asks it for."""

    fragment: Fragment
    box: Box
    old: Contents
    origins: Mapping[StateName, MoveOrigin]
    new: Staged
    shipments: dict[Address, Shipment] = field(default_factory=dict)
    outputs: set[int] = field(default_factory=set)
    within: bool = False
    """Whether the old plan is the same fragment of another plan, which has kept what others gave it."""

    def match(self, held: HeldState) -> HeldState | None:
        """The old state with the content of a new one."""
        return self._taken(held, self.old.match(held))

    def top(self, held: HeldState) -> HeldState | None:
        """What lies below an ISTREAM, DSTREAM or RSTREAM; inside a plan it is known by what it holds, as any state."""
        return self._taken(held, self.old.top(held)) if self.fragment.reader is None else self.match(held)

    def find(self, node: p.PhysicalNode) -> Known | None:
        """A node's output, if some state of the old plan holds it."""
        known = self.old.find(node)
        if known is not None:
            self._note("content", node.content, node, known, tuple(node.schema.names))
        return known

    def leaf(self, node: p.PhysicalNode) -> KeptLeaf | None:
        """What the old plan has kept of a source, or what another fragment will give."""
        if isinstance(node, Received) and not self.within:
            self.outputs.add(node.fragment)
            return KeptLeaf(nothing(node.schema), {name: name for name in node.schema.names})
        kept = self.old.leaf(node)
        if kept is not None:
            self._note(
                "leaf", leaf_name(node), node, kept.known, tuple(kept.columns[name] for name in node.schema.names)
            )
        return kept

    def _taken(self, mine: HeldState, its: HeldState | None) -> HeldState | None:
        if its is not None:
            state = mine.state
            origin = self.origins[its.state.id, its.state.key]
            placed = self._placed(input_of(self.box, mine))
            columns = tuple(state.schema.names)
            self._add(
                Shipment(
                    self.fragment.number,
                    "state",
                    state.id,
                    state.key,
                    state.schema,
                    columns,
                    placed,
                    origin,
                    shareable(its.state, state) and _same_order(origin.grouping, state.grouping),
                    state.grouping is not None,
                )
            )
        return its

    def _note(self, what: What, name: str, node: p.PhysicalNode, known: Known, columns: tuple[str, ...]) -> None:
        held = known.held
        origin = None if held is None else self.origins[held.state.id, held.state.key]
        placed = self._placed(node)
        self._add(Shipment(self.fragment.number, what, name, (), node.schema, columns, placed, origin))

    def _add(self, shipment: Shipment) -> None:
        self.shipments.setdefault(shipment.address, shipment)

    def _placed(self, node: p.PhysicalNode) -> Placed:
        return Placements(self.fragment, self.new.routes)(node)


def nothing(schema: pa.Schema) -> Known:
    """A content without elements."""
    return known_elements(empty_elements(schema), schema)


def known_elements(elements: Elements | Sequence[Elements], schema: pa.Schema) -> Known:
    """Elements at hand as a content."""
    return Known(lambda _: elements, schema, Wire(ROOT, 0))


@dataclass(slots=True)
class Gathered:
    """What a slot was sent for a fragment: the old plan as far as this fragment asks for it."""

    states: Mapping[StateName, SortedState]
    contents: Mapping[str, Sequence[Elements]]
    leaves: Mapping[str, Sequence[Elements]]

    def match(self, held: HeldState) -> HeldState | None:
        """The state that was sent for a state."""
        state = self.states.get((held.state.id, held.state.key))
        return None if state is None else HeldState(state, held.operator, held.port)

    def top(self, held: HeldState) -> HeldState | None:
        """What lay below an ISTREAM, DSTREAM or RSTREAM."""
        return self.match(held)

    def find(self, node: p.PhysicalNode) -> Known | None:
        """A node's output, if it was sent."""
        sent = self.contents.get(node.content)
        return None if sent is None else known_elements(sent, node.schema)

    def leaf(self, node: p.PhysicalNode) -> KeptLeaf | None:
        """What was kept of a leaf, or what another fragment gave."""
        sent = self.leaves.get(leaf_name(node))
        columns = {name: name for name in node.schema.names}
        return None if sent is None else KeptLeaf(known_elements(sent, node.schema), columns)


def plan_replay(
    old: Staged, old_plan: p.PhysicalNode, new: Staged, functions: Functions
) -> Mapping[int, tuple[Shipment, ...]]:
    """What each fragment of the new plan is given of the streams that it reads."""
    contents = Contents(Box(old_plan, functions))
    origins = dict(origins_of(old, functions))
    return {f.number: tuple(_of_leaves(f, contents, origins, new)) for f in new.fragments}


def _of_leaves(
    fragment: Fragment, contents: Contents, origins: Mapping[StateName, MoveOrigin], new: Staged
) -> list[Shipment]:
    found: dict[str, Shipment] = {}
    for source in fragment.sources:
        kept = contents.leaf(source)
        if kept is None:
            raise InternalError(f"the window of {source.stream.alias} is not kept")
        held = kept.known.held
        found[source.stream.alias] = Shipment(
            fragment.number,
            "leaf",
            source.stream.alias,
            (),
            source.schema,
            tuple(kept.columns[name] for name in source.schema.names),
            _placed(fragment, source, new),
            None if held is None else origins[held.state.id, held.state.key],
        )
    return list(found.values())


def _placed(fragment: Fragment, source: p.SourceNode, new: Staged) -> Placed:
    """Where a source's rows arrive; a fragment that does not have the key by which they do needs them nowhere."""
    placed = Placements(fragment, new.routes)(source)
    return replace(placed, keys=frozenset(key for key in placed.keys if set(key) <= set(source.schema.names)))
