"""Which queries share what in a batch: a function of the last manifest and of the queries there are.

Nodes of equal structure hold the same if their windows began with the same batch. So the manifest remembers of each
query since which batch each of its windows is kept; a new query takes over the windows, and whole parts of plans, that
others have, and with them their beginning. Once everything that came before a beginning has ended, the beginning no
longer matters. Queries share a graph if they read streams of equal progress; windows are kept once anyway.
A query that migrates is alone, and stays so until what it held then has ended: a new plan may have kept less of a
window than its name says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.algebra import physical as p
from midstream.algebra.plan import ToStream
from midstream.algebra.time import BEGINNING
from midstream.algebra.windows import Hop
from midstream.migration.contents import ports_of
from midstream.operators.box import Box
from midstream.operators.shared_box import Named, structure
from midstream.runtime.checkpoint.manifest import Manifest
from midstream.runtime.spark.batches.running import RunningQuery
from midstream.runtime.spark.slots.fragment_life import FragmentWork
from midstream.runtime.spark.slots.shared_life import BySlot, Inherited, Member, SharedWork, has_null_keys, window_alias
from midstream.runtime.spark.slots.shipping import Shipped
from midstream.scheduling.sharing import STATELESS

ALWAYS = -1
"""The beginning of a window that holds all there is to hold."""

WAITING = (p.GroupAggregate, p.OuterJoin, p.SetOperation, p.RowWindow, p.Changes, p.Instants, p.FollowedBy)
"""Nodes whose answers wait for a frontier."""

UNENDING = (p.RowWindow, p.FollowedBy, p.AssignWindow)
"""Nodes that remember longer than their sources' windows."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a manifest remembers of a query's sharing.

    `since` says with which batch each of its windows began; `start` from which instant on its results are whole;
    `whole_at` when all that came before its windows began has ended (None: never). `own`: others hold something else.
    """

    since: Mapping[str, int]
    start: int = BEGINNING
    whole_at: int | None = None
    own: bool = False
    inherited: Mapping[str, int] = field(default_factory=dict)
    shares: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What the manifest says."""
        return {"since": dict(self.since), "start": self.start, "whole_at": self.whole_at, "own": self.own}

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> Record:
        """What a manifest said."""
        return Record(told["since"], told["start"], told["whole_at"], told["own"])


def text_of(node: p.PhysicalNode, grid: Hop | None) -> str:
    """What a node does in a plan that answers on a grid; what waits for answers is the same on that grid only."""
    waits = any(isinstance(n, WAITING) for n in p.walk_physical(node))
    return f"{structure(node)} on {grid}" if waits else structure(node)


@dataclass(frozen=True, slots=True)
class Outline:
    """A node with the text of its structure, the streams below it, and whether it or something below remembers."""

    node: p.PhysicalNode
    text: str
    aliases: frozenset[str]
    stateful: bool
    inputs: tuple[Outline, ...]

    @staticmethod
    def of(node: p.PhysicalNode, grid: Hop | None) -> Outline:
        """The outline of a plan that answers on a grid."""
        below = tuple(Outline.of(child, grid) for child in node.inputs)
        here = frozenset([node.stream.alias]) if isinstance(node, p.Source) else frozenset[str]()
        stateful = not isinstance(node, STATELESS) or any(o.stateful for o in below)
        return Outline(node, text_of(node, grid), here.union(*(o.aliases for o in below)), stateful, below)

    def identity(self, since: Mapping[str, int]) -> str:
        """What it is and holds."""
        return f"{self.text} since {sorted((a, since[a]) for a in self.aliases)}" if self.stateful else self.text

    def walk(self) -> Iterator[Outline]:
        """The node and everything below it, parents first."""
        yield self
        for below in self.inputs:
            yield from below.walk()


@dataclass(frozen=True, slots=True)
class Window:
    """A state that keeps a window of one stream."""

    alias: str
    state: str
    key: tuple[str, ...]
    columns: frozenset[str]
    nulls: bool
    text: str
    port: int


