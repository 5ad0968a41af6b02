"""Joins of a new query whose states are narrowings of another's: they are taken over as they are stored.

Nothing is read, written or moved for that, however much it is: entries are named under the new states, with the number
of ticks by which rows end sooner. What a new query makes of such a join begins with what it has given so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from midstream.algebra.physical import PhysicalNode
from midstream.algebra.physical.selections import Selection
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.packs import SegmentEntry
from midstream.checkpoint.query_windows import BySlot
from midstream.distribution.placement import Placed, Placements
from midstream.job.queries.derived_windows import Others, is_derivable
from midstream.job.queries.running_query import RunningQuery
from midstream.migration.contents import ports_of
from midstream.operators.join import SymmetricJoin
from midstream.operators.multiway_join import MultiwayJoinOperator
from midstream.operators.state.sorted_state import SortedState

OTHER_BUCKETS = 2**60
"""How far the buckets of what was stored for another state are from those of a state: they stay as they were."""


@dataclass(frozen=True, slots=True)
class NarrowedJoin:
    """A join of a new query, with all joins below it: whose states it takes over, and their segments by slot.

    `rows` are looked at to tell what it has given so far to what remembers that. No row is missing of those that ended
    less than `sooner` ticks before the other's frontier.
    """

    query: str
    of: str
    fragment: int
    nodes: tuple[PhysicalNode, ...]
    aliases: frozenset[str]
    segments: BySlot
    sooner: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Input:
    """What a join keeps of one of its inputs, and in which slots."""

    state: SortedState
    selection: Selection
    placed: Placed

    def sooner_than(self, its: _Input) -> int | None:
        """By how many ticks its rows end sooner than those of another, of which they are a part; None: they are not."""
        mine, other = self.state, its.state
        columns = {field.name: field.type for field in other.schema}
        if mine.key != other.key or self.placed != its.placed or not _same_order(mine, other):
            return None
        if any(columns.get(field.name) != field.type for field in mine.schema):
            return None
        return self.selection.sooner_than(its.selection, frozenset(columns))

    def named(self, entry: SegmentEntry, its: _Input, sooner: int) -> SegmentEntry:
        """A segment of another as one of this state."""
        mine, other = self.state, its.state
        if mine.id == other.id and mine.schema.equals(other.schema):
            return entry
        return replace(
            entry.narrowed_by(sooner),
            state=mine.id,
            key=mine.key,
            bucket=entry.bucket - (OTHER_BUCKETS if entry.narrowed is None else 0),
            earliest_to=BEGINNING,
            latest_to=entry.latest_to - sooner,
        )


def narrowed_joins(query: RunningQuery, others: Others, before: Manifest) -> Iterator[NarrowedJoin]:
    """The joins of a new query whose states follow from those of another, the largest, all from one query.

    Of plans in several stages none do: what one fragment gives another takes for new.
    """
    if len(query.staged.fragments) == 1 and is_derivable(query):
        found = [list(_joins_of(query, other, before)) for other, _ in others if len(other.staged.fragments) == 1]
        yield from max(found, key=lambda joins: sum(len(join.aliases) for join in joins), default=[])


def _joins_of(query: RunningQuery, other: RunningQuery, before: Manifest) -> Iterator[NarrowedJoin]:
    ((number, box),), stored = query.boxes.items(), before.segments.get(other.name, {})
    kept = [one for inputs in _inputs(other).values() for some in inputs for one in some]
    held = stored.get(other.staged.root.number, {})
    found: dict[int, list[tuple[_Input, _Input, int]]] = {}
    for place, ports in _inputs(query).items():
        whose = [_narrowest(mine, kept) for inputs in ports for mine in inputs]
        below = [i for i in _below(box.inputs, place) if box.nodes[i].stateful]
        if whose and None not in whose and all(i in found for i in below):
            found[place] = [one for one in whose if one is not None]
    inner = {i for place in found for i in _below(box.inputs, place)}
    for place in found.keys() - inner:
        joined = [place, *(i for i in found if i in _below(box.inputs, place))]
        taken = [one for i in joined for one in found[i]]
        once = {(mine.state.id, mine.state.key): (mine, its, sooner) for mine, its, sooner in taken}
        segments: dict[int, list[SegmentEntry]] = {}
        for slot, entries in held.items():
            segments[slot] = [
                mine.named(entry, its, sooner)
                for mine, its, sooner in once.values()
                for entry in entries
                if (entry.state, entry.key) == (its.state.id, its.state.key)
            ]
        above = [i for i in range(len(box.nodes)) if place in _below(box.inputs, i)]
        gives = any(box.nodes[i].stateful for i in above)
        least = min(_size(segments, mine.state) for mine, _, _ in found[place]) if gives else (0, 0)
        aliases = frozenset(alias for mine, _, _ in taken for alias in mine.selection.windows)
        nodes = tuple(box.nodes[i] for i in joined)
        sooner = min(sooner for _, _, sooner in taken)
        yield NarrowedJoin(query.name, other.name, number, nodes, aliases, segments, sooner, *least)


def _inputs(query: RunningQuery) -> dict[int, list[list[_Input]]]:
    """What the inner joins of a query in one fragment keep, by the operator's number; all of it holds a selection."""
    ((_, box),), (fragment,) = query.boxes.items(), query.staged.fragments
    placements, found = Placements(fragment, query.staged.routes), dict[int, list[list[_Input]]]()
    for number, (node, operator) in enumerate(zip(box.nodes, box.operators, strict=True)):
        if not isinstance(operator, SymmetricJoin | MultiwayJoinOperator):
            continue
        ports: list[list[_Input]] = [[] for _ in node.inputs]
        for port, state in ports_of(operator):
            assert port is not None
            if (selection := Selection.of(node.inputs[port])) is not None:
                ports[port].append(_Input(state, selection, placements(node.inputs[port])))
        if all(ports):
            found[number] = ports
    return found


def _narrowest(mine: _Input, kept: Sequence[_Input]) -> tuple[_Input, _Input, int] | None:
    """Of what another keeps, what leaves out most that is not wanted, and by how many ticks rows of it end sooner."""
    found = [(sooner, i) for i, its in enumerate(kept) if (sooner := mine.sooner_than(its)) is not None]
    if not found:
        return None
    sooner, i = min(found)
    return mine, kept[i], sooner


def _below(inputs: Sequence[Sequence[int]], place: int) -> set[int]:
    """The operators below one."""
    direct = {below for below in inputs[place] if below >= 0}
    return direct.union(*(_below(inputs, below) for below in direct))


def _same_order(one: SortedState, other: SortedState) -> bool:
    mine = one.grouping
    return other.grouping is None if mine is None else mine.same_order(other.grouping)


def _size(segments: BySlot, state: SortedState) -> tuple[int, int]:
    """How many rows and bytes segments have of a state."""
    mine = [e for entries in segments.values() for e in entries if (e.state, e.key) == (state.id, state.key)]
    return sum(entry.rows for entry in mine), sum(entry.bytes for entry in mine)
