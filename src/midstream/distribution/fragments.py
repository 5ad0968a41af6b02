"""Fragments: the parts of a physical plan that run without moving rows, and the exchanges between them.

Within a fragment everything that must meet lies in one slot. What a fragment gives travels by a route to the fragment
that reads it; a source is read where its stream's rows arrive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from midstream.algebra.expressions import Column
from midstream.algebra.partition import Partition
from midstream.algebra.physical import (
    Compute,
    OutputOf,
    PhysicalNode,
    SourceNode,
    render_physical,
    replaced,
    walk_physical,
    with_inputs,
)
from midstream.algebra.physical.routed import KeptWindow, OneWayJoin, WindowName

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """Where rows go: by the hash of key columns, to one slot (no columns), or nowhere else (None: they stay).

    Rows that go `everywhere` have no key either. With `slots` rows go to, or arrive in, these alone: those of a site,
    or of all sites that probe a copied window. What goes by key is dealt as its `key_class` is, which follows from the
    keys of all that is read beside it.
    """

    key: Key | None
    everywhere: bool = False
    slots: tuple[int, ...] = ()
    key_class: str = field(default="", compare=False)
    key_text: str = field(default="", compare=False)
    """The key in the names of streams, where it has a class."""

    @property
    def is_one_slot(self) -> bool:
        """Whether all rows meet in one slot."""
        return self.key == ()

    def copied_to(self, count: int) -> Sequence[int]:
        """The slots that have a copy each of what goes everywhere, in a job with so many."""
        return self.slots or range(count)

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.slots))
        if self.everywhere:
            return f"Exchange to each of slots {listed}" if self.slots else "Exchange to every slot"
        if self.key is None:
            return "Exchange in place"
        among = f" among slots {listed}" if self.slots else ""
        return f"Exchange by {', '.join(self.key)}{among}" if self.key else "Exchange to one slot"


STAY = Route(None)
EVERY_SLOT = Route(None, everywhere=True)
ONE_SLOT = Route(())


@dataclass(frozen=True, slots=True)
class Received(OutputOf):
    """What another fragment gives, as a source of the one that reads it."""

    fragment: int = field(kw_only=True)
    route: Route = field(kw_only=True)

    @property
    def label(self) -> str:
        return f"{self.route} from fragment {self.fragment}"


@dataclass(frozen=True)
class Fragment:
    """A part of a plan; `route` is how its output travels to `reader`, the fragment above (None: results)."""

    number: int
    plan: PhysicalNode
    stage: int
    route: Route
    reader: int | None

    @cached_property
    def sources(self) -> tuple[SourceNode, ...]:
        """The streams it reads."""
        return tuple(node for node in leaves(self.plan) if not isinstance(node, Received))

    @cached_property
    def received(self) -> tuple[Received, ...]:
        """The fragments it reads."""
        return tuple(node for node in leaves(self.plan) if isinstance(node, Received))


@dataclass(frozen=True)
class Staged:
    """A plan in fragments, producers first; `routes` are the routes by which the streams it reads must arrive."""

    fragments: tuple[Fragment, ...]
    routes: dict[str, Route]

    @property
    def root(self) -> Fragment:
        """The fragment that gives the results."""
        return self.fragments[-1]

    @cached_property
    def stages(self) -> int:
        """How many stages there are."""
        return 1 + max(fragment.stage for fragment in self.fragments)

    @cached_property
    def sources(self) -> tuple[SourceNode, ...]:
        """The streams that its fragments read."""
        return tuple(source for fragment in self.fragments for source in fragment.sources)

    @cached_property
    def windows(self) -> Mapping[WindowName, int]:
        """The fragments that keep windows for one-way joins, by the windows' names."""
        kept = ((node, f.number) for f in self.fragments for node in walk_physical(f.plan))
        return {node.name: number for node, number in kept if isinstance(node, KeptWindow)}

    def fragment(self, number: int) -> Fragment:
        """A fragment by its number."""
        return next(f for f in self.fragments if f.number == number)

    def __str__(self) -> str:
        shown = []
        for fragment in reversed(self.fragments):
            shown.append(f"Fragment {fragment.number}, stage {fragment.stage}")
            shown += [f"  {line}" for line in render_physical(fragment.plan).split("\n")]
        arriving = ", ".join(f"{name}: {_arrival(route)}" for name, route in sorted(self.routes.items()))
        return "\n".join([*shown, f"Streams arrive by {arriving}"] if arriving else shown)


