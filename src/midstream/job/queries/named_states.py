"""States of a new query that begin with what another one has stored, as it is.

Nothing is read, written or moved for that, however much it is: entries are named under the new states. What a state
holds is the same there, or less of it: a selection of windows that are shorter, under more conditions. Then entries
say by how many ticks rows end sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from midstream.algebra.physical import PhysicalNode, SourceNode, walk_physical
from midstream.algebra.physical.selections import Selection
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.packs import SegmentEntry
from midstream.checkpoint.query_windows import ALWAYS, BySlot
from midstream.distribution.fragments import Fragment
from midstream.distribution.placement import Placed, Placements
from midstream.job.queries.derived_windows import is_derivable
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.task_graph import has_null_keys, window_alias
from midstream.migration.contents import ports_of
from midstream.operators.slices import SliceOperator
from midstream.operators.state.sorted_state import SortedState

OTHER_BUCKETS = 2**60
"""How far the buckets of what was stored for another state are from those of a state: they stay as they were."""


@dataclass(frozen=True, slots=True)
class NamedInput:
    """An input of an operator of a new query, whose states begin with segments of another query, by slot.

    It is the `same` input, or rows end `sooner` and may be fewer. `rows` and `bytes` are looked at to tell what the
    operator has given so far that holds still: to others that remember it, or else as `results`.
    """

    query: str
    of: str
    fragment: int
    node: PhysicalNode
    port: int
    aliases: frozenset[str]
    segments: BySlot
    same: bool
    sooner: int
    rows: int = 0
    bytes: int = 0
    results: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """How many rows and bytes it begins with."""
        entries = [entry for some in self.segments.values() for entry in some]
        return sum(entry.rows for entry in entries), sum(entry.bytes for entry in entries)


Stored = tuple[RunningQuery, Sequence["KeptInput"]]
"""A query that has begun, and what its operators keep of their inputs."""


@dataclass(frozen=True, slots=True)
class KeptInput:
    """What an operator keeps of one of its inputs, for one key, and in which slots."""

    fragment: int
    node: PhysicalNode
    port: int
    state: SortedState
    nulls: bool
    selection: Selection | None
    placed: Placed

    @property
    def alias(self) -> str | None:
        """The one stream whose window it is, if it is one."""
        return window_alias(self.node.inputs[self.port])

    def is_same(self, its: KeptInput) -> bool:
        """Whether another state holds the same."""
        return self.state.id == its.state.id and self.state.schema.equals(its.state.schema)

    def sooner_than(self, its: KeptInput) -> int | None:
        """By how many ticks its rows end sooner than those of another, of which they are a part; None: they are not."""
        mine, other = self.state, its.state
        if mine.key != other.key or self.placed != its.placed or not _same_order(mine, other):
            return None
        if self.nulls and not its.nulls:
            return None
        if self.is_same(its):
            return 0
        columns = {field.name: field.type for field in other.schema}
        if self.selection is None or any(columns.get(field.name) != field.type for field in mine.schema):
            return None
        return None if its.selection is None else self.selection.sooner_than(its.selection, frozenset(columns))

    def named(self, entry: SegmentEntry, its: KeptInput, sooner: int) -> SegmentEntry:
        """A segment of another state as one of this."""
        if self.is_same(its):
            return entry
        bucket = entry.bucket - (OTHER_BUCKETS if entry.narrowed is None else 0)
        return entry.narrowed_by(sooner, self.state.id, self.state.key, bucket)


def named_inputs(
    query: RunningQuery, known: Collection[str], others: Sequence[Stored], before: Manifest
) -> list[NamedInput]:
    """The inputs of a new query that begin with what is stored, of the largest parts; of streams that are not `known`.

    All below such an input begins with what the same query has stored. Of plans in several stages it is looked for
    where streams arrive: what one fragment gives another takes for new.
    """
    taken = set(known)
    if not is_derivable(query) or taken.issuperset(source.stream.alias for source in query.sources):
        return []
    mine, found = kept_inputs(query), list[NamedInput]()
    parts = [part for other, kept in others for part in _parts_of(query, mine, other, kept, before)]
    for part in sorted(parts, key=lambda part: -len(part[0].aliases)):
        if not part[0].aliases & taken:
            found += part
            taken |= part[0].aliases
    return [_with_cost(one, found, query) for one in found]


def first_instants(
    inputs: Sequence[NamedInput], since: Mapping[str, Mapping[str, int]], passed: Callable[[str], int]
) -> dict[str, int]:
    """From which instants on windows hold all rows that begin with what others have stored, of those that do at all.

    Others keep windows `since` some batches, and have `passed` instants.
    """
    whole: dict[str, int] = {}
    for one in inputs:
        for alias in one.aliases if all(since[one.of][alias] == ALWAYS for alias in one.aliases) else ():
            whole[alias] = max(passed(one.of) - one.sooner, whole.get(alias, BEGINNING))
    return whole


def kept_inputs(query: RunningQuery) -> tuple[KeptInput, ...]:
    """What the operators of a query keep of their inputs where streams arrive, if that is all they keep."""
    found: list[KeptInput] = []
    for fragment in _arriving(query):
        box, placements = query.boxes[fragment.number], Placements(fragment, query.staged.routes)
        for node, operator in zip(box.nodes, box.operators, strict=True):
            states = ports_of(operator)
            for port, state in states if all(port is not None and not state.rests for port, state in states) else ():
                below = node.inputs[port or 0]
                whose = fragment.number, node, port or 0, state, has_null_keys(operator, state)
                found.append(KeptInput(*whose, Selection.of(below), placements(below)))
    return tuple(found)


def _parts_of(
    query: RunningQuery, mine: Sequence[KeptInput], other: RunningQuery, kept: Sequence[KeptInput], before: Manifest
) -> Iterator[list[NamedInput]]:
    """Inputs that follow from what another query has stored, each with all below it."""
    for fragment in _arriving(query):
        box, found = query.boxes[fragment.number], dict[int, dict[int, NamedInput]]()
        below = {
            (number, port): [i for i in _up_to(box.inputs, place) if box.nodes[i].stateful]
            for number, places in enumerate(box.inputs)
            for port, place in enumerate(places)
        }
        for (number, port), inner in below.items():
            whole = all(len(found.get(i, ())) == len(box.inputs[i]) for i in inner)
            states = [one for one in mine if one.node is box.nodes[number] and one.port == port]
            if whole and (one := _named(query, other, states, kept, before)):
                found.setdefault(number, {})[port] = one
        under = {i for number, ports in found.items() for port in ports for i in below[number, port]}
        for number in found.keys() - under:
            for port, one in found[number].items():
                yield [one, *(inner for i in below[number, port] for inner in found[i].values())]


def _named(
    query: RunningQuery, other: RunningQuery, mine: Sequence[KeptInput], kept: Sequence[KeptInput], before: Manifest
) -> NamedInput | None:
    """An input whose states all follow from another's; None if they do not."""
    segments: dict[int, list[SegmentEntry]] = {}
    least: list[int] = []
    for one in mine:
        fitting = [(sooner, i) for i, its in enumerate(kept) if (sooner := one.sooner_than(its)) is not None]
        if not fitting:
            return None
        sooner, i = min(fitting)
        its = kept[i].state
        for slot, entries in before.segments.get(other.name, {}).get(kept[i].fragment, {}).items():
            stored = [entry for entry in entries if (entry.state, entry.key) == (its.id, its.key)]
            segments.setdefault(slot, []).extend(one.named(entry, kept[i], sooner) for entry in stored)
        least.append(sooner if not one.is_same(kept[i]) else -1)
    if not mine:
        return None
    first, aliases = mine[0], _aliases(mine[0].node.inputs[mine[0].port])
    same, sooner = max(least) < 0, max(0, min(least))
    return NamedInput(query.name, other.name, first.fragment, first.node, first.port, aliases, segments, same, sooner)