def windows_of(box: Box, grid: Hop | None) -> Iterator[Window]:
    """The windows that a fragment keeps itself."""
    for node, operator in zip(box.nodes, box.operators, strict=True):
        for port, state in ports_of(operator):
            alias = None if port is None else window_alias(node.inputs[port])
            if alias is not None and port is not None:
                nulls = has_null_keys(operator, state)
                columns = frozenset(state.schema.names)
                yield Window(alias, state.id, state.key, columns, nulls, text_of(node, grid), port)


class Shape:
    """What sharing asks of a query's plan, worked out once."""

    def __init__(self, query: RunningQuery) -> None:
        first = [f for f in query.staged.fragments if f.stage == 0]
        self.outlines = {f.number: Outline.of(f.plan, query.grid) for f in first}
        self.windows = {f.number: tuple(windows_of(query.boxes[f.number], query.grid)) for f in first}
        sources = {(s.stream.name, s.window if isinstance(s.window, Hop) else None) for s in query.sources}
        self.progress = str(sorted(map(str, sources)))
        """Queries of equal progress are always at the same frontier."""

    def nodes(self, fragment: int) -> Iterator[Outline]:
        """All nodes of a fragment that remember something themselves."""
        return (o for o in self.outlines[fragment].walk() if not isinstance(o.node, STATELESS))


NUMBERED = 10_000
"""How many nodes that are or were there keep their numbers."""


class Shapes:
    """The shapes of a session's queries, and the numbers by which their nodes are called."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, Shape]] = {}
        self._numbers: dict[str, int] = {}
        self._named: dict[object, tuple[Outline, Shipped[Named]]] = {}

    def tidy(self) -> None:
        """Forgets numbers once most are of queries that are gone; to be called between batches."""
        if len(self._numbers) > NUMBERED or len(self._named) > NUMBERED:
            self._numbers.clear()
            self._named.clear()

    def number(self, identity: str) -> int:
        """The number of what is and holds the same."""
        return self._numbers.setdefault(identity, len(self._numbers))

    def named(self, place: tuple[str, int], outline: Outline, since: Mapping[str, int]) -> Shipped[Named]:
        """The numbers of a fragment's nodes, as they travel."""
        key = (place, tuple(sorted(since.items())))
        known = self._named.get(key)
        if known is None or known[0] is not outline:
            known = self._named[key] = (outline, Shipped(self._names(outline, since)))
        return known[1]

    def _names(self, outline: Outline, since: Mapping[str, int]) -> Named:
        number = self.number(outline.identity(since))
        return Named(number, tuple(self._names(below, since) for below in outline.inputs))

    def of(self, query: RunningQuery) -> Shape:
        """A query's shape."""
        known = self._known.get(query.name)
        if known is None or known[0] is not query.staged:
            known = self._known[query.name] = (query.staged, Shape(query))
        return known[1]

    def outline(self, query: RunningQuery) -> Shape:
        """The shape of a query that is not there yet."""
        return Shape(query)


