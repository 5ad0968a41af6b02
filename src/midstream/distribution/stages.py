"""Cutting a physical plan into stages: where rows that must meet lie apart, an exchange brings them together.

A node states which columns decide who must meet: the keys of a join on both sides, the keys of a group, all columns of
a set operation. Rows placed by some of these columns meet as well as rows placed by all of them, on both sides alike.
After a join on `A.k = B.k` its result is placed by `A.k` and by `B.k`. Sources can arrive by any of their columns, but
each stream arrives by one route only: a node that needs it by another reads it through an exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from midstream.algebra import physical as p
from midstream.algebra.expressions import Column, Expression
from midstream.algebra.physical.routed import RoutedJoin
from midstream.distribution.divided_classes import divided
from midstream.distribution.fragments import ARRIVAL, ONE_SLOT, STAY, Key, Received, Route, Staged, leaves
from midstream.distribution.parts_of_keys import has_means, is_mergeable, merged_over, partial_of
from midstream.distribution.routed_cutting import routed_pieces
from midstream.distribution.staging import FragmentPart, receive, staged
from midstream.errors import InternalError

Renames = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """Where a node's rows are: `free` to choose, in `one` slot, or by the hash of each of some equal keys."""

    free: bool = False
    one: bool = False
    keys: frozenset[Key] = frozenset()