def _arrival(route: Route) -> str:
    if route.key is None:
        return f"slots {', '.join(map(str, route.slots))}" if route.slots else "any slot"
    return ", ".join(route.key) or "one slot"


def leaves(plan: PhysicalNode) -> Iterator[SourceNode]:
    """The sources of a plan, received ones included."""
    return (node for node in walk_physical(plan) if isinstance(node, SourceNode))


def sorted_by_group(staged: Staged, bits: int) -> Staged:
    """The same plan in the same fragments, with states in which each of the `2 ** bits` groups is a range."""
    return replace(staged, fragments=tuple(_with_partitions(f, staged, bits) for f in staged.fragments))


def _with_partitions(fragment: Fragment, staged: Staged, bits: int) -> Fragment:
    def marked(node: PhysicalNode) -> PhysicalNode:
        if isinstance(node, SourceNode):
            return replace(node, partition=_partition(node, staged, bits))
        if isinstance(node, OneWayJoin) and node.window.key and not node.window.everywhere:
            node = replace(node, bits=bits)
        return with_inputs(node, marked)

    return replace(fragment, plan=marked(fragment.plan))


def _partition(leaf: SourceNode, staged: Staged, bits: int) -> Partition | None:
    if isinstance(leaf, Received):
        key = leaf.route.key
    else:
        own = staged.routes.get(leaf.stream.name, Route(None)).key
        key = None if own is None else tuple(f"{leaf.stream.alias}.{name}" for name in own)
    if not key or not set(key) <= set(leaf.schema.names):
        return None
    return Partition(frozenset([key]), bits)


ARRIVAL = ""
"""The class of rows as they arrive, and of all that has none of its own."""


def with_key_classes(fragments: Sequence[Fragment]) -> tuple[Fragment, ...]:
    """The fragments of a plan, with the class of each exchange in its route."""
    received = {fragment.number: fragment.received for fragment in fragments}
    readers = Counter(leaf.fragment for several in received.values() for leaf in several)
    found = {f.number: _class_of(f, received[f.number], readers) for f in fragments}
    travelling = {leaf.fragment: (found[number], leaf) for number, several in received.items() for leaf in several}
    return tuple(_named(f, found[f.number], travelling.get(f.number)) for f in fragments)


def key_classes(staged: Staged) -> tuple[str, ...]:
    """The classes of a plan's exchanges, sorted."""
    return tuple(sorted({f.route.key_class for f in staged.fragments} - {ARRIVAL}))


def class_received(fragment: Fragment) -> str:
    """The class by which what a fragment reads is dealt."""
    return next((leaf.route.key_class for leaf in fragment.received if leaf.route.key_class), ARRIVAL)


def in_words(key_class: str) -> str:
    """A class as people read it.

    >>> in_words("B.y = C.y"), in_words(ARRIVAL)
    ('by B.y = C.y', 'as rows arrive')
    """
    return f"by {key_class}" if key_class else "as rows arrive"


def _named(fragment: Fragment, received: str, sent: tuple[str, Received] | None) -> Fragment:
    route = fragment.route if sent is None else _leaf(sent[1], sent[0]).route
    if not received:
        return replace(fragment, route=route)
    plan = replaced(fragment.plan, lambda node: _leaf(node, received) if isinstance(node, Received) else None)
    return replace(fragment, route=route, plan=plan)


def _leaf(leaf: Received, key_class: str) -> Received:
    if not leaf.route.key or not key_class:
        return leaf
    return replace(leaf, route=replace(leaf.route, key_class=key_class, key_text=_key_text(leaf)))


