"""Parts of plans that several queries of a session read.

A part runs once. What it gives lies in one buffer with a cursor per reader, and is freed when the last reader has
passed it. A part is there as long as someone reads it. What one query runs alone becomes a part when another one asks
for it: its live operators are cut out of the query's box, and no state is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol

import pyarrow as pa

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import PhysicalNode, SourceNode, walk_physical
from midstream.algebra.physical.identities import part_key
from midstream.algebra.time import BEGINNING
from midstream.job.task.ingest import reached, source_elements
from midstream.migration.execution import Execution, SingleBox
from midstream.operators.box import Box
from midstream.operators.elements import Elements, Ticks, concatenate
from midstream.scheduling.buffers import Buffer, Cursor
from midstream.scheduling.presence import present
from midstream.scheduling.schedule import Schedule
from midstream.scheduling.scheduler import Scheduler
from midstream.scheduling.sharing import Core, Tap, cut_at, parts_of, split_box, taps_in, whole


class Owner(Protocol):
    """What runs a plan of which others may want a part: a query, or a part itself."""

    name: str
    since: dict[str, int]

    @property
    def frontier(self) -> int:
        """How far it is."""

    @property
    def whole_from(self) -> int:
        """The instant from which on its states hold all that they would if it had always run."""

    @property
    def box(self) -> Box | None:
        """Its live operators, unless they must be left alone just now."""

    def run_rest(self, upper: Box) -> None:
        """Goes on with what is left after a part of it has been cut out."""


class SharedPart:
    """A running sub-plan with its readers.

    `since` says for each window with which push its content began; `signature` is that of the core it holds, if any.
    """

    def __init__(self, name: str, box: Box, schedule: Schedule, since: Mapping[str, int], signature: str = "") -> None:
        self.name = name
        self.since = dict(since)
        self.signature = signature
        self.whole_from = BEGINNING
        self.buffer = Buffer()
        self.readers: dict[str, Cursor] = {}
        self.frontier = box.frontier
        self.output: list[Elements] = []
        self.execution = SingleBox(box, self.output.append, partial(Scheduler, schedule=schedule))

    @property
    def box(self) -> Box:
        """Its operators."""
        return self.execution.box

    def run_rest(self, upper: Box) -> None:
        """Goes on with what is left after a part of it has been cut out."""
        self.execution = self.execution.beside(upper, self.output.append)

    @property
    def plan(self) -> PhysicalNode:
        """What it computes."""
        return self.box.plan

    @property
    def rows(self) -> int:
        """How many rows it remembers."""
        return sum(state.rows for state in self.execution.states())

    @property
    def key(self) -> str:
        """What it is found by."""
        return part_key(self.plan)

    @property
    def passed(self) -> int:
        """Nothing that starts before this will be given any more."""
        return min(self.frontier, self.execution.passed)

    def join(self, reader: str) -> None:
        """A new reader, who sees what is given from now on."""
        self.readers[reader] = self.buffer.reader()

    def leave(self, reader: str) -> None:
        """A reader goes."""
        self.buffer.leave(self.readers.pop(reader))

    def present(self) -> Elements:
        """What it has given that is still valid."""
        root = self.box.operators[-1]
        return present(root, root.frontier)

    def flush(self) -> None:
        """Puts what it has given since into the buffer, as one batch: every reader then works it through at once."""
        if self.output:
            self.buffer.push(concatenate(self.output))
            self.output.clear()

    def unread(self, reader: str) -> Iterator[Elements]:
        """What a reader has not seen yet."""
        cursor = self.readers[reader]
        while len(cursor):
            yield cursor.take()


class SharedParts:
    """The parts of a session."""

    def __init__(self, functions: Mapping[str, UserFunction]) -> None:
        self.named: dict[str, SharedPart] = {}
        self.functions = functions
        self._numbered = 0

    def feed(self, stream: str, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Gives rows to the parts that read the stream."""
        for part in self.in_order():
            for source in part.execution.sources:
                if source.stream.name == stream and not isinstance(source, Tap):
                    elements = source_elements(source, rows, ticks)
                    if len(elements):
                        part.execution.feed(source.stream.alias, elements)

    def advance(self, registers: Mapping[str, int]) -> dict[str, int]:
        """Advances the parts to the streams' registers; gives the registers of streams and parts then."""
        known = dict(registers)
        for part in self.in_order():
            self.hand_over(part.name, part.execution)
            frontier = frontier_of(part.execution.sources, known)
            if frontier > part.frontier:
                part.frontier = frontier
                part.execution.advance(frontier)
            part.flush()
            known[part.name] = part.passed
        return known

    def registers(self, registers: Mapping[str, int]) -> dict[str, int]:
        """How far streams and parts are."""
        return {**registers, **{name: part.passed for name, part in self.named.items()}}

    def hand_over(self, reader: str, execution: Execution) -> None:
        """Gives a reader what its parts have given since."""
        for source in execution.sources:
            if isinstance(source, Tap):
                for batch in self.named[source.stream.name].unread(reader):
                    execution.feed(source.stream.alias, batch)

    def in_order(self) -> Iterator[SharedPart]:
        """Parts before those that read them."""
        done: set[str] = set()

        def visit(name: str) -> Iterator[SharedPart]:
            if name not in done:
                done.add(name)
                for tap in taps_in(self.named[name].plan):
                    yield from visit(tap.stream.name)
                yield self.named[name]

        for name in list(self.named):
            yield from visit(name)

    def below(self, sources: Iterable[SourceNode]) -> set[str]:
        """The parts that are read, directly or through others."""
        names = {source.stream.name for source in sources if isinstance(source, Tap)}
        for name in list(names):
            names |= self.below(self.named[name].execution.sources)
        return names

    def leave(self, reader: str, sources: Iterable[SourceNode]) -> None:
        """A reader goes; parts that nobody reads any more go too."""
        for source in sources:
            if not isinstance(source, Tap):
                continue
            part = self.named[source.stream.name]
            part.leave(reader)
            if not part.readers:
                del self.named[part.name]
                self.leave(part.name, part.execution.sources)

    def share(self, physical: PhysicalNode, owners: Iterable[Owner], schedule: Schedule) -> PhysicalNode:
        """A plan with taps on the largest parts of it that run already."""
        names: dict[str, str] = {}
        covered: set[int] = set()
        everyone = list(owners)
        for node in parts_of(physical):
            part = None if id(node) in covered else self._find(part_key(node), everyone, schedule)
            if part is not None:
                names[part_key(node)] = part.name
                covered |= {id(below) for below in walk_physical(node)}
        return cut_at(physical, names) if names else physical

    def with_core(self, core: Core) -> SharedPart | None:
        """A part that holds a core with all columns needed."""
        for part in self.named.values():
            if part.signature == core.signature and core.needed <= set(part.plan.schema.names):
                return part
        return None

    def new_core(
        self, core: Core, columns: frozenset[str], registers: Mapping[str, int], push: int, schedule: Schedule
    ) -> SharedPart:
        """A core of its own, whose content begins with a push."""
        node = core.part(columns)
        since = dict.fromkeys(aliases_of(node), push)
        part = SharedPart(self._name(), Box(node, self.functions), schedule, since, core.signature)
        begin = frontier_of(part.execution.sources, registers)
        if begin > BEGINNING:
            part.frontier = begin
            part.execution.restore(begin)
        self.named[part.name] = part
        return part

    def _name(self) -> str:
        self._numbered += 1
        return f"part {self._numbered}"

    def _find(self, key: str, owners: Iterable[Owner], schedule: Schedule) -> SharedPart | None:
        """The running part of a key; what someone runs alone becomes a part."""
        for part in self.named.values():
            if part.key == key:
                return part
        for owner in [*owners, *self.named.values()]:
            box = owner.box
            for node in [] if box is None else parts_of(box.plan):
                if part_key(node) == key:
                    assert box is not None
                    return self._split(owner, box, node, schedule)
        return None

    def _split(self, owner: Owner, box: Box, node: PhysicalNode, schedule: Schedule) -> SharedPart:
        name = self._name()
        lower, upper = split_box(box, node, name)
        part = SharedPart(name, lower, schedule, {alias: owner.since[alias] for alias in aliases_of(node)})
        part.frontier = owner.frontier
        part.whole_from = owner.whole_from
        self.named[name] = part
        part.join(owner.name)
        for tap in taps_in(lower.plan):
            # What the owner read for this part, the part now reads itself.
            below = self.named[tap.stream.name]
            below.readers[name] = below.readers.pop(owner.name)
        owner.run_rest(upper)
        return part


def aliases_of(plan: PhysicalNode) -> set[str]:
    """The streams that a plan reads, directly or through parts, by alias."""
    return {node.stream.alias for node in walk_physical(whole(plan)) if isinstance(node, SourceNode)}


def frontier_of(sources: tuple[SourceNode, ...], registers: Mapping[str, int]) -> int:
    """The least instant at which something may still start."""
    return reached(sources, registers) if sources else BEGINNING