FREE, ONE, ANYWHERE = NodePlacement(free=True), NodePlacement(one=True), NodePlacement()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a fragment under construction."""

    node: p.PhysicalNode
    placement: NodePlacement


def cut(
    plan: p.PhysicalNode,
    arriving: Mapping[str, Route] | None = None,
    routes_fixed: bool = False,
    merging: Collection[str] = (),
) -> Staged:
    """The plan in fragments; `arriving` are the routes by which streams arrive already.

    A stream that arrives anywhere can be given a route, unless `routes_fixed`. One that lives at a site arrives in its
    slots, and routed joins keep its window by key there. `merging` are the key classes of which slots can share the
    rows of a key: what joins give, or aggregates make of parts, meets in another stage, even if it lies together here.
    """
    cutting = _Cutting(ARRIVAL in merging, {name: route.slots for name, route in (arriving or {}).items()})
    root = cutting.place(plan)
    cutting.let_arrive(root, STAY)
    cutting.parts.append(FragmentPart(root.node, STAY))
    fixed = frozenset(arriving or ()) if routes_fixed else frozenset[str]()
    return divided(staged(cutting.parts, cutting.wanted, dict(arriving or {}), fixed), set(merging) - {ARRIVAL})


@dataclass(slots=True)
class _Cutting:
    merging: bool = False
    homes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The slots of streams that live at sites."""
    parts: list[FragmentPart] = field(default_factory=list)
    wanted: dict[str, Route] = field(default_factory=dict)
    """The routes by which sources should arrive, by alias, in the names of their own streams' columns."""

    def place(self, node: p.PhysicalNode) -> Piece:
        """The node with exchanges below it where needed."""
        match node:
            case p.SourceNode():
                return Piece(node, FREE)
            case p.HashJoin() | p.OuterJoin() | p.FollowedBy():
                return self._join(node)
            case RoutedJoin():
                return self._routed(node)
            case p.MultiwayJoin():
                return self._multiway(node)
            case p.SetOperation():
                return self._set_operation(node)
            case p.Concatenate():
                return self._union(node)
            case p.GroupAggregate(keys=keys) | p.OverPartition(keys=keys):
                return self._grouped(node, keys)
            case p.OrderedRows(partition_by=keys):
                return self._grouped(node, keys)
            case p.Changes(kind="keep"):
                return self._passing(node)
            case p.Deduplicate() | p.Changes():
                return self._grouped(node, tuple(node.schema.names))
            case p.Unary():
                return self._passing(node)
        raise InternalError(f"no rule says where the rows of {type(node).__name__} must meet")

    def _passing(self, node: p.Unary) -> Piece:
        below = self.place(node.input)
        renamed = {name: name for name in node.schema.names}
        if isinstance(node, p.Compute):
            renamed = {c.expression.name: c.name for c in node.columns if isinstance(c.expression, Column)}
        return Piece(replace(node, input=below.node), _renamed(below.placement, renamed))

    def _grouped(self, node: p.Unary, keys: Key) -> Piece:
        below = self.place(node.input)
        merging = self.merging and keys and not below.placement.one
        apart = merging and _joins(below.node)
        # Of what joins give, rows that are to be distinct travel whole, and so do those of means.
        if merging and is_mergeable(node) and not (apart and (isinstance(node, p.Deduplicate) or has_means(node))):
            assert isinstance(node, p.GroupAggregate | p.Deduplicate)
            parts = self._exchange(Piece(partial_of(replace(node, input=below.node)), below.placement), keys)
            return Piece(merged_over(node, parts.node), parts.placement)
        below = self._exchange(below, keys) if apart else self._meeting(below, keys)
        kept = {name: name for name in node.schema.names}
        return Piece(replace(node, input=below.node), _renamed(below.placement, kept))

    def _meeting(self, piece: Piece, keys: Key) -> Piece:
        """The piece with rows of equal keys in one slot."""
        if not keys:
            return self._to_one(piece)
        if piece.placement.one or any(set(key) <= set(keys) for key in piece.placement.keys):
            return piece
        for key in (keys, *((name,) for name in keys)):
            if self.let_arrive(piece, Route(key)):
                return Piece(piece.node, NodePlacement(keys=frozenset([key])))
        return self._exchange(piece, keys)

    def _join(self, node: p.HashJoin | p.OuterJoin | p.FollowedBy) -> Piece:
        left, right = self._pair(self.place(node.left), self.place(node.right), node.left_key, node.right_key)
        joined = replace(node, left=left.node, right=right.node)
        kept = {name: name for name in node.schema.names}
        if left.placement.one:
            return Piece(joined, ONE)
        kind = node.kind if isinstance(node, p.OuterJoin) else "inner"
        keys: frozenset[Key] = frozenset()
        if kind in ("inner", "left", "semi", "anti") and not (isinstance(node, p.FollowedBy) and node.outer):
            keys |= left.placement.keys
        if kind in ("inner", "right"):
            keys |= right.placement.keys
        return Piece(joined, _renamed(NodePlacement(keys=keys), kept))

    def _pair(self, left: Piece, right: Piece, left_key: Key, right_key: Key) -> tuple[Piece, Piece]:
        """Two pieces whose rows of equal keys meet."""
        if not left_key or (left.placement.one and right.placement.one):
            return self._to_one(left), self._to_one(right)
        there = dict(zip(left_key, right_key, strict=True))
        back = dict(zip(right_key, left_key, strict=True))
        options: list[tuple[Key | None, Key | None]] = []
        options += [(key, _mapped(key, there)) for key in sorted(left.placement.keys)]
        options += [(_mapped(key, back), key) for key in sorted(right.placement.keys)]
        if left.placement.free or right.placement.free:
            options += [(left_key, right_key), *(((a,), (b,)) for a, b in there.items())]
        known = [(a, b) for a, b in options if a is not None and b is not None]
        for a, b in known:
            if self._fits(left, a) and self._fits(right, b):
                return self._placed(left, a), self._placed(right, b)
        for a, b in known:
            if self._fits(left, a):
                return self._placed(left, a), self._exchange(right, b)
            if self._fits(right, b):
                return self._exchange(left, a), self._placed(right, b)
        return self._exchange(left, left_key), self._exchange(right, right_key)

    def _multiway(self, node: p.MultiwayJoin) -> Piece:
        pieces = [self.place(child) for child in node.joined]
        common = _common_keys(node)
        if common is None:
            joined = replace(node, joined=tuple(self._to_one(piece).node for piece in pieces))
            return Piece(joined, ONE)
        placed, keys = [], frozenset[Key]()
        for piece in pieces:
            names = [name for name in piece.node.schema.names if name in common]
            fitting = next((name for name in names if self._fits(piece, (name,))), None)
            done = self._exchange(piece, (names[0],)) if fitting is None else self._placed(piece, (fitting,))
            placed.append(done)
            keys |= frozenset((name,) for name in names)
        joined = replace(node, joined=tuple(piece.node for piece in placed))
        return Piece(joined, _renamed(NodePlacement(keys=keys), {name: name for name in node.schema.names}))

    def add(self, node: p.PhysicalNode, route: Route, stage: int = 0) -> int:
        """Adds a fragment that runs in a stage or later; gives its number."""
        self.let_arrive(Piece(node, FREE), STAY)
        self.parts.append(FragmentPart(node, route, stage))
        return len(self.parts) - 1

    def _routed(self, node: RoutedJoin) -> Piece:
        homes = [self.homes.get(next(leaves(child)).stream.name, ()) for child in node.joined]
        return Piece(routed_pieces(node, self, receive, homes), ANYWHERE)

    def _set_operation(self, node: p.SetOperation) -> Piece:
        left_names, right_names = tuple(node.left.schema.names), tuple(node.right.schema.names)
        left, right = self._pair(self.place(node.left), self.place(node.right), left_names, right_names)
        renamed = dict(zip(left_names, node.schema.names, strict=True))
        return Piece(replace(node, left=left.node, right=right.node), _renamed(left.placement, renamed))

    def _union(self, node: p.Concatenate) -> Piece:
        pieces = [self.place(child) for child in node.united]
        united = replace(node, united=tuple(piece.node for piece in pieces))
        if all(piece.placement.free for piece in pieces):
            return Piece(united, FREE)
        if all(piece.placement.one for piece in pieces):
            return Piece(united, ONE)
        named = [dict(zip(node.schema.names, piece.node.schema.names, strict=True)) for piece in pieces]
        first = next(i for i, piece in enumerate(pieces) if not piece.placement.free)
        back = {theirs: ours for ours, theirs in named[first].items()}
        for key in sorted(pieces[first].placement.keys):
            ours = _mapped(key, back)
            theirs = [_mapped(ours, names) for names in named] if ours else []
            if ours and all(k and self._fits(piece, k) for piece, k in zip(pieces, theirs, strict=True)):
                for piece, k in zip(pieces, theirs, strict=True):
                    self._placed(piece, k or ())
                return Piece(united, NodePlacement(keys=frozenset([ours])))
        for piece in pieces:
            self.let_arrive(piece, STAY)
        return Piece(united, ANYWHERE)

    def _fits(self, piece: Piece, key: Key) -> bool:
        if piece.placement.free:
            return traced(piece.node, key) is not None
        return key in piece.placement.keys

    def _placed(self, piece: Piece, key: Key) -> Piece:
        if not piece.placement.free:
            return piece
        self.let_arrive(piece, Route(key))
        return Piece(piece.node, NodePlacement(keys=frozenset([key])))

    def let_arrive(self, piece: Piece, route: Route) -> bool:
        """Decides how the sources of a free piece arrive, if they can arrive that way."""
        if not piece.placement.free:
            return False
        if not route.key:
            for source in leaves(piece.node):
                self.wanted.setdefault(source.stream.alias, route)
            return True
        found = traced(piece.node, route.key)
        for source, columns in found or ():
            self.wanted[source.stream.alias] = Route(columns)
        return found is not None

    def _to_one(self, piece: Piece) -> Piece:
        if piece.placement.one:
            return piece
        if self.let_arrive(piece, ONE_SLOT):
            return Piece(piece.node, ONE)
        return self._exchange(piece, ())

    def _exchange(self, piece: Piece, key: Key) -> Piece:
        self.let_arrive(piece, STAY)
        self.parts.append(FragmentPart(piece.node, Route(key)))
        received = receive(piece.node, len(self.parts) - 1, Route(key))
        return Piece(received, NodePlacement(keys=frozenset([key])) if key else ONE)


