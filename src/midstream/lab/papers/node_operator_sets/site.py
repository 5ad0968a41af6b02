"""A site: the windows of a node and its share of the joins, with rows.

A site executes whatever operators of its sets match what arrives. Sets of several plans stand side by side: partial
results carry the number of the plan (epoch) under which their head's batch started, windows are shared. A probe waits
until its window is complete through the batch it may see, so results do not depend on how long messages travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from typing import Union as Either

from midstream.errors import InternalError
from midstream.lab.papers.node_operator_sets.network import RESULTS, Network
from midstream.lab.papers.node_operator_sets.node_sets import (
    NOTHING,
    Join,
    OperatorSet,
    Ship,
    StreamId,
    Update,
    by_source,
)
from midstream.lab.papers.node_operator_sets.probing import Prober
from midstream.lab.papers.node_operator_sets.window import NEVER, Stored, Window
from midstream.operators.elements import Elements, empty_elements


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a stream in a batch, for windows and for the first probe."""

    to: str
    stream: str
    batch: int
    epoch: int
    rows: Elements


@dataclass(frozen=True, slots=True)
class Partial:
    """Partial results of a head's batch, for the next probe."""

    to: str
    head: str
    met: tuple[str, ...]
    batch: int
    epoch: int
    rows: Elements


@dataclass(frozen=True, slots=True)
class Result:
    """All results of a head's batch."""

    to: str
    head: str
    batch: int
    epoch: int
    rows: Elements | None


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks a stream's home for its window in a change of plans.

    `has` is the batch through which the asking node still has it.
    """

    to: str
    stream: str
    node: str
    has: int
    change: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks a node that keeps a window to send its part after one batch and through another."""

    to: str
    stream: str
    node: str
    has: int
    through: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A part of a window, complete through a batch."""

    to: str
    stream: str
    through: int
    rows: Elements


Parcel = Either[Rows, Partial, Result, Ask, Fetch, Copy]  # noqa: UP007


@dataclass(slots=True)
class Work:
    """What a site has done: candidates compared, rows stored, and the pairs that nested loops would compare."""

    compared: int = 0
    stored: int = 0
    pairs: int = 0

    def clear(self) -> None:
        """Restarts the counts."""
        self.compared = self.stored = self.pairs = 0


@dataclass(frozen=True, slots=True)
class Task:
    """A probe that waits for its window."""

    head: str
    met: tuple[str, ...]
    batch: int
    epoch: int
    rows: Elements
    target: str


@dataclass(frozen=True)
class Plans:
    """The plans that a node works by: its sets, who keeps its stream's window, and since when older ones are retired.

    All are by epoch. A node whose share a change left as it was has no set of its own for it: the latest that is not
    newer counts.
    """

    sets: Mapping[int, OperatorSet]
    keepers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    retired: Mapping[int, int] = field(default_factory=dict)
    epoch: int = 0

    def operators(self, epoch: int) -> OperatorSet:
        """The set under a plan."""
        return self.sets[max((e for e in self.sets if e <= epoch), default=min(self.sets))]

    def kept(self, epoch: int) -> frozenset[str]:
        """The streams whose windows are kept under a plan."""
        return frozenset(o.target for o in self.operators(epoch) if isinstance(o, Update))

    def needing(self, batch: int) -> OperatorSet:
        """All operators that need the rows of a batch: retired plans, under which no stream starts, need no more."""
        oldest = max((epoch for epoch, first in self.retired.items() if first <= batch), default=min(self.sets))
        current = max((epoch for epoch in self.sets if epoch <= oldest), default=min(self.sets))
        return NOTHING.union(*(operators for epoch, operators in self.sets.items() if epoch >= current))

    @property
    def current_keepers(self) -> tuple[str, ...]:
        """The nodes that keep the window of this node's stream under the plan in use."""
        return self.keepers[max(epoch for epoch in self.keepers if epoch <= self.epoch)]


