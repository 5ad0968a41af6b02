"""A task: one or more fragments at work in one slot, as one graph.

It opens its states from segments, goes on from its frontier, takes the batch's rows, and writes what is new. What
fragments of several queries have in common runs once and is kept once. A query that is new to the graph starts from the
present content of what it shares. Windows that several operators keep are made one again after every batch, so that
their segments are written once; whoever holds them names them.

A fragment that runs apart has a graph of its own, and may have more parts: marks of groups that leave, a migration to
another plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from midstream.algebra.physical import SourceNode
from midstream.algebra.time import INFINITY
from midstream.checkpoint.files import Files
from midstream.checkpoint.names import query_of
from midstream.checkpoint.packs import SegmentEntry, StateKey
from midstream.errors import JobError
from midstream.job.task.kept_tasks import Pool
from midstream.job.task.marked_groups import MARKED, MarkedGroups, unmarked
from midstream.job.task.memory import Memory, bind, frontiers
from midstream.job.task.migration_part import MigrationPart
from midstream.job.task.reports import BoxWatch, FragmentReport
from midstream.job.task.results import ForwardBuffer, OutputBuffer, ResultsBuffer
from midstream.job.task.state_store import NamedState, StateStore, by_state
from midstream.job.task.task_graph import NewMembers, TaskGraph
from midstream.job.task.works import FragmentWork, Member, TaskWork
from midstream.operators.base import Operator
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.one_way_join import OneWayJoinOperator
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.scheduler import Scheduler

REPORTED_IN_FULL = 16
"""Up to how many queries share a task and still report, each, what its operators did."""


class Task:
    """Fragments at work in one slot."""

    def __init__(
        self, work: TaskWork, files: Files, slot: int, pool: Pool, batch_id: int = 0, memory: Memory | None = None
    ) -> None:
        self.store = StateStore(slot, files, pool, batch_id, memory or Memory(), work.first.fragment.number)
        self.closed_with: list[list[SegmentEntry]] = []
        """What each member held when the task was last closed."""
        self._take_up(work)
        first, sinks = work.first, [partial(self._give, i) for i in range(len(work.members))]
        self.marks = MarkedGroups(first) if first.apart.has_marks else None
        self.graph = TaskGraph(work, None if self.marks is None else self.marks.box)
        self.scheduler = Scheduler(self.graph.live, *sinks, schedule=work.scheduling)
        watched = self._reports_all or any(member.work.watched for member in work.members)
        self.watch = BoxWatch(self.graph.live) if watched else None
        self.migration: MigrationPart | None = None
        if first.apart.migration is not None:
            assert isinstance(self.graph.live, Box)
            self.migration = MigrationPart(self.graph.live, sinks[0], first, first.apart.migration)
        self._open()

    def _open(self) -> None:
        """Opens the states and goes on from where the last batch ended."""
        bind(self.graph.live.operators, self.store.memory)
        self.graph.read_windows(self.store)
        if self.migration is not None:
            self.migration.open(self._fill, self.spill, self.store.memory)
            return
        self._fill()
        self.graph.restore()
        if self.graph.members_lag:
            self._begin()  # before the batch's rows come: what they lead to is not part of what there was

    def _take_up(self, work: TaskWork) -> None:
        """Begins with a batch of which nothing has been taken."""
        self.work = work
        self.store.pool.tasks.append(self)
        self.outputs = [_buffer_of(member.work, self.store.memory) for member in work.members]
        self.rows_in: dict[int, int] = {}

    @property
    def _reports_all(self) -> bool:
        return len(self.work.members) <= REPORTED_IN_FULL

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        """What it runs."""
        return self.work.key

    def goes_on(self, work: TaskWork, memory: Memory) -> bool:
        """Whether a task opened for some work would be the same as this one, which is closed and kept."""
        return (
            self._can_go_on
            and work.apart.is_plain
            and memory.bytes == self.store.memory.bytes
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
            and list(work.segments.get(self.store.slot, ())) == self.closed_with[number]
        )

    def go_on(self, work: TaskWork, files: Files, pool: Pool, batch_id: int, memory: Memory) -> None:
        """Takes up another batch."""
        self.store.take_up(files, pool, batch_id, memory)
        self._take_up(work)
        self.graph.follow(work)
        for operator in self.graph.live.operators:
            operator.work.clear()
        if self.watch is not None:
            self.watch.restart()
        self.scheduler.restart()
        self._fill()
        self.graph.restore()

    def rest(self) -> None:
        """Gets ready for the next batch, in which what it holds need not be opened again."""
        if not any(isinstance(operator, OneWayJoinOperator) for operator in self.graph.live.operators):
            self.store.hold(state for _, state in self.named_states())

    @property
    def _can_go_on(self) -> bool:
        """Whether it is a graph alone that reads no windows of others, and none of whose members have just begun."""
        reads = any(isinstance(operator, OneWayJoinOperator) for operator in self.graph.live.operators)
        return self.work.apart.is_plain and not reads and not any(member.fresh for member in self.work.members)

    @property
    def names(self) -> tuple[str, ...]:
        """The queries that its fragments are part of."""
        return tuple(member.work.query for member in self.work.members)

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """What it must be fed with: streams, and what other fragments give."""
        if self.marks is not None:
            return tuple(self.work.first.fragment.sources)
        if self.migration is not None:
            return self.migration.execution.sources
        return tuple(source for source, _ in self.graph.live.sources)

    def named_states(self) -> list[NamedState]:
        """All states under the names they are stored by."""
        parts = self.marks or self.migration
        if parts is not None:
            return list(parts.named_states())
        return [((state.id, state.key), state) for state in self.graph.live.states()]

    def _fill(self) -> None:
        """Gives states their segments; operators of new members have none."""
        if not self.work.shares:
            self._fill_alone()
            return
        stored = {id(m): by_state(m.work.segments.get(self.store.slot, ())) for m in self.work.members}
        for number, owner in self.graph.owner.items():
            self._reopen(stored[id(owner)], self.graph.stored_states(number))

    def _fill_alone(self) -> None:
        work = self.work.first
        entries = work.segments.get(self.store.slot, ())
        if self.marks is not None and not self.marks.is_marked(entries):
            self.marks.mark(entries, self.store)
            return
        states = self.named_states()
        others = _require_known(work, entries, states)
        self._reopen(by_state(entries), states)
        if others:
            back = unmarked(self.store.files, others, work.fragment.plan, work.functions)
            for name, state in states:
                state.replace_segments([*state.segments, *back.get(name, ())])

    def _reopen(self, stored: Mapping[StateKey, Sequence[SegmentEntry]], states: Iterable[NamedState]) -> None:
        for name, state in states:
            state.allowance = self.store.pool.allowance
            state.reopen(self.store.open(stored.get(name, ()), state))

    def _give(self, member: int, results: Elements) -> None:
        work = self.work.members[member].work
        counted = work.counted(results)
        if len(counted) and not work.silent:
            self.outputs[member].add(counted)

    def take(self, source: SourceNode, elements: Elements) -> None:
        """Takes elements of a stream."""
        self._feed(self.graph.number_of(source), elements)

    def receive(self, port: int, elements: Elements) -> None:
        """Takes elements that other fragments gave."""
        for number, known in self.graph.ports.items():
            if known == port:
                self._feed(number, elements)

    def _feed(self, number: int, elements: Elements) -> None:
        if not len(elements):
            return
        self.rows_in[number] = self.rows_in.get(number, 0) + len(elements)
        source = self.graph.live.sources[number][0]
        if self.migration is not None:
            self.migration.execution.feed(source.stream.alias, elements)
            return
        if self.marks is not None:
            elements = self.marks.arriving(source, elements)
        self.scheduler.feed(number, elements if self.work.shares else elements.arranged(source.schema))

    def advance(self) -> None:
        """Learns how far the streams are, in several steps where one would look at too much state."""
        since, until = self.work.restored_to, self.work.advance_to
        if not self.graph.members_lag:
            self._begin()
        self.graph.let_members_advance()
        if until > since or self.graph.members_lag:
            for frontier in frontiers(self._operators, since, until, self.store.memory):
                runs = self.scheduler if self.migration is None else self.migration.execution
                runs.advance(frontier)
                self.spill()
        if self.migration is not None and self.migration.migrating is not None and until == INFINITY:
            self.migration.finish()

    @property
    def _operators(self) -> Sequence[Operator]:
        return self.graph.live.operators if self.migration is None else self.migration.operators

    def _begin(self) -> None:
        """Lets new members start with what there was before this batch: what it leads to comes to them by itself."""
        if not any(member.fresh for member in self.work.members) and not self.work.derived:
            return
        new, live = NewMembers(self.graph, self.store), self.graph.live
        for number, port, content in new.inputs():
            for given in live.operators[number].pieces(port, content):
                self.scheduler.send(live.wires[number], given)
            self.spill()
        for member, content in new.results():
            self._give(member, content)

    def windows(self) -> Iterator[tuple[object, int, SortedState]]:
        """The windows that are kept here and that others may keep too, by what they hold."""
        return self.graph.windows()

    def spill(self) -> None:
        """Moves new segments into files and maps them once they are many."""
        self.store.spill(self.named_states())

    def sent(self) -> Iterator[tuple[FragmentWork, Elements]]:
        """What goes on to other fragments, since the last time."""
        for member, given in zip(self.work.members, self.outputs, strict=True):
            for output in given.take():
                yield member.work, output

    @property
    def results(self) -> dict[str, ResultsBuffer]:
        """What each query gave."""
        pairs = zip(self.work.members, self.outputs, strict=True)
        return {member.work.query: given for member, given in pairs if isinstance(given, ResultsBuffer)}

    def closed(self) -> Iterator[tuple[FragmentWork, FragmentReport]]:
        """What each fragment has now, once new segments are written."""
        states = self.named_states()
        self.store.remove_merged(states)
        self.closed_with = list(self._entries(states))
        counted: set[int] = set()
        for i, (member, entries) in enumerate(zip(self.work.members, self.closed_with, strict=True)):
            yield member.work, self._report(i, entries, counted)

    def _entries(self, states: Sequence[NamedState]) -> Iterator[list[SegmentEntry]]:
        """What each member holds; those that share all of it have one list."""
        if not self.work.shares:
            yield self.store.entries(states)
            return
        known: dict[tuple[int, ...], list[SegmentEntry]] = {}
        for used in self.graph.used:
            holding = tuple(number for number in used if self.graph.live.operators[number].states)
            if holding not in known:
                known[holding] = self.store.entries(self.graph.states_of(holding))
            yield known[holding]

    def _report(self, number: int, entries: list[SegmentEntry], counted: set[int]) -> FragmentReport:
        """What a member did; what operators did that are `counted` already was reported for another."""
        report = FragmentReport(
            entries=entries,
            rows_in=self.graph.rows_in(number, self.rows_in),
            rows_out=self.outputs[number].rows,
            state_rows=sum(entry.rows for entry in entries),
            state_bytes=sum(entry.bytes for entry in entries),
            work=self.graph.work_of(number, counted),
            passed=self.graph.passed(number) if self.migration is None else self.migration.execution.passed,
        )
        if self.watch is not None and (self._reports_all or self.work.members[number].work.watched):
            report.operators = self.watch.reports(self.graph.used[number])
        if self.marks is not None:
            # Its operators are not those of the plan, whose figures the others give.
            report.old, report.operators = self.marks.holds_old, []
        if self.migration is not None:
            self.migration.report(report)
        return report


def closed(tasks: Sequence[Task]) -> Iterator[tuple[FragmentWork, FragmentReport]]:
    """Writes the new segments of a slot's tasks, in one file; says what each fragment has now."""
    if tasks:
        store = tasks[0].store
        store.pool.unify()
        store.write(named for task in tasks for named in task.named_states())
    for task in tasks:
        yield from task.closed()


def _buffer_of(work: FragmentWork, memory: Memory) -> OutputBuffer:
    """Takes what a fragment gives."""
    return ResultsBuffer(memory.output, work.plan) if work.fragment.reader is None else ForwardBuffer(memory.output)


def _require_known(
    work: FragmentWork, entries: Sequence[SegmentEntry], states: Sequence[NamedState]
) -> list[SegmentEntry]:
    """The entries of states with marks; fails if a checkpoint holds another state that the plan does not have."""
    names = {name for name, _ in states}
    others = [entry for entry in entries if (entry.state, entry.key) not in names]
    for entry in others:
        if not entry.state.startswith(MARKED):
            raise JobError(
                f"the checkpoint holds a state of query {query_of(work.query)} that its plan does not have",
                detail=f"{entry.state} by ({', '.join(entry.key)}); the plan is {work.plan.text}",
                hint="use the plan and the version that made the checkpoint, or a new checkpoint",
            )
    return others
