"""How queries that are new to a graph start: from the present content of what they share with others.

That is what the operators that they read have given that is still valid, the windows that others keep, and what follows
from rows that others keep for longer or with more columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from midstream.algebra.physical import Source
from midstream.checkpoint.packs import SegmentEntry, open_segment
from midstream.job.task.state_store import StateStore
from midstream.job.task.task_graph import TaskGraph
from midstream.job.task.works import Member
from midstream.migration.contents import ports_of
from midstream.migration.execution import arranged
from midstream.operators.base import Operator
from midstream.operators.build import build
from midstream.operators.elements import Elements
from midstream.operators.shared_graph import SharedGraph
from midstream.operators.slices import grid_floor
from midstream.operators.state.portions import slices
from midstream.scheduling.presence import present_parts


@dataclass(frozen=True, slots=True)
class NewMembers:
    """The members of a task that are new in this batch."""

    task: TaskGraph
    store: StateStore

    @property
    def graph(self) -> SharedGraph:
        """The operators of all members."""
        return self.task.live

    def inputs(self) -> Iterator[tuple[int, int, Elements]]:
        """What new operators start with, by port, children first; each is to be taken before the next is asked for."""
        windows = {(i.node, i.port): i.segments.get(self.store.slot, ()) for i in self.task.work.inherited}
        for number, operator in enumerate(self.graph.operators):
            member = self.task.owner[number]
            if not member.fresh:
                continue
            for port, place in enumerate(self.graph.inputs[number]):
                kept = windows.get((self.graph.names[number], port))
                contents = self._window(operator, port, kept) if kept is not None else self._present(place, member)
                for content in contents:
                    yield number, port, content

    def results(self) -> Iterator[tuple[int, Elements]]:
        """What new members give whose root runs already."""
        for i, member in enumerate(self.task.work.members):
            root = self.graph.members[i].root
            if member.fresh and (root < 0 or not self.task.owner[root].fresh):
                for content in self._present(root, member):
                    yield i, content

    def _window(self, operator: Operator, port: int, kept: Sequence[SegmentEntry]) -> Iterator[Elements]:
        """What is still valid of a window that another operator keeps, some at a time."""
        state = next(state for p, state in ports_of(operator) if p == port)
        frontier = self.graph.incoming(self.graph.operators.index(operator), self.graph.frontier)
        for entry in kept:
            for part in slices(open_segment(self.store.files, entry).elements, entry.bytes, self.store.memory.chunk):
                yield arranged(part.where(part.valid_to > frontier), state.schema)

    def _present(self, place: int, member: Member) -> Iterator[Elements]:
        """What is known for a new member of what a source or an operator has given, and is still valid.

        An operator that is new itself is given what it reads, and gives what follows from it by itself.
        """
        if place < 0:
            yield from self._derived(self.graph.sources[~place][0], member)
            return
        if self.task.owner[place].fresh:
            return
        operator, node = self.graph.operators[place], self.graph.nodes[place]
        if node.stateful:
            again = partial(build, node, self.graph.functions)
            yield from present_parts(operator, again, operator.frontier, self.store.memory.chunk)
            return
        for port, below in enumerate(self.graph.inputs[place]):
            for content in self._present(below, member):
                yield from operator.pieces(port, content)

    def _derived(self, source: Source, member: Member) -> Iterator[Elements]:
        """What a source would have given, of what another query keeps."""
        name, frontier = (member.work.query, source.stream.alias), grid_floor(self.graph.frontier, member.grid)
        for derived in (d for d in self.task.work.derived if (d.query, d.alias) == name):
            for entry in derived.segments.get(self.store.slot, ()):
                kept = open_segment(self.store.files, entry).elements
                for part in slices(kept, entry.bytes, self.store.memory.chunk):
                    given = derived.shaped(part, source, self.store.slot)
                    yield given.where(given.valid_to > frontier)
