"""The live operators of a task, and whose they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from midstream.algebra.physical import PhysicalNode, SourceNode, walk_physical
from midstream.algebra.physical.routed import KeptWindow, WindowName
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.opening import open_segment, open_states
from midstream.distribution.fragments import Received, leaves
from midstream.job.task.state_store import NamedState, StateStore
from midstream.job.task.works import Member, TaskWork
from midstream.migration.contents import ports_of
from midstream.operators.base import Operator, Work
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.join import SymmetricJoin
from midstream.operators.one_way_join import OneWayJoinOperator
from midstream.operators.shared_graph import SharedGraph, named_leaves
from midstream.operators.slices import grid_floor
from midstream.operators.state.narrowing import RowTests
from midstream.operators.state.portions import slices
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.presence import present_parts


def has_null_keys(operator: Operator, state: SortedState) -> bool:
    """Whether rows with a null key are kept too: a join by equality drops them."""
    return not isinstance(operator, SymmetricJoin) or operator.nulls_equal or not state.key


def probed_alias(node: KeptWindow) -> str:
    """The stream whose window is kept for one-way joins."""
    return next(leaves(node.input.producer if isinstance(node.input, Received) else node.input)).stream.alias


def probed_token(node: KeptWindow) -> tuple[object, ...]:
    """What a window for one-way joins holds and in which slots, but for when it began: equal tokens, equal windows."""
    route = node.input.route if isinstance(node.input, Received) else None
    return node.name, route, tuple(node.schema.names)


def window_alias(node: PhysicalNode) -> str | None:
    """The one stream below a node that remembers nothing; what other fragments give is none."""
    nodes = list(walk_physical(node))
    sources = [n for n in nodes if isinstance(n, SourceNode)]
    if any(n.stateful for n in nodes) or [type(source) for source in sources] != [SourceNode]:
        return None
    return sources[0].stream.alias


class TaskGraph:
    """The graph of a task's members; a fragment that runs apart has it for itself, as a box.

    `used` are the operators of each member, `owner` is of each operator the first member that runs it, before those
    that are new, and `ports` says by which port what comes from other fragments reaches each source.
    """

    def __init__(self, work: TaskWork, box: Box | None = None) -> None:
        self.live, self.used = _made(work, box)
        self.follow(work)
        self.ports = self._ports()

    def follow(self, work: TaskWork) -> None:
        """Goes on with another batch of the same members."""
        self.work = work
        self.owner: dict[int, Member] = {}
        for member, used in sorted(zip(work.members, self.used, strict=True), key=lambda pair: pair[0].fresh):
            for operator in used:
                self.owner.setdefault(operator, member)

    def _ports(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for member in self.work.members:
            ports = {alias: port for port, alias in member.work.received.items()}
            for number, source in self._sources_of(member):
                if isinstance(source, Received):
                    found.setdefault(number, ports[source.stream.alias])
        return found

    def _sources_of(self, member: Member) -> Iterator[tuple[int, SourceNode]]:
        if member.named is None:
            yield from ((number, source) for number, (source, _) in enumerate(self.live.sources))
            return
        for leaf, name in named_leaves(member.work.fragment.plan, member.named.value):
            if isinstance(leaf, SourceNode):
                yield self.live.source_of(name), leaf

    @property
    def members_lag(self) -> bool:
        """Whether members that share the graph may be behind the streams, each at its own frontier."""
        return self.work.shares and bool(self.ports)

    def restore(self) -> None:
        """Goes on from where the last batch ended."""
        if self.members_lag:
            for member, place in zip(self.work.members, self.live.members, strict=True):
                place.limit = BEGINNING if member.fresh else member.work.restored_to
                place.joining = member.fresh
        self.live.restore(self.work.restored_to)

    def let_members_advance(self) -> None:
        """Lets each member go up to its own frontier."""
        if self.members_lag:
            for member, place in zip(self.work.members, self.live.members, strict=True):
                place.limit, place.joining = member.work.advance_to, False

    def number_of(self, source: SourceNode) -> int:
        """The number of a source; that of a fragment that runs apart is known by its alias."""
        alias = None if self.work.shares else source.stream.alias
        known = enumerate(self.live.sources)
        return next(i for i, (own, _) in known if own is source or own.stream.alias == alias)

    def states_of(self, operators: Sequence[int]) -> Iterator[NamedState]:
        """The states of some operators, by what they hold."""
        for number in operators:
            for state in self.live.operators[number].states:
                yield (state.id, state.key), state

    def stored_states(self, operator: int) -> Iterator[NamedState]:
        """The states of an operator that begin with segments: all, or of a new one those of inputs that are taken."""
        for port, state in ports_of(self.live.operators[operator]):
            if not self.owner[operator].fresh or (self.live.names[operator], port) in self.work.taken:
                yield (state.id, state.key), state

    def windows(self) -> Iterator[tuple[object, int, SortedState]]:
        """The windows that are kept here and that others may keep too, by what they hold."""
        for i, operator in enumerate(self.live.operators if self.work.shares else ()):
            node = self.live.nodes[i]
            if not self.owner[i].since:
                continue
            if isinstance(node, KeptWindow):
                token = (*probed_token(node), self.owner[i].since[probed_alias(node)])
                yield token, operator.frontier, operator.states[0]
                continue
            for port, state in ports_of(operator):
                alias = None if port is None else window_alias(node.inputs[port])
                if alias is not None and not state.rests:
                    begun = (has_null_keys(operator, state), self.owner[i].since[alias])
                    yield (state.id, state.key, tuple(state.schema.names), *begun), operator.frontier, state

    def read_windows(self, store: StateStore) -> None:
        """Lets one-way joins read the windows that other fragments of their owners keep in the slot."""
        opened: dict[tuple[str, WindowName], list[Segment]] = {}
        for number, operator in enumerate(self.live.operators):
            if not isinstance(operator, OneWayJoinOperator):
                continue
            work, name, state = self.owner[number].work, operator.probed, operator.window
            if (work.query, name) not in opened:
                entries = work.apart.probed[name].get(store.slot, ())
                if any(entry.narrowed is not None for entry in entries):
                    state.tests = RowTests(next(n for n in walk_physical(work.plan.physical) if n.content == state.id))
                stored = open_states(store.files, entries, {state.id: state})
                opened[work.query, name] = stored.get((state.id, state.key), [])
            state.replace_segments(opened[work.query, name])

    def work_of(self, member: int, counted: set[int]) -> Work:
        """What a member's operators did, without those that are `counted` for another member already."""
        work = Work()
        for operator in self.used[member]:
            if operator not in counted:
                counted.add(operator)
                work.add(self.live.operators[operator].work)
        return work

    def passed(self, member: int) -> int:
        """The frontier of a member's results."""
        return self.live.passed if isinstance(self.live, Box) else self.live.passed_by(member)

    def rows_in(self, member: int, by_source: Mapping[int, int]) -> int:
        """The rows that a member has read, of those that each source has had."""
        places = {place for operator in self.used[member] for place in self.live.inputs[operator]}
        places.add(self.live.members[member].root)
        return sum(by_source.get(~place, 0) for place in places if place < 0)