@dataclass
class Shares:
    """Who shares what in one batch."""

    batch_id: int
    before: Manifest | None
    queries: Mapping[str, RunningQuery]
    frontiers: Mapping[str, int]
    """To which frontier this batch advances each query."""
    shapes: Shapes = field(default_factory=Shapes)
    migrated: frozenset[str] = frozenset()
    """The queries whose states were moved to another plan right before this batch."""

    def __post_init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.inherited: list[tuple[str, int, str, int, BySlot]] = []
        for name, query in self.queries.items():
            if name in self._told:
                self.records[name] = self._known(query)
        for name, query in self.queries.items():
            if name not in self.records:
                self.records[name] = self._begun(query)
        self.shapes.tidy()

    @property
    def _told(self) -> Mapping[str, Any]:
        told: Mapping[str, Any] = {} if self.before is None else self.before.counters.get("sharing", {})
        return told

    def is_fresh(self, name: str) -> bool:
        """Whether a query is new in this batch."""
        return self.before is not None and name not in self.before.queries

    def _known(self, query: RunningQuery) -> Record:
        told = Record.from_json(self._told[query.name])
        aliases = {source.stream.alias for source in query.sources}
        record = replace(told, since={alias: told.since.get(alias, self.batch_id) for alias in aliases})
        if query.migration is not None or query.name in self.migrated:
            return Record(record.since, record.start, self._whole_at(query), True)
        assert self.before is not None
        passed = self.before.advanced_to.get(query.name, BEGINNING)
        if record.whole_at is not None and passed >= record.whole_at:
            return Record(dict.fromkeys(record.since, ALWAYS), record.start)
        return record

    def _begun(self, query: RunningQuery) -> Record:
        """The record of a query that is new, or of which the manifest does not tell."""
        aliases = {source.stream.alias for source in query.sources}
        if self.before is None:
            return Record(dict.fromkeys(aliases, ALWAYS))
        if query.name in self.before.queries:
            return Record(dict.fromkeys(aliases, self.batch_id), own=True, whole_at=self._whole_at(query))
        since: dict[str, int] = {}
        start = self.frontiers[query.name]
        partners: dict[str, None] = {}
        if query.share:
            self._take_over_nodes(query, since, partners)
            start = max([start, *self._take_over_windows(query, since, partners)])
        inherited = dict(sorted(since.items()))
        if inherited and start > BEGINNING and isinstance(query.plan.query, ToStream):
            # What changed at an instant shows only to those who also know the instant before.
            start += 1
        since = {alias: since.get(alias, self.batch_id) for alias in aliases}
        return Record(since, start, self._whole_at(query), not query.share, inherited, tuple(partners))

    def _others(self, query: RunningQuery) -> Iterator[tuple[RunningQuery, Shape, Record]]:
        """The queries that a new one can start from; what came with it in this batch has nothing yet."""
        for name, record in self.records.items():
            other = self.queries[name]
            if name != query.name and self._can_share(other, record) and not self.is_fresh(name):
                yield other, self.shapes.of(other), record

    def _take_over_nodes(self, query: RunningQuery, since: dict[str, int], partners: dict[str, None]) -> None:
        shape = self.shapes.of(query)
        for outline in shape.outlines.values():
            running: dict[str, tuple[str, Record]] = {}
            for other, theirs, record in self._others(query):
                for fragment in theirs.outlines if theirs.progress == shape.progress else ():
                    for node in theirs.nodes(fragment):
                        running.setdefault(node.text, (other.name, record))
            for node in _largest(outline, running):
                name, record = running[node.text]
                if not node.aliases & since.keys():
                    since.update({alias: record.since[alias] for alias in node.aliases})
                    partners[name] = None

    def _take_over_windows(
        self, query: RunningQuery, since: dict[str, int], partners: dict[str, None]
    ) -> Iterator[int]:
        """Takes over windows that others keep; gives how far these had been forgotten."""
        assert self.before is not None
        for number, windows in self.shapes.of(query).windows.items():
            places = {window.alias: set[tuple[str, int]]() for window in windows}
            for window in windows:
                places[window.alias].add((window.text, window.port))
            for window in windows:
                if window.alias in since or len(places[window.alias]) > 1:
                    continue
                donor = self._donor(query, window)
                if donor is None:
                    continue
                other, fragment, kept, record = donor
                since[window.alias] = record.since[kept.alias]
                partners[other.name] = None
                stored = self.before.segments.get(other.name, {}).get(fragment, {})
                held = {s: [e for e in es if (e.state, e.key) == (kept.state, kept.key)] for s, es in stored.items()}
                self.inherited.append((query.name, number, window.text, window.port, held))
                yield self.before.advanced_to.get(other.name, BEGINNING)

    def _donor(self, query: RunningQuery, wanted: Window) -> tuple[RunningQuery, int, Window, Record] | None:
        found = [
            (record.since[window.alias], other, fragment, window, record)
            for other, shape, record in self._others(query)
            for fragment, windows in shape.windows.items()
            for window in windows
            if window.state == wanted.state and window.columns == wanted.columns and (window.nulls or not wanted.nulls)
        ]
        return min(found, key=lambda f: f[0])[1:] if found else None

    def _can_share(self, query: RunningQuery, record: Record) -> bool:
        return query.share and query.migration is None and not record.own

    def _whole_at(self, query: RunningQuery) -> int | None:
        """When everything that has come by now has ended for a query."""
        if any(isinstance(n, UNENDING) for f in query.staged.fragments for n in p.walk_physical(f.plan)):
            return None
        latest = {} if self.before is None else self.before.latest
        ends = [BEGINNING]
        for source in query.sources_read:
            if source.longest is None:
                return None
            if source.stream.name in latest:
                ends.append(latest[source.stream.name] + source.longest)
        return max(ends)

    def start(self, query: str) -> int:
        """The instant from which on a query's results are given."""
        return self.records[query].start

    def gathered(self, works: Sequence[FragmentWork]) -> list[FragmentWork | SharedWork]:
        """The works of the first stage, those that have something in common as one."""
        alone: list[FragmentWork | SharedWork] = []
        groups: dict[object, list[FragmentWork]] = {}
        for work in works:
            query = self.queries.get(work.query)
            if query is None or work.side is not None or not self._can_share(query, self.records[work.query]):
                alone.append(work)
                continue
            place = (self.shapes.of(query).progress, self.frontiers[work.query])
            groups.setdefault(place, []).append(work)
        common = self._common(groups.values())
        for group in groups.values():
            lone = len(group) == 1 and not self.is_fresh(group[0].query)
            if lone and not common & self._tokens(group[0]):
                alone.append(group[0])
            else:
                alone.append(self._together(group))
        return alone

    def _tokens(self, work: FragmentWork) -> set[object]:
        windows = self.shapes.of(self.queries[work.query]).windows[work.fragment.number]
        since = self.records[work.query].since
        return {(w.state, w.key, w.nulls, since[w.alias]) for w in windows}

    def _common(self, groups: Iterable[Sequence[FragmentWork]]) -> set[object]:
        """The windows that several groups keep."""
        seen: set[object] = set()
        common: set[object] = set()
        for group in groups:
            here = set().union(*(self._tokens(work) for work in group))
            common |= seen & here
            seen |= here
        return common

    def _together(self, works: Sequence[FragmentWork]) -> SharedWork:
        members = []
        for work in works:
            outline = self.shapes.of(self.queries[work.query]).outlines[work.fragment.number]
            since = self.records[work.query].since
            fresh, grid = self.is_fresh(work.query), self.queries[work.query].grid
            members.append(Member(work, self.shapes.named(work.name, outline, since), since, fresh, grid))
        known = [self._advanced_to(m.work.query) for m in members if not m.fresh]
        inherited = {}
        for query, fragment, text, port, segments in self.inherited:
            if any(work.name == (query, fragment) for work in works):
                outline = self.shapes.of(self.queries[query]).outlines[fragment]
                node = next(o for o in outline.walk() if o.text == text)
                number = self.shapes.number(node.identity(self.records[query].since))
                inherited[number, port] = Inherited(number, port, segments)
        return SharedWork(
            tuple(members),
            tuple(inherited.values()),
            max(known, default=BEGINNING),
            self.frontiers[works[0].query],
            works[0].scheduling,
        )

    def _advanced_to(self, query: str) -> int:
        return BEGINNING if self.before is None else self.before.advanced_to.get(query, BEGINNING)

    def to_json(self) -> dict[str, Any]:
        """What the manifest remembers."""
        return {
            name: {**self.records[name].to_json(), "core": query.after_batch.core}
            for name, query in self.queries.items()
        }

    def started(self, name: str) -> list[dict[str, Any]]:
        """What a query's history says of its start, if it came while others ran."""
        if not self.is_fresh(name):
            return []
        record = self.records[name]
        return [
            {
                "event": "started",
                "status": "started",
                "trigger": "added",
                "old_plan": "",
                "new_plan": self.queries[name].plan.text,
                "strategy": "",
                "start_batch": self.batch_id,
                "end_batch": self.batch_id,
                "at": None if record.start == BEGINNING else record.start,
                "inherited": {alias: max(0, batch) for alias, batch in record.inherited.items()},
                "shares": list(record.shares),
            }
        ]


def _largest(outline: Outline, known: Mapping[str, Any]) -> Iterator[Outline]:
    """The largest known nodes of a plan."""
    if outline.text in known and not isinstance(outline.node, STATELESS):
        yield outline
        return
    for below in outline.inputs:
        yield from _largest(below, known)