@dataclass
class Site:
    """A node's windows and waiting probes; `plans` are set by their owner.

    `asked` are the windows that a change of plans still waits for, `feeds` the nodes that changes have asked rows for.
    """

    node: str
    stream: str
    prober: Prober
    network: Network
    plans: Plans
    windows: dict[str, Window] = field(default_factory=dict)
    waiting: tuple[Task, ...] = ()
    asked: frozenset[str] = frozenset()
    fetches: tuple[Fetch, ...] = ()
    feeds: frozenset[tuple[int, str]] = frozenset()
    asked_for: int = 0
    last: int = NEVER
    frontier: int = -(2**63)
    work: Work = field(default_factory=Work)

    def window(self, stream: str) -> Window:
        """The window of a stream, empty if there is none yet."""
        if stream not in self.windows:
            node = self.prober.query.input(stream)
            self.windows[stream] = Window(node.content, node.schema, node.longest)
        return self.windows[stream]

    def arrive(self, batch: int, rows: Elements, epoch: int) -> list[Parcel]:
        """The rows of this node's own stream in a batch, which start under a plan."""
        self.last = batch
        sent: list[Parcel] = []
        every = self.plans.needing(batch)
        if Update(self.stream) in every:
            self._store(self.stream, batch, rows)
        targets = {o.node for o in every if isinstance(o, Ship) and o.source == StreamId(self.stream)}
        targets |= {node for _, node in self.feeds}
        for node in sorted(targets - {self.node}):
            sent.append(Rows(node, self.stream, batch, epoch, rows))
        if len(rows) == 0:
            sent.append(Result(RESULTS, self.stream, batch, epoch, None))
        sent += self._flow(self.stream, (), batch, epoch, rows)
        return [*sent, *self.go_on()]

    def receive(self, parcel: Parcel) -> list[Parcel]:
        """What follows from a message with rows or about windows."""
        match parcel:
            case Rows(_, stream, batch, epoch, rows):
                if Update(stream) in self.plans.needing(batch):
                    self._store(stream, batch, rows)
                return [*self._flow(stream, (), batch, epoch, rows), *self.go_on()]
            case Partial(_, head, met, batch, epoch, rows):
                return [*self._flow(head, met, batch, epoch, rows), *self.go_on()]
            case Ask():
                return self._answer(parcel)
            case Fetch():
                self.fetches = (*self.fetches, parcel)
                return self.go_on()
            case Copy(_, stream, through, rows):
                self.work.stored += len(rows)
                self.window(stream).copy(rows, through)
                self.asked -= {stream}
                return self.go_on()
        return []

    def begin(self) -> None:
        """Starts with the windows of the first set, before any row has come."""
        for stream in self.plans.kept(self.plans.epoch):
            self.window(stream)

    def ask(self, change: int, epoch: int) -> list[Parcel]:
        """Requests for the windows that the set of a new plan keeps and the one in use does not.

        A window of an older plan may still be here, but its rows have stopped to come: then only what came since is
        missing.
        """
        if self.asked_for == change:
            return []
        missing = self.plans.kept(epoch) - self.plans.kept(self.plans.epoch)
        self.asked_for, self.asked = change, missing
        sent: list[Parcel] = []
        for stream in sorted(missing):
            home, has = self.network.home(stream), self.window(stream).floor
            sent += self._deliver([Ask(home, stream, self.node, has, change)])
        return sent

    def stop_feeding(self, change: int) -> None:
        """Sends no more rows only because a change of plans asked for them: it has ended."""
        self.feeds = frozenset((c, node) for c, node in self.feeds if c != change)

    @property
    def full(self) -> bool:
        """Whether all windows that were asked for are here."""
        return not self.asked

    def expire(self, frontier: int) -> None:
        """Forgets rows that no unfinished batch can meet."""
        self.frontier = frontier
        for window in self.windows.values():
            window.expire(frontier)

    def go_on(self) -> list[Parcel]:
        """Runs the probes and answers the requests whose windows have become complete."""
        sent: list[Parcel] = []
        before = -1
        while before != len(self.waiting):
            before, tasks, self.waiting = len(self.waiting), self.waiting, ()
            for task in tasks:
                sent += self._run(task)
        fetches, self.fetches = self.fetches, ()
        for fetch in fetches:
            window = self.windows.get(fetch.stream)
            if window is not None and fetch.stream not in self.asked and window.floor >= fetch.through:
                part = window.part(fetch.has, fetch.through, self.frontier)
                sent.append(Copy(fetch.node, fetch.stream, fetch.through, part))
            else:
                self.fetches = (*self.fetches, fetch)
        return sent

    def _answer(self, ask: Ask) -> list[Parcel]:
        """This home's rows go to the asking node from the next batch on; a keeper sends what came before."""
        if ask.node != self.node:
            self.feeds |= {(ask.change, ask.node)}
        if self.last == NEVER:
            return self._deliver(
                [Copy(ask.node, ask.stream, NEVER, empty_elements(self.window(ask.stream).stored_schema))]
            )
        keepers = [node for node in self.plans.current_keepers if node != ask.node]
        keeper = self.node if self.node in keepers else keepers[0]
        return self._deliver([Fetch(keeper, ask.stream, ask.node, ask.has, self.last)])

    def _deliver(self, parcels: list[Parcel]) -> list[Parcel]:
        """What is meant for this node is taken at once."""
        sent: list[Parcel] = []
        for parcel in parcels:
            sent += self.receive(parcel) if parcel.to == self.node else [parcel]
        return sent

    def _store(self, stream: str, batch: int, rows: Elements) -> None:
        if self.window(stream).add(batch, rows):
            self.work.stored += len(rows)

    def _flow(self, head: str, met: tuple[str, ...], batch: int, epoch: int, rows: Elements) -> list[Parcel]:
        """Partial results that are here: what the set of their plan does with them."""
        if len(rows) == 0:
            return [Result(RESULTS, head, batch, epoch, None)] if met else []
        source = StreamId(met[-1], head) if met else StreamId(head)
        sent: list[Parcel] = []
        matching = by_source(self.plans.operators(epoch)).get(source, ())
        if met and not matching:
            raise InternalError(f"{self.node} has no operator for {source} in plan {epoch}")
        for operator in matching:
            match operator:
                case Join(_, target):
                    sent += self._run(Task(head, met, batch, epoch, rows, target))
                case Ship(_, node) if met and node == RESULTS:
                    sent.append(Result(RESULTS, head, batch, epoch, rows))
                case Ship(_, node) if met:
                    sent.append(Partial(node, head, met, batch, epoch, rows))
        return sent

    def _run(self, task: Task) -> list[Parcel]:
        window = self.windows.get(task.target)
        if window is None or window.floor < self.prober.needed(task.head, task.batch, task.target):
            self.waiting = (*self.waiting, task)
            return []
        found = self.prober.probe(task.head, task.met, task.rows, task.target, window, task.batch)
        self.work.compared += found.candidates
        self.work.pairs += len(task.rows) * window.valid_at(int(task.rows.valid_from.min()))
        return self._flow(task.head, (*task.met, task.target), task.batch, task.epoch, found.rows)

    def stored(self) -> dict[str, Any]:
        """What has to be written down to have the site back after a crash."""
        windows: dict[str, Stored] = {name: window.stored() for name, window in self.windows.items()}
        scalars = {name: getattr(self, name) for name in _WRITTEN}
        return {"windows": windows, **scalars}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Takes over what was written down."""
        for name in _WRITTEN:
            setattr(self, name, stored[name])
        for stream, window in stored["windows"].items():
            self.window(stream).restore(window)


_WRITTEN = ("waiting", "asked", "asked_for", "fetches", "feeds", "last", "frontier")
