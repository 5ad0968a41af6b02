"""What sharing asks of plans: which of their nodes do the same, wherever an exchange cuts them into fragments.

A node is known by its structure and by what it reads. What it reads through an exchange is known by the producer's
structure, by the route, by its key class where that is dealt apart, and by the stage that reads it, so equal texts mean
equal rows in equal slots at equal times. What a one-way join gives depends on the window it reads too, so it is known
by that window and by when it began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from midstream.algebra import physical as p
from midstream.algebra.physical.identities import structure
from midstream.algebra.physical.routed import KeptWindow, OneWayJoin, WindowName
from midstream.algebra.windows import Hop
from midstream.distribution.fragments import Fragment, Received, key_classes, leaves
from midstream.job.queries.named_states import KeptInput, kept_inputs
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.shipping import Shipped
from midstream.job.task.task_graph import probed_alias
from midstream.operators.shared_graph import NodeNames

NUMBERED = 10_000
"""How many nodes that are or were there keep their numbers."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A node with the text of its structure, the streams below it, and whether it or something below remembers.

    What waits for answers is the same only on one grid, and beside the same other inputs that wait: these decide how
    far the fragment is. `inputs` end where the fragment does; `producer` is what lies behind an exchange.
    """

    node: p.PhysicalNode
    text: str
    aliases: frozenset[str]
    stateful: bool
    inputs: tuple[Outline, ...]
    producer: Outline | None = None

    def identity(self, since: Mapping[str, int]) -> str:
        """What it is and holds."""
        return f"{self.text} since {sorted((a, since[a]) for a in self.aliases)}" if self.stateful else self.text

    @property
    def remembers(self) -> bool:
        """Whether the node itself remembers something."""
        return self.node.stateful

    def walk(self) -> Iterator[Outline]:
        """The node and everything below it in its fragment, parents first."""
        yield self
        for below in self.inputs:
            yield from below.walk()


@dataclass(frozen=True, slots=True)
class Outlining:
    """Draws the outlines of one fragment, given those of the fragments it reads."""

    grid: Hop | None
    fragment: Fragment
    producers: Mapping[int, Outline]
    windows: Mapping[WindowName, str]
    """The streams whose windows one-way joins read."""
    apart: Collection[str] = ()
    """The key classes that are not dealt as rows arrive."""

    def outline(self) -> Outline:
        """The outline of the fragment's plan."""
        return self._of(self.fragment.plan, self._beside())

    def _beside(self) -> str:
        waiting = [self._received(leaf) for leaf in leaves(self.fragment.plan) if _waits(leaf)]
        return f" beside {sorted(waiting)}" if waiting else ""

    def _received(self, leaf: p.PhysicalNode) -> str:
        assert isinstance(leaf, Received)
        dealt = f" dealt as {leaf.route.key_class}" if leaf.route.key_class in self.apart else ""
        return f"{leaf.route}{dealt} to stage {self.fragment.stage} of {self.producers[leaf.fragment].text}"

    def _of(self, node: p.PhysicalNode, beside: str) -> Outline:
        below = tuple(self._of(child, beside) for child in node.inputs)
        text = self._text(node)
        if _waits(node):
            text = f"{text} on {self.grid}{beside}"
        if isinstance(node, Received):
            producer = self.producers[node.fragment]
            return Outline(node, text, producer.aliases, producer.stateful, (), producer)
        here = frozenset([node.stream.alias]) if isinstance(node, p.SourceNode) else frozenset[str]()
        stateful = node.stateful or any(o.stateful for o in below)
        if isinstance(node, OneWayJoin):
            here, stateful = frozenset([self.windows[node.window]]), True
        return Outline(node, text, here.union(*(o.aliases for o in below)), stateful, below)

    def _text(self, node: p.PhysicalNode) -> str:
        if isinstance(node, Received):
            return self._received(node)
        text = structure(node, map(self._text, node.inputs))
        match node:
            case OneWayJoin(window=window, stored=stored):
                return f"{text} of {window.content} {stored.names}"
            case KeptWindow(key=key):
                return f"{text} by {key}"
        return text


def _waits(node: p.PhysicalNode) -> bool:
    """Whether a node, or something below it, waits for answers."""
    return any(n.waits_for_frontier or (isinstance(n, Received) and _waits(n.producer)) for n in p.walk_physical(node))


