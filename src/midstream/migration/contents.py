"""What an old box still knows: the contents of its states by id, and what it has kept of each leaf.

A state holds the result of a sub-query as far as it is valid at or after the frontier. Equal ids mean equal contents,
whoever holds them. Of a leaf (a source) the old box keeps what the first stateful operator above it has stored, after
the selections, projections and unions in between. That may be less than the leaf had: tuples that a selection dropped,
repeated tuples below a DISTINCT. But the old plan cannot tell the leaf's past from what it has kept of it: given the
kept part in its place, it would hold the same states and give the same results for ever. The new plan, which gives
what the old one gives for every input, cannot tell them apart either. So a leaf's kept part can stand for its past.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.expressions import Column
from midstream.operators.base import Operator
from midstream.operators.box import Box, Wire
from midstream.operators.distinct import CoverageState, DeduplicateOperator
from midstream.operators.elements import Elements, empty_elements
from midstream.operators.join import SymmetricJoin
from midstream.operators.multiway_join import MultiwayJoinOperator
from midstream.operators.one_way_join import KeptWindowOperator
from midstream.operators.row_window import OrderedRowsOperator
from midstream.operators.sequence import FollowedByOperator
from midstream.operators.slices import SliceOperator
from midstream.operators.state.sorted_state import SortedState

Read = Callable[[int], Elements | Sequence[Elements]]
"""Gives what is valid after a frontier; what comes in several parts may also hold what is not."""


@dataclass(frozen=True, slots=True)
class HeldState:
    """A state, where it sits, and which port's input it keeps (None: something of the operator's own)."""

    state: SortedState
    operator: int
    port: int | None


@dataclass(frozen=True, slots=True)
class Known:
    """A content that can be read, the wire of the old box along which its changes come, and the state that holds it."""

    read: Read
    schema: pa.Schema
    wire: Wire
    held: HeldState | None = None


@dataclass(frozen=True, slots=True)
class KeptLeaf:
    """What was kept of a leaf: for each of its columns that are still there, the column of the content read."""

    known: Known
    columns: dict[str, str]

    def shaped(self, schema: pa.Schema, kept: Elements) -> Elements:
        """Elements of the content read, with a leaf's columns."""
        arrays = [kept.columns.column(self.columns[name]) for name in schema.names]
        return Elements(pa.RecordBatch.from_arrays(arrays, schema=schema), kept.valid_from, kept.valid_to)

    def offers(self, schema: pa.Schema) -> bool:
        """Whether all of a leaf's columns are still there."""
        return self.columns.keys() >= set(schema.names)


def held_states(box: Box) -> Iterator[HeldState]:
    """All states of a box, with their places."""
    for i, operator in enumerate(box.operators):
        for port, state in ports_of(operator):
            yield HeldState(state, i, port)


def ports_of(operator: Operator) -> list[tuple[int | None, SortedState]]:
    """An operator's states, each with the port whose input it keeps as it came."""
    match operator:
        case SymmetricJoin():
            return list(enumerate(operator.sides))
        case MultiwayJoinOperator():
            return [(port, state) for port, states in enumerate(operator.indexes) for state in states]
        case KeptWindowOperator():
            return [(0, operator.state)]
        case OrderedRowsOperator() | FollowedByOperator():
            return [(None, state) for state in operator.states]
        case SliceOperator():
            return list(enumerate(operator.kept))
    return [(None, state) for state in operator.states]