def _with_cost(one: NamedInput, found: Sequence[NamedInput], query: RunningQuery) -> NamedInput:
    """An input with what is looked at of it: of all inputs of an operator the smallest."""
    box = query.boxes[one.fragment]
    number = next(i for i, node in enumerate(box.nodes) if node is one.node)
    inputs = [other for other in found if other.node is one.node]
    above = [i for i in range(len(box.nodes)) if i != number and number in _up_to(box.inputs, i)]
    named = {id(other.node) for other in found}
    remembered = any(box.nodes[i].stateful for i in above) or len(query.staged.fragments) > 1
    within = any(id(box.nodes[i]) in named for i in above)
    if isinstance(box.operators[number], SliceOperator) or within:
        return one
    if len(inputs) < len(one.node.inputs) or one is not min(inputs, key=lambda other: other.size):
        return one
    rows, size = one.size
    return replace(one, rows=rows, bytes=size, results=not remembered)


def _arriving(query: RunningQuery) -> list[Fragment]:
    return [fragment for fragment in query.staged.fragments if fragment.stage == 0]


def _up_to(inputs: Sequence[Sequence[int]], place: int) -> set[int]:
    """An operator and all below it; nothing for a source."""
    return {place}.union(*(_up_to(inputs, below) for below in inputs[place])) if place >= 0 else set()


def _aliases(node: PhysicalNode) -> frozenset[str]:
    return frozenset(n.stream.alias for n in walk_physical(node) if isinstance(n, SourceNode))


def _same_order(one: SortedState, other: SortedState) -> bool:
    mine = one.grouping
    return other.grouping is None if mine is None else mine.same_order(other.grouping)