def _made(work: TaskWork, box: Box | None) -> tuple[SharedGraph, list[list[int]]]:
    """The operators of all members, and the numbers of those of each."""
    if not work.shares:
        box = box or Box(work.first.fragment.plan, work.first.functions)
        return box, [list(range(len(box.operators)))]
    graph = SharedGraph({k: v for m in work.members for k, v in m.work.functions.items()})
    used = [graph.add(m.work.fragment.plan, m.named.value, m.grid) for m in work.members if m.named is not None]
    return graph, used


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
        """What new operators that remember start with, by port, children first.

        Each is to be taken before the next is asked for.
        """
        for number, places in enumerate(self.graph.inputs):
            member = self.task.owner[number]
            begins = self._begins(member) and self.graph.nodes[number].stateful
            for port, place in enumerate(places) if begins else ():
                if (self.graph.names[number], port) not in self.task.work.taken:
                    for content in self._present(place, member):
                        yield number, port, content

    def _begins(self, member: Member) -> bool:
        """Whether a member is new, or goes on to be given rows that others had kept when it was."""
        return member.fresh or any(derived.query == member.work.query for derived in self.task.work.derived)

    def _is_taken(self, operator: int) -> bool:
        """Whether all states of an operator of new members began with what is stored of others."""
        name, ports = self.graph.names[operator], range(len(self.graph.inputs[operator]))
        return all((name, port) in self.task.work.taken for port in ports)

    def results(self) -> Iterator[tuple[int, Elements]]:
        """What new members give of what runs already; the rest comes by itself."""
        for i, member in enumerate(self.task.work.members):
            for content in self._present(self.graph.members[i].root, member) if self._begins(member) else ():
                yield i, content

    def _present(self, place: int, member: Member) -> Iterator[Elements]:
        """What is known for a new member of what a source or an operator has given, and is still valid.

        An operator that is new itself and remembers is given what it reads, and gives what follows from it by itself.
        """
        if place < 0:
            yield from self._derived(self.graph.sources[~place][0], member)
            return
        operator, node = self.graph.operators[place], self.graph.nodes[place]
        if not node.stateful:
            for port, below in enumerate(self.graph.inputs[place]):
                for content in self._present(below, member):
                    yield from operator.pieces(port, content)
        elif self._is_taken(place) or not self._begins(self.task.owner[place]):
            yield from present_parts(operator, operator.frontier, self.store.memory.chunk)

    def _derived(self, source: SourceNode, member: Member) -> Iterator[Elements]:
        """What a source would have given, of what another query keeps, as it is stored there."""
        name, frontier = (member.work.query, source.stream.alias), grid_floor(self.graph.frontier, member.grid)
        for derived in (d for d in self.task.work.derived if (d.query, d.alias) == name):
            for entry in derived.segments.get(self.store.slot, ()):
                kept = open_segment(self.store.files, entry, packs=self.store.pool.packs).elements
                for part in slices(kept, entry.bytes, self.store.memory.chunk):
                    given = derived.shaped(part, source, self.store.slot)
                    yield given.where(given.valid_to > frontier)