def _renamed(placement: NodePlacement, names: Renames) -> NodePlacement:
    if placement.free or placement.one:
        return placement
    mapped = (_mapped(key, names) for key in placement.keys)
    return NodePlacement(keys=frozenset(key for key in mapped if key is not None))


def _mapped(key: Key, names: Renames) -> Key | None:
    return tuple(names[name] for name in key) if all(name in names for name in key) else None


def _joins(node: p.PhysicalNode) -> bool:
    """Whether a fragment's part joins what it reads."""
    return any(isinstance(below, p.HashJoin | p.MultiwayJoin | p.OuterJoin) for below in p.walk_physical(node))


def traced(node: p.PhysicalNode, key: Key) -> list[tuple[p.SourceNode, Key]] | None:
    """The columns of the sources below that the key's columns are, if they are plain columns there."""
    match node:
        case Received():
            return None
        case p.SourceNode():
            return [(node, key)] if set(key) <= set(node.schema.names) else None
        case p.Compute(input=below, columns=columns):
            plain = {c.name: name for c in columns if (name := _plain(c.expression)) is not None}
            mapped = _mapped(key, plain)
            return None if mapped is None else traced(below, mapped)
        case p.Concatenate(united=united):
            return _all(united, lambda child: dict(zip(node.schema.names, child.schema.names, strict=True)), key)
        case p.Filter() | p.Instants() | p.AssignWindow() | p.WindowBounds():
            return traced(node.inputs[0], key)
    return None


def _all(
    children: Iterable[p.PhysicalNode], names: Callable[[p.PhysicalNode], Renames], key: Key
) -> list[tuple[p.SourceNode, Key]] | None:
    found = []
    for child in children:
        mapped = _mapped(key, names(child))
        below = None if mapped is None else traced(child, mapped)
        if below is None:
            return None
        found += below
    return found


def _plain(expression: Expression) -> str | None:
    return expression.name if isinstance(expression, Column) else None


def _common_keys(node: p.MultiwayJoin) -> frozenset[str] | None:
    """Columns that are all equal in every result and of which every input has one."""
    classes: list[set[str]] = []
    for route in node.routes:
        for step in route:
            for a, b in zip(step.key, step.target_key, strict=True):
                touching = [c for c in classes if a in c or b in c]
                classes = [c for c in classes if c not in touching]
                classes.append({a, b}.union(*touching))
    for names in classes:
        if all(names & set(child.schema.names) for child in node.joined):
            return frozenset(names)
    return None