def _class_of(fragment: Fragment, received: Sequence[Received], readers: Mapping[int, int]) -> str:
    keyed = [leaf for leaf in received if leaf.route.key]
    if any(leaf.route.slots or readers[leaf.fragment] > 1 for leaf in keyed):
        return ARRIVAL
    if keyed and any(isinstance(node, OneWayJoin | KeptWindow) for node in walk_physical(fragment.plan)):
        return ARRIVAL
    return " = ".join(sorted({_key_text(leaf) for leaf in keyed}))


def _key_text(leaf: Received) -> str:
    return ", ".join(_column_text(leaf.producer, name) for name in leaf.route.key or ())


def _column_text(node: PhysicalNode, column: str) -> str:
    """A column by the name that it has in its stream, as far as it is one of a stream."""
    match node:
        case Received(producer=below):
            return _column_text(below, column)
        case SourceNode(stream=stream):
            return f"{stream.name}.{column.removeprefix(f'{stream.alias}.')}"
        case Compute(input=below, columns=columns):
            plain = {c.name: c.expression.name for c in columns if isinstance(c.expression, Column)}
            return _column_text(below, plain[column]) if column in plain else column
    for child in node.inputs:
        if column in child.schema.names:
            return _column_text(child, column)
    return column


Table = tuple[int, ...]
"""The slot of each partition group."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The slot of each partition group, how many slots there are, and what made it so.

    `groups` is the table of what arrives, and of all key classes but those that are dealt `apart`.
    """

    groups: Table
    slots: int
    trigger: str = ""
    protocol: str = "mslb"
    reason: str = ""
    """By which balancing protocol groups come to be so, and why by that one, if it was chosen."""
    apart: Mapping[str, Table] = field(default_factory=dict)

    def table(self, key_class: str) -> Table:
        """The slots of a key class.

        >>> Routing((0, 1), 2, apart={"B.y": (1, 1)}).table("B.y")
        (1, 1)
        """
        return self.apart.get(key_class, self.groups)

    def deals_as(self, other: Routing) -> bool:
        """Whether all groups of all classes are in the same slots.

        >>> Routing((0, 1), 2, apart={"B.y": (0, 1)}).deals_as(Routing((0, 1), 2))
        True
        """
        return all(mine == its for _, mine, its in self.beside(other))

    def beside(self, other: Routing) -> Iterator[tuple[str, Table, Table]]:
        """The tables of what arrives and of all classes that one of two routings deals apart, in both."""
        yield "", self.groups, other.groups
        for key_class in sorted({*self.apart, *other.apart}):
            yield key_class, self.table(key_class), other.table(key_class)


GroupName = int | tuple[str, int]
"""A group by its number, or by its key class and number."""


@dataclass(frozen=True, slots=True)
class SpreadGroup:
    """A group of which the rows of the stream `spread` are to be dealt to `ways` slots, and why.

    `slots` are those that share it, its home first, and `copied` the streams of which they all have a copy; both are
    empty while it is `resting`, for a reason. Queries that are `merging` are cut so that what slots make of parts of a
    key's rows meets in another stage.
    """

    group: int
    spread: str
    ways: int
    reason: str
    slots: tuple[int, ...] = ()
    copied: tuple[str, ...] = ()
    resting: str = ""
    merging: tuple[str, ...] = ()
    key_class: str = ""
    """The class of exchanges that it is of; then `spread` and `copied` are keys by which fragments receive rows."""

    @property
    def name(self) -> GroupName:
        """What tells it from all others."""
        return (self.key_class, self.group) if self.key_class else self.group

    @property
    def label(self) -> str:
        """It in words."""
        return f"group {self.group} {in_words(self.key_class)}" if self.key_class else f"group {self.group}"

    @property
    def active(self) -> bool:
        """Whether several slots share it."""
        return bool(self.slots)

    def hashes(self, bits: int) -> tuple[int, int]:
        """The range of hashes of a state's rows that are of the group."""
        width = 64 - bits
        return self.group << width, (self.group + 1) << width
