"""Fragments of several queries at work in one slot, as one graph: what they have in common runs once and is kept once.

A query that is new to the graph starts from the present content of what it shares: what the operators that it reads
have given that is still valid, and the windows that others keep. Windows that several operators keep are made one again
after every batch, so that their segments are written once; whoever holds them names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from midstream.algebra.physical import PhysicalNode, Source, walk_physical
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.files import Files
from midstream.checkpoint.names import name_for
from midstream.checkpoint.packs import SegmentEntry, StateKey, open_segment
from midstream.distribution.fragments import Received
from midstream.job.task.fragment_task import buffer_of, remove_unused
from midstream.job.task.kept_tasks import HeldSegments
from midstream.job.task.memory import Memory
from midstream.job.task.memory_limits import bind, exchange, frontiers, new_segments, write_packs
from midstream.job.task.output_buffer import ResultsBuffer
from midstream.job.task.pool import Pool
from midstream.job.task.reports import FragmentReport
from midstream.job.task.samples import BoxWatch
from midstream.job.task.works import FragmentWork, Member, SharedWork
from midstream.migration.contents import ports_of
from midstream.migration.execution import arranged
from midstream.operators.base import Operator, Work
from midstream.operators.build import build
from midstream.operators.elements import Elements
from midstream.operators.join import SymmetricJoin
from midstream.operators.shared_graph import SharedGraph, leaves
from midstream.operators.state.portions import slices
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.presence import present_parts
from midstream.scheduling.scheduler import Scheduler

TOLD_OF_ALL = 16
"""Up to how many queries share a task and still tell, each, what its operators did."""


def has_null_keys(operator: Operator, state: SortedState) -> bool:
    """Whether rows with a null key are kept too: a join by equality drops them."""
    return not isinstance(operator, SymmetricJoin) or operator.nulls_equal or not state.key


def window_alias(node: PhysicalNode) -> str | None:
    """The one stream below a node that remembers nothing; what comes through an exchange is none."""
    nodes = list(walk_physical(node))
    sources = [n for n in nodes if isinstance(n, Source)]
    plain = not any(n.stateful for n in nodes)
    one = sources[0] if plain and len(sources) == 1 else None
    return None if one is None or isinstance(one, Received) else one.stream.alias


class SharedTask:
    """The fragments of several queries at work in one slot."""

    def __init__(
        self,
        work: SharedWork,
        files: Files,
        slot: int,
        pool: Pool,
        batch_id: int = 0,
        memory: Memory | None = None,
    ) -> None:
        self.slot = slot
        self.held = HeldSegments()
        self.closed_with: list[list[SegmentEntry]] = []
        """What each member held when the task was last closed."""
        self._take_up(work, files, pool, batch_id, memory or Memory())
        self.box = SharedGraph({k: v for m in work.members for k, v in m.work.functions.items()})
        self.used = [self.box.add(m.work.fragment.plan, m.named.value, m.grid) for m in work.members]
        self.owner = self._owners()
        sinks = (partial(self._give, i) for i in range(len(work.members)))
        self.scheduler = Scheduler(self.box, *sinks, schedule=work.scheduling)
        self.few = len(work.members) <= TOLD_OF_ALL
        watched = self.few or any(member.work.watched for member in work.members)
        self.watch = BoxWatch(self.box) if watched else None
        self._fill()
        self.ports = self._ports()
        self._restore()
        bind(self.box.operators, self.memory)
        if self.ports:
            self._begin()  # before the batch's rows come: what they lead to is not part of what there was

    def _take_up(self, work: SharedWork, files: Files, pool: Pool, batch_id: int, memory: Memory) -> None:
        """Begins with a batch of which nothing has been taken."""
        self.work, self.files, self.pool, self.batch_id, self.memory = work, files, pool, batch_id, memory
        pool.tasks.append(self)
        self.flushed: list[str] = []
        self.given = [buffer_of(member.work, memory) for member in work.members]
        self.rows_in: dict[int, int] = {}
        self.named: dict[tuple[int, ...], list[SegmentEntry]] = {}

    def _owners(self) -> dict[int, Member]:
        """Of each operator, the first member that runs it, before those that are new."""
        found: dict[int, Member] = {}
        for member, used in sorted(zip(self.work.members, self.used, strict=True), key=lambda pair: pair[0].fresh):
            for operator in used:
                found.setdefault(operator, member)
        return found

    def _restore(self) -> None:
        """Goes on from where the last batch ended."""
        if self.ports:
            for member, place in zip(self.work.members, self.box.members, strict=True):
                place.limit = BEGINNING if member.fresh else member.work.restored_to
                place.joining = member.fresh
        self.box.restore(self.work.restored_to)

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        """What it runs."""
        return self.work.key

    def goes_on(self, work: SharedWork, memory: Memory) -> bool:
        """Whether a task opened for some work would be the same as this one, which is closed and kept."""
        return (
            memory.bytes == self.memory.bytes
            and work.scheduling == self.work.scheduling
            and work.restored_to == max(self.work.restored_to, self.work.advance_to)
            and (self.watch is not None or not any(member.work.watched for member in work.members))
            and len(work.members) == len(self.work.members)
            and all(self._goes_on(i, member) for i, member in enumerate(work.members))
        )

    def _goes_on(self, number: int, member: Member) -> bool:
        known, work = self.work.members[number], member.work
        return (
            not member.fresh
            and member.named is known.named
            and (member.since, member.grid) == (known.since, known.grid)
            and (work.program is known.work.program and work.received == known.work.received)
            and work.restored_to == max(known.work.restored_to, known.work.advance_to)
            and list(work.segments.get(self.slot, ())) == self.closed_with[number]
        )

    def go_on(self, work: SharedWork, files: Files, pool: Pool, batch_id: int, memory: Memory) -> None:
        """Takes up another batch."""
        pool.known.update(self.held.segments)
        self._take_up(work, files, pool, batch_id, memory)
        for operator in self.box.operators:
            operator.work.clear()
        if self.watch is not None:
            self.watch.restart()
        self.scheduler.restart()
        self.owner = self._owners()
        self._fill()
        self._restore()

    def rest(self) -> bool:
        """Gets ready for the next batch, if no member has begun in this one."""
        if any(member.fresh for member in self.work.members):
            return False
        pool = self.pool

        def entry_of(segment: Segment) -> SegmentEntry:
            return pool.written[id(segment)] if segment.place is None else pool.entries[segment.place]

        self.held.hold(self.box.states(), entry_of, self.files, self.memory.new_state)
        return True

    def _ports(self) -> dict[int, int]:
        """By which port what comes from other fragments reaches each source."""
        found: dict[int, int] = {}
        for member in self.work.members:
            ports = {alias: port for port, alias in member.work.received.items()}
            for leaf, named in leaves(member.work.fragment.plan, member.named.value):
                if isinstance(leaf, Received):
                    found.setdefault(self.box.source_of(named), ports[leaf.stream.alias])
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The queries that its fragments are part of."""
        return tuple(member.work.query for member in self.work.members)

    @property
    def sources(self) -> tuple[Source, ...]:
        """What it must be fed with."""
        return tuple(source for source, _ in self.box.sources)

    def is_fresh(self, operator: int) -> bool:
        """Whether only new queries read an operator."""
        return self.owner[operator].fresh

    def _fill(self) -> None:
        stored = {id(m): _by_state(m.work.segments.get(self.slot, ())) for m in self.work.members}
        for i, operator in enumerate(self.box.operators):
            if self.is_fresh(i):
                continue
            entries = stored[id(self.owner[i])]
            for state in operator.states:
                segments = [self.pool.open(self.files, e, state) for e in entries.get((state.id, state.key), ())]
                state.reopen([segment for segment in segments if len(segment)])

    def _give(self, member: int, results: Elements) -> None:
        work = self.work.members[member].work
        counted = work.counted(results)
        if len(counted) and not work.silent:
            self.given[member].add(counted)

    def take(self, source: Source, elements: Elements) -> None:
        """Takes elements of a stream."""
        number = next(i for i, (known, _) in enumerate(self.box.sources) if known is source)
        self.rows_in[number] = self.rows_in.get(number, 0) + len(elements)
        self.scheduler.feed(number, elements)

    def receive(self, port: int, elements: Elements) -> None:
        """Takes elements that other fragments gave."""
        for number, known in self.ports.items():
            if known == port and len(elements):
                self.rows_in[number] = self.rows_in.get(number, 0) + len(elements)
                self.scheduler.feed(number, elements)

    def advance(self) -> None:
        """Learns how far the streams are; new queries then start from the present content."""
        since, until = self.work.restored_to, self.work.advance_to
        if self.ports:
            for member, place in zip(self.work.members, self.box.members, strict=True):
                place.limit, place.joining = member.work.advance_to, False
        if until > since or self.ports:
            for frontier in frontiers(self.box.operators, since, until, self.memory):
                self.scheduler.advance(frontier)
                self.spill()
        if not self.ports:
            self._begin()

    def _begin(self) -> None:
        if not any(member.fresh for member in self.work.members):
            return
        windows = {(i.node, i.port): i.segments.get(self.slot, ()) for i in self.work.inherited}
        for number, operator in enumerate(self.box.operators):
            if not self.is_fresh(number):
                continue
            for port, place in enumerate(self.box.inputs[number]):
                kept = windows.get((self.box.names[number], port))
                contents = self._window(operator, port, kept) if kept is not None else self._present(place)
                for content in contents:
                    for given in operator.pieces(port, content):
                        self.scheduler.send(self.box.wires[number], given)
                    self.spill()
        for i, member in enumerate(self.work.members):
            root = self.box.members[i].root
            if member.fresh and root >= 0 and not self.is_fresh(root):
                for content in self._present(root):
                    self._give(i, content)

    def _window(self, operator: Operator, port: int, kept: Sequence[SegmentEntry]) -> Iterator[Elements]:
        """What is still valid of a window that another operator keeps, some at a time."""
        state = next(state for p, state in ports_of(operator) if p == port)
        frontier = self.box.incoming(self.box.operators.index(operator), self.box.frontier)
        for entry in kept:
            for part in slices(open_segment(self.files, entry).elements, entry.bytes, self.memory.chunk):
                yield arranged(part.where(part.valid_to > frontier), state.schema)

    def _present(self, place: int) -> Iterator[Elements]:
        """What an operator that others read already has given that is still valid; nothing of what is not known."""
        if place < 0 or self.is_fresh(place):
            return
        operator, node = self.box.operators[place], self.box.nodes[place]
        if node.stateful:
            again = partial(build, node, self.box.functions)
            yield from present_parts(operator, again, operator.frontier, self.memory.chunk)
            return
        for port, below in enumerate(self.box.inputs[place]):
            for content in self._present(below):
                yield from operator.pieces(port, content)

    def windows(self) -> Iterator[tuple[object, int, SortedState]]:
        """The windows that are kept here, by what they hold."""
        for i, operator in enumerate(self.box.operators):
            for port, state in ports_of(operator):
                alias = None if port is None else window_alias(self.box.nodes[i].inputs[port])
                if alias is not None:
                    begun = (has_null_keys(operator, state), self.owner[i].since[alias])
                    yield (state.id, state.key, tuple(state.schema.names), *begun), operator.frontier, state

    def sent(self) -> Iterator[tuple[FragmentWork, Elements]]:
        """What goes on to other fragments, since the last time."""
        for member, given in zip(self.work.members, self.given, strict=True):
            for output in given.take():
                yield member.work, output

    def spill(self) -> None:
        """Moves new segments into a file and maps them once they are many."""
        new = new_segments(self.box.operators, self.memory)
        if not new:
            return
        self.flushed += self._write()
        mapped = {}
        for number in new:
            entry = self.pool.written.pop(number)
            mapped[number] = self.pool.opened[entry.place] = open_segment(self.files, entry, _schema(new[number]))
            self.pool.entries[entry.place] = entry
        exchange(self.box.operators, mapped)

    @property
    def results(self) -> dict[str, ResultsBuffer]:
        """What each query gave."""
        pairs = zip(self.work.members, self.given, strict=True)
        return {member.work.query: given for member, given in pairs if isinstance(given, ResultsBuffer)}

    def closed(self) -> Iterator[tuple[FragmentWork, FragmentReport]]:
        """Writes new segments; says what each fragment has now."""
        self.pool.unify()
        self._write()
        remove_unused(self.files, self.flushed, self._named(range(len(self.box.operators))))
        self.closed_with = []
        told: set[int] = set()
        for i, (member, used) in enumerate(zip(self.work.members, self.used, strict=True)):
            entries = self._entries(used)
            self.closed_with.append(entries)
            work = Work()
            for operator in used:
                # What is shared is done once, and told once.
                if operator not in told:
                    told.add(operator)
                    work.add(self.box.operators[operator].work)
            yield (
                member.work,
                FragmentReport(
                    entries=entries,
                    rows_in=self._rows_in(used, i),
                    rows_out=self.given[i].rows,
                    state_rows=sum(entry.rows for entry in entries),
                    state_bytes=sum(entry.bytes for entry in entries),
                    work=work,
                    passed=self.box.passed_by(i),
                    operators=self.watch.reports(used) if self.watch and (self.few or member.work.watched) else [],
                ),
            )

    def _rows_in(self, used: Sequence[int], member: int) -> int:
        places = {place for operator in used for place in self.box.inputs[operator]} | {self.box.members[member].root}
        return sum(self.rows_in.get(~place, 0) for place in places if place < 0)

    def _write(self) -> list[str]:
        """Writes the segments that nobody has written yet; gives the names of the packs."""
        new: dict[int, tuple[StateKey, Segment]] = {}
        for operator in self.box.operators:
            for state in operator.states:
                for segment in state.segments:
                    if segment.place is None and id(segment) not in self.pool.written:
                        new.setdefault(id(segment), ((state.id, state.key), segment))
        held: dict[StateKey, list[Segment]] = defaultdict(list)
        for name, segment in new.values():
            held[name].append(segment)
        entries = write_packs(self.files, partial(name_for, "state", self.batch_id, self.slot, 0), held, self.memory)
        ordered = [segment for segments in held.values() for segment in segments]
        self.pool.written.update({id(s): e for s, e in zip(ordered, entries, strict=True)})
        return sorted({entry.file for entry in entries})

    def _entries(self, used: Sequence[int]) -> list[SegmentEntry]:
        """What operators hold; those that share all of it have one list."""
        holding = tuple(number for number in used if self.box.operators[number].states)
        if holding not in self.named:
            self.named[holding] = self._named(holding)
        return self.named[holding]

    def _named(self, used: Sequence[int]) -> list[SegmentEntry]:
        found: dict[StateKey, list[SegmentEntry]] = {}
        for number in used:
            for state in self.box.operators[number].states:
                name = (state.id, state.key)
                found[name] = [self.pool.entry(segment, name) for segment in state.segments]
        return [entry for entries in found.values() for entry in entries]


def _schema(segment: Segment) -> pa.Schema:
    return segment.elements.columns.schema


def _by_state(entries: Sequence[SegmentEntry]) -> dict[StateKey, list[SegmentEntry]]:
    found: dict[StateKey, list[SegmentEntry]] = defaultdict(list)
    for entry in entries:
        found[entry.state, entry.key].append(entry)
    return found
