"""Operators that several queries of a session run together.

Every query has a box of its own, but the boxes hold the same live operators where their plans do the same. So a new
query takes over what others run already, together with its past; one that is dropped takes nothing away; one that
migrates goes on with copies. What the boxes are together is one graph, in which every query is a member with a
frontier of its own. An operator is as far as the first of its readers: each of them reads all that it reads, so nothing
earlier can come to it. What it gives beyond the frontier of another reader waits there for its time, as rows do.

Other operators that remember the same window keep it once: their states hold the same segments, which never change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from midstream.algebra.physical import PhysicalNode, SourceNode, replaced, walk_physical, with_inputs
from midstream.algebra.physical.identities import part_key
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.records import grouped
from midstream.job.task.ingest import reached, source_elements
from midstream.job.task.task_graph import has_null_keys, window_alias
from midstream.migration.contents import ports_of
from midstream.migration.execution import SingleBox
from midstream.operators.base import Operator
from midstream.operators.box import Box, Wire
from midstream.operators.elements import Elements, Ticks
from midstream.operators.shared_graph import Membership, NodeNames, SharedGraph
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.cores import with_columns
from midstream.optimizer.fixed_plan import fixed
from midstream.optimizer.plans import Plan
from midstream.scheduling.schedule import Schedule
from midstream.scheduling.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Begun:
    """With which push the content of each window began, and from which instant on states hold all that they would if
    they had always been kept.
    """

    since: Mapping[str, int] = field(default_factory=dict)
    whole_from: int = BEGINNING


class Owner(Protocol):
    """A query, of whose live operators others may want some."""

    @property
    def box(self) -> Box | None:
        """Its live operators, unless they must be left alone just now."""

    def begun(self, operator: Operator) -> Begun:
        """When an operator began to remember what it does."""


@dataclass(frozen=True, slots=True)
class TakenPart:
    """A part of a new plan that somebody runs already: its root there, and its operators, children first."""

    root: PhysicalNode
    operators: Sequence[Operator]
    owner: Owner

    @property
    def operator(self) -> Operator:
        """The operator at its root."""
        return self.operators[-1]

    @property
    def begun(self) -> Begun:
        """When it began to remember, on the streams that it reads."""
        known = self.owner.begun(self.operator)
        sources = [node for node in walk_physical(self.root) if isinstance(node, SourceNode)]
        return Begun({s.stream.alias: known.since[s.stream.alias] for s in sources}, known.whole_from)

    def enter(self, box: Box) -> Wire:
        """Becomes part of the live box of the new plan; gives the wire along which its output goes there."""
        root = box.place_of(self.root)
        inside = box.inside(root)
        box.operators[inside.start : inside.stop] = self.operators
        return box.wire(root)


def take_parts(plan: Plan, owners: Sequence[Owner]) -> tuple[Plan, list[TakenPart]]:
    """The plan in which the largest parts that others run stand as they run there, and these parts."""
    taken: list[TakenPart] = []

    def running(node: PhysicalNode) -> PhysicalNode | None:
        part = _running(part_key(node), owners) if node.stateful else None
        if part is None:
            return None
        taken.append(part)
        return with_columns(part.root, node.schema)

    physical = replaced(plan.physical, running)
    return (fixed(plan, physical), taken) if taken else (plan, taken)


def _running(key: str, owners: Iterable[Owner]) -> TakenPart | None:
    """The part of a key that somebody runs; of several, the one that most others run too."""
    boxes = [(owner, box, box.parts[key]) for owner, box in _boxes(owners) if key in box.parts]
    if not boxes:
        return None
    readers = Counter(box.operators[root] for _, box, root in boxes)
    owner, box, root = max(boxes, key=lambda found: readers[found[1].operators[found[2]]])
    inside = box.inside(root)
    return TakenPart(_copied(box.nodes[root]), box.operators[inside.start : inside.stop], owner)


def _boxes(owners: Iterable[Owner]) -> Iterator[tuple[Owner, Box]]:
    return ((owner, box) for owner in owners if (box := owner.box) is not None)


def _copied(node: PhysicalNode) -> PhysicalNode:
    """The same plan of other nodes: each node of a plan has its own place there."""
    return replace(with_inputs(node, _copied))


class SessionGraph(SharedGraph):
    """The live operators of a session's queries, each there once."""

    def __init__(self, executions: Mapping[str, SingleBox], schedule: Schedule) -> None:
        super().__init__()
        self.executions = executions
        self._readers: dict[Operator, list[str]] = {}
        self._live: dict[int, Operator] = {}
        self._sources = [execution.sources for execution in executions.values()]
        self._leaves: dict[SourceNode, int] = {}
        for query, execution in executions.items():
            box = execution.box
            self._live |= {id(operator): operator for operator in box.operators}
            self.add(box.plan, self._named(box.plan, reversed(box.operators)), box.grid)
            for operator in dict.fromkeys(box.operators):
                self._readers.setdefault(operator, []).append(query)
        sinks = (execution.sink for execution in executions.values())
        self.scheduler = Scheduler(self, *sinks, schedule=schedule, gathers=True)

    def _named(self, node: PhysicalNode, operators: Iterator[Operator]) -> NodeNames:
        """Operators are named by their identity, sources by what they give."""
        if isinstance(node, SourceNode):
            return NodeNames(self._leaves.setdefault(node, -1 - len(self._leaves)))
        name = id(next(operators))
        return NodeNames(name, tuple(self._named(below, operators) for below in node.inputs))

    def _operator(self, node: PhysicalNode, name: int) -> Operator:
        return self._live[name]

    def _reached(self, users: Sequence[Membership], frontier: int) -> int:
        return max(user.floor(frontier) for user in users)

    def feed(self, stream: str, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Gives rows to all sources that read a stream."""
        readers = [number for number, (source, _) in enumerate(self.sources) if source.stream.name == stream]
        common: dict[object, object] | None = {} if len(readers) > 1 else None
        for number in readers:
            self.scheduler.feed(number, source_elements(self.sources[number][0], rows, ticks, common))

    def advance(self, registers: Mapping[str, int]) -> None:
        """Learns how far the streams are; each query is as far as the last of its own."""
        for member, sources in zip(self.members, self._sources, strict=True):
            member.limit = reached(sources, registers)
        self.scheduler.advance(max((member.limit for member in self.members), default=BEGINNING))

    def readers_of(self, operator: Operator) -> Sequence[str]:
        """The queries that run an operator together."""
        return self._readers.get(operator, ())


@dataclass(frozen=True, slots=True)
class WholeWindow:
    """A state that keeps a window of one stream, where it is kept, and when it began."""

    alias: str
    wire: Wire
    operator: Operator
    state: SortedState
    begun: Begun

    @property
    def since(self) -> int:
        """The push with which its content began."""
        return self.begun.since[self.alias]

    @property
    def whole_from(self) -> int:
        """From which instant on it is whole."""
        return max(self.operator.frontier, self.begun.whole_from)

    def content(self) -> Elements:
        """What is still valid of it."""
        return self.state.alive(self.operator.frontier)

    @property
    def has_null_keys(self) -> bool:
        """Whether rows with a null key are there too: a join by equality drops them."""
        return has_null_keys(self.operator, self.state)

    @property
    def holds(self) -> tuple[object, ...]:
        """What it holds, and in which form."""
        state = self.state
        return state.id, state.key, tuple(state.schema.names), self.since, self.has_null_keys


def windows_of(owners: Iterable[Owner]) -> Iterator[WholeWindow]:
    """The windows that queries keep, each once."""
    seen: set[Operator] = set()
    for owner, box in _boxes(owners):
        for i, operator in enumerate(box.operators):
            if operator in seen:
                continue
            seen.add(operator)
            for port, state in ports_of(operator):
                alias = None if port is None else window_alias(box.nodes[i].inputs[port])
                if alias is not None and port is not None:
                    yield WholeWindow(alias, Wire(i, port), operator, state, owner.begun(operator))


def windows_in_common(owner: Owner, owners: Iterable[Owner]) -> Iterator[tuple[WholeWindow, WholeWindow]]:
    """The windows of a newcomer that others keep already, each with the one that has been kept longest."""
    kept = list(windows_of(owners))
    running = {window.operator for window in kept}
    known = grouped((window.state.id, window) for window in kept)
    done: set[Wire] = set()
    for window in windows_of([owner]):
        fit = [w for w in known.get(window.state.id, ()) if w.has_null_keys or not window.has_null_keys]
        if fit and window.wire not in done and window.operator not in running:
            done.add(window.wire)
            yield window, min(fit, key=lambda w: w.since)


def equal_windows(owners: Iterable[Owner]) -> list[list[WholeWindow]]:
    """The windows of different operators that hold the same rows."""
    equal = grouped((w.holds, w) for w in windows_of(owners))
    return [alike for alike in equal.values() if len(alike) > 1]