class Fingerprint:
    """What sharing asks of a query's plan, worked out once.

    `kept` are the windows that fragments keep for one-way joins.
    """

    def __init__(self, query: RunningQuery, apart: Collection[str] = ()) -> None:
        self._query = query
        self.outlines: dict[int, Outline] = {}
        nodes = [(f.number, node) for f in query.staged.fragments for node in p.walk_physical(f.plan)]
        self.kept = {number: node for number, node in nodes if isinstance(node, KeptWindow)}
        read = {node.name: probed_alias(node) for node in self.kept.values()}
        for fragment in query.staged.fragments:
            self.outlines[fragment.number] = Outlining(query.grid, fragment, self.outlines, read, apart).outline()
        self.root = self.outlines[query.staged.root.number]
        sources = {(s.stream.name, s.window if isinstance(s.window, Hop) else None) for s in query.sources}
        self.progress = str(sorted(map(str, sources)))
        """Queries of equal progress are always at the same frontier."""

    @cached_property
    def inputs(self) -> tuple[KeptInput, ...]:
        """What its operators keep of their inputs where streams arrive."""
        return kept_inputs(self._query)

    def nodes(self) -> Iterator[Outline]:
        """All nodes that remember something themselves."""
        return (o for outline in self.outlines.values() for o in outline.walk() if o.remembers)


class Fingerprints:
    """The shapes of a session's queries, and the numbers by which their nodes are called."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, tuple[str, ...], Fingerprint]] = {}
        self._numbers: dict[str, int] = {}
        self._named: dict[object, tuple[Outline, Shipped[NodeNames]]] = {}

    def of(self, query: RunningQuery, apart: Collection[str] = ()) -> Fingerprint:
        """A query's shape, where some key classes are dealt apart."""
        known = self._known.get(query.name)
        own = tuple(name for name in key_classes(query.staged) if name in apart) if apart else ()
        if known is None or known[0] is not query.staged or known[1] != own:
            known = self._known[query.name] = (query.staged, own, Fingerprint(query, own))
        return known[2]

    def outline(self, query: RunningQuery, apart: Collection[str] = ()) -> Fingerprint:
        """The shape of a query that is not there yet."""
        return Fingerprint(query, apart)

    def tidy(self) -> None:
        """Forgets numbers once most are of queries that are gone; to be called between batches."""
        if len(self._numbers) > NUMBERED or len(self._named) > NUMBERED:
            self._numbers.clear()
            self._named.clear()

    def number(self, identity: str) -> int:
        """The number of what is and holds the same."""
        return self._numbers.setdefault(identity, len(self._numbers))

    def named(self, place: tuple[str, int], outline: Outline, since: Mapping[str, int]) -> Shipped[NodeNames]:
        """The numbers of a fragment's nodes, as they travel."""
        key = (place, tuple(sorted(since.items())))
        known = self._named.get(key)
        if known is None or known[0] is not outline:
            known = self._named[key] = (outline, Shipped(self.names(outline, lambda o: o.identity(since))))
        return known[1]

    def names(self, outline: Outline, identity: Callable[[Outline], str]) -> NodeNames:
        """The numbers of a node and of those below it in its fragment."""
        return NodeNames(self.number(identity(outline)), tuple(self.names(below, identity) for below in outline.inputs))


def largest(outline: Outline, known: Mapping[str, Any]) -> Iterator[Outline]:
    """The largest known nodes of a plan, across all its fragments.

    What outlives windows needs what nodes below it gave long ago, and takes none of these over.
    """
    if outline.text in known and outline.remembers:
        yield outline
        return
    if outline.node.outlives_windows:
        return
    for below in (*outline.inputs, *([] if outline.producer is None else [outline.producer])):
        yield from largest(below, known)


def read_by(outline: Outline, chosen: Callable[[Outline], bool], inside: bool = False) -> Iterator[Outline]:
    """What comes from other fragments to the chosen nodes that remember, and to what is below them."""
    inside = inside or (outline.remembers and chosen(outline))
    if inside and outline.producer is not None:
        yield outline
    for below in outline.inputs:
        yield from read_by(below, chosen, inside)