class Contents:
    """Everything an old box still knows."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.by_id: dict[str, list[HeldState]] = defaultdict(list)
        self.leaves: dict[str, KeptLeaf] = {}
        for held in held_states(box):
            self.by_id[held.state.id].append(held)
            self._trace(held)

    def match(self, held: HeldState) -> HeldState | None:
        """The old state with the content of a new one; one of an operator's own kind must be the same in all."""
        found = [h for h in self.by_id.get(held.state.id, ()) if (h.port is None) == (held.port is None)]
        same_key = [h for h in found if h.state.key == held.state.key]
        if held.port is None:
            return next((h for h in same_key if shareable(h.state, held.state)), None)
        return next(iter(same_key or found), None)

    def top(self, held: HeldState) -> HeldState | None:
        """What lies below an ISTREAM, DSTREAM or RSTREAM: equivalent plans hold the same there under any name."""
        return HeldState(self.box.operators[-1].states[0], len(self.box.operators) - 1, 0)

    def find(self, node: p.PhysicalNode) -> Known | None:
        """A node's output, if some state holds it."""
        for held in self.by_id.get(node.content, ()):
            if held.port is not None:
                return Known(partial(parts_of, held.state), held.state.schema, Wire(held.operator, held.port), held)
        for held in self.by_id.get(f"coverage of {node.content}", ()):
            return Known(_current(held.state), held.state.schema, self.box.wire(held.operator), held)
        return None

    def leaf(self, node: p.PhysicalNode) -> KeptLeaf | None:
        """What was kept of a leaf, if all columns it must have are still there."""
        kept = self.leaves.get(leaf_name(node))
        return kept if kept is not None and kept.offers(node.schema) else None

    def _trace(self, held: HeldState) -> None:
        """Finds the leaf below a state, if what lies between can be undone."""
        node = self.box.nodes[held.operator]
        operator = self.box.operators[held.operator]
        if isinstance(operator, DeduplicateOperator):
            known = Known(_current(held.state), held.state.schema, self.box.wire(held.operator), held)
            child = node.inputs[0]
        elif held.port is not None:
            known = Known(partial(parts_of, held.state), held.state.schema, Wire(held.operator, held.port), held)
            child = node.inputs[held.port]
        else:
            return
        self._descend(child, known, {name: name for name in child.schema.names})

    def _descend(self, node: p.PhysicalNode, known: Known, columns: dict[str, str]) -> None:
        """`columns` says for columns of a node's output where the content read has them."""
        match node:
            case p.SourceNode() | p.AssignWindow():
                here = {name: columns[name] for name in node.schema.names if name in columns}
                before = self.leaves.get(leaf_name(node))
                if before is None or len(before.columns) < len(here):
                    self.leaves[leaf_name(node)] = KeptLeaf(known, here)
            case p.Filter():
                self._descend(node.input, known, columns)
            case p.WindowBounds():
                # What it gives for a piece of an element is that piece.
                own = {name: there for name, there in columns.items() if name not in node.bounds}
                self._descend(node.input, known, own)
            case p.Compute():
                self._descend(node.input, known, _undone(node, columns))
            case p.Concatenate():
                self._descend_into_union(node, known, columns)

    def _descend_into_union(self, node: p.Concatenate, known: Known, columns: dict[str, str]) -> None:
        """A union does not say where a tuple came from: as well all from one branch that drops nothing."""
        places = [columns.get(name) for name in node.schema.names]
        nothing = Known(lambda _: empty_elements(known.schema), known.schema, known.wire)
        taken = False
        for branch in node.united:
            here = {n: c for n, c in zip(branch.schema.names, places, strict=True) if c is not None}
            if not taken and _drops_nothing(branch):
                self._descend(branch, known, here)
                taken = True
            else:
                self._descend(branch, nothing, here)
        if not taken:
            for leaf in p.walk_physical(node):
                self.leaves.pop(leaf_name(leaf), None)


def kept_windows(box: Box) -> set[str]:
    """The ids of the states that keep what comes of one leaf, past nothing but operators that remember nothing."""
    return {
        held.state.id
        for held in held_states(box)
        if held.port is not None and _plain(box.nodes[held.operator].inputs[held.port])
    }


def _plain(node: p.PhysicalNode) -> bool:
    return all(isinstance(n, p.SourceNode | p.Filter | p.Compute | p.Concatenate) for n in p.walk_physical(node))


def leaf_name(node: p.PhysicalNode) -> str:
    """What a leaf is known by: a source by its alias, a window over a sub-query by what it holds."""
    return node.stream.alias if isinstance(node, p.SourceNode) else node.content


def shareable(one: SortedState, other: SortedState) -> bool:
    """Whether the segments of one state can serve the other as they are."""
    same_kind = isinstance(one, CoverageState) == isinstance(other, CoverageState)
    return same_kind and one.key == other.key and one.schema.equals(other.schema) and one.longest == other.longest


def parts_of(state: SortedState, frontier: int) -> Sequence[Elements]:
    """What is valid after a frontier; segments that lie in files are given as they are, and so stay there."""
    stored = [s.elements for s in state.segments if s.place is not None and s.latest_to > frontier]
    others = SortedState(
        state.id, state.key, state.schema, state.longest, [s for s in state.segments if s.place is None]
    )
    return [*stored, others.alive(frontier)]


def _undone(node: p.Compute, columns: dict[str, str]) -> dict[str, str]:
    """Where the columns below a projection are found, for those that it passes on as they are."""
    return {
        c.expression.name: columns[c.name]
        for c in node.columns
        if isinstance(c.expression, Column) and c.name in columns
    }


def _drops_nothing(node: p.PhysicalNode) -> bool:
    while isinstance(node, p.Compute):
        node = node.input
    return isinstance(node, p.SourceNode)


def _current(state: SortedState) -> Read:
    assert isinstance(state, CoverageState)
    return state.current
