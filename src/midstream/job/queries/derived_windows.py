"""Windows that a new query can have computed from what others keep of its streams.

An operator that keeps a window keeps rows with their times. So the content of another window of the same stream
follows from it, if it reaches at least as far back, has lost no row by a condition that the other one lacks, and still
has all columns but the time, which validity tells. A snapshot depends only on what is valid in it, whatever the query
makes of it: a query that is given all rows that are still valid in its windows answers for every later instant as if it
had always run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from midstream.algebra import physical as p
from midstream.algebra.expressions import Column, Expression, columns_of, conjuncts, substitute
from midstream.algebra.implication import excludes_null, implies
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop, Range, Unbounded
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.query_windows import ALWAYS, FilledWindow
from midstream.distribution.fragments import STAY, Received, Route
from midstream.job.queries.completeness import end_of
from midstream.job.queries.filling import Lying
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.task_graph import has_null_keys
from midstream.job.task.works import Derived
from midstream.migration.contents import ports_of
from midstream.operators.box import Box

Conditions = tuple[Expression, ...]
"""Conditions on a stream's rows, in the names of its columns."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What a state keeps of a stream: rows that meet some conditions, and of each column where the state has it.

    `longest` is for how long (None: for ever); rows with a null in one of the columns `filled` are not among them.
    """

    alias: str
    stream: str
    state: str
    key: tuple[str, ...]
    longest: int | None
    conditions: Conditions
    columns: Mapping[str, str]
    filled: frozenset[str]
    sent: Route | None = None
    """By which route rows came to the slots in which they lie, if they were sent there after they had arrived.

    Rows that rest do not follow their partition groups to other slots: by no route they lie where they must.
    """
    hop: Hop | None = None
    """The hopping window that they are kept for: they begin to be valid at its boundaries, not at their times."""

    def lacks(self, wanted: WantedRows, nulls: Collection[str]) -> Iterator[str]:
        """Why the rows that a source would have kept are not all among these, if so; columns `nulls` have had some."""
        longest, stream = wanted.source.longest, wanted.source.stream
        same = self.hop is not None and wanted.source.window == self.hop
        if not same and self.longest is not None and (longest is None or longest > self.longest):
            yield "keeps rows for a shorter time"
        if self.hop is not None and stream.time not in self.columns:
            yield f"keeps rows of hopping windows without their times, column {stream.time}"
        yield from self.misses(wanted, nulls)

    def misses(self, wanted: WantedRows, nulls: Collection[str]) -> Iterator[str]:
        """Why rows that a source gives are not among these, or not whole, however old they are."""
        stream = wanted.source.stream
        for condition in self.conditions:
            if not implies(wanted.conditions, condition):
                yield f"keeps only rows with {condition}"
        for column in sorted(self.filled.intersection(nulls)):
            if not wanted.has_no_null(column):
                yield f"keeps no rows without {column}"
        if dropped := sorted(columns_read(wanted.source) - {*self.columns, stream.time}):
            names = ", ".join(dropped)
            keep = ", ".join(f'"{name}"' for name in dropped)
            yield f"keeps no column {names} (retain and keep = [{keep}] of stream {stream.name} do from now on)"

    def columns_of(self, source: p.SourceNode) -> dict[str, str]:
        """Where the columns of a source are found; a row's time is when it begins to be valid."""
        return {n: self.columns[_plain(source, n)] for n in source.schema.names if _plain(source, n) in self.columns}


@dataclass(frozen=True, slots=True)
class WantedRows:
    """What a source of a plan gives, as far as the plan can tell: rows that do not meet `conditions`, or have a null in
    a column of `filled`, go no further.
    """

    source: p.SourceNode
    conditions: Conditions = ()
    filled: frozenset[str] = frozenset()

    def has_no_null(self, column: str) -> bool:
        """Whether a row with a null in a column goes no further."""
        return column in self.filled or excludes_null(self.conditions, column)


@dataclass(frozen=True, slots=True)
class DerivedWindow:
    """What a window of a new query starts with: rows that began with a batch, and are kept for so long."""

    source: p.SourceNode
    rows: Derived
    lying: Lying
    begun: int
    longest: int | None
    passed: int
    """How far those were who keep the rows."""

    @property
    def filled(self) -> FilledWindow:
        """The window as one that is filled over several batches."""
        rows, lying = self.rows, self.lying
        where, longest, sooner = (lying.in_place, lying.key, lying.everywhere), self.source.longest, None
        if isinstance(self.source.window, Range) and rows.time is None and self.longest and longest:
            sooner = self.longest - longest
        told = rows.alias, rows.of, rows.columns, *where
        return FilledWindow(*told, time=rows.time, until=self.passed, sooner=sooner)


Others = Sequence[tuple[RunningQuery, Mapping[str, int]]]
"""Queries that keep windows, with the batches with which these began."""


def derived_windows(
    query: RunningQuery, known: Collection[str], others: Others, before: Manifest
) -> Iterator[DerivedWindow]:
    """What the windows of a new query start with, but for those `known`: the oldest rows, of the longest window.

    What outlives windows, as the newest rows of a key, follows from no window; and a routed join starts empty.
    """
    if not is_derivable(query):
        return
    for wanted in wanted_of(query):
        source, found = wanted.source, list[DerivedWindow]()
        nulls = before.streams.nulls.get(source.stream.name, ())
        for other, since, number, kept in _kept(wanted, others) if source.stream.alias not in known else ():
            if any(kept.lacks(wanted, nulls)) or (there := _lying(kept, wanted, query, other, number, before)) is None:
                continue
            names = query.name, source.stream.alias, other.name
            time = None if kept.hop is None else kept.columns[source.stream.time]
            rows = Derived(*names, kept.columns_of(source), *there.read(before.slots), time)
            passed = before.advanced_to.get(other.name, BEGINNING)
            found.append(DerivedWindow(source, rows, there, since[kept.alias], kept.longest, passed))
        if found:
            yield min(found, key=lambda f: (f.begun, -INFINITY if f.longest is None else -f.longest))


def first_whole(
    query: RunningQuery, found: Sequence[DerivedWindow], passed: Callable[[str], int], known: Mapping[str, int]
) -> int | None:
    """The first instant at which windows that are derived hold all rows, also if it has passed; None: not all are.

    Those who keep the rows have `passed` instants: of each they have at least what was valid then in their own windows.
    Of some windows the instant is `known`.
    """
    known_of = {f.rows.alias for f in found if f.begun == ALWAYS}.union(known)
    if known_of != {source.stream.alias for source in query.sources}:
        return None
    gone = [(f.source, passed(f.rows.of) - f.longest) for f in found if f.longest is not None]
    ends = [end_of(source, tick) for source, tick in gone if source.longest is not None]
    return max([*ends, *known.values()], default=BEGINNING)


def why_empty(query: RunningQuery, alias: str, others: Others, before: Manifest) -> str:
    """Why a window of a new query follows from nothing that is kept: what is missing where the least is."""
    if not is_derivable(query):
        return _why_not_derivable(query)
    reasons = []
    for wanted in wanted_of(query):
        nulls = before.streams.nulls.get(wanted.source.stream.name, ())
        for other, _, _, kept in _kept(wanted, others) if wanted.source.stream.alias == alias else ():
            lacking = list(kept.lacks(wanted, nulls)) or ["keeps rows in other slots"]
            reasons.append((len(lacking), f"query {other.name.partition('@')[0]} {' and '.join(lacking)}"))
    return min(reasons)[1] if reasons else "no query keeps rows of the stream"


def is_derivable(query: RunningQuery) -> bool:
    """Whether windows of a query follow from rows of its streams."""
    return not _why_not_derivable(query)


def _why_not_derivable(query: RunningQuery) -> str:
    if query.staged.windows:
        return "windows of routed joins are not derived"
    nodes = (node for fragment in query.staged.fragments for node in p.walk_physical(fragment.plan))
    for node in nodes:
        match node:
            case p.RowWindow():
                return "which rows are the newest depends on the order in which they came, and on rows of any age"
            case p.AssignWindow():
                return "what a sub-query gave before is not kept"
            case _ if node.outlives_windows:
                return f"{node.label} remembers more than its windows hold"
    return ""


def wanted_of(query: RunningQuery) -> Iterator[WantedRows]:
    """What a query would have kept of streams where they arrive."""
    for fragment in query.staged.fragments:
        if fragment.stage == 0:
            yield from wanted_rows(fragment.plan)


def _kept(wanted: WantedRows, others: Others) -> Iterator[tuple[RunningQuery, Mapping[str, int], int, KeptRows]]:
    """What others keep of the stream that a source reads, by fragment."""
    for other, since in others:
        for number, kept in kept_of(other):
            if kept.stream == wanted.source.stream.name:
                yield other, since, number, kept


def _lying(
    kept: KeptRows, wanted: WantedRows, query: RunningQuery, other: RunningQuery, fragment: int, before: Manifest
) -> Lying | None:
    """Where the rows lie that a new query starts with; None if that cannot be told.

    Rows lie in the slots in which they arrived for the query that keeps them. A source that does not read the key by
    which they arrive can have them anywhere.
    """
    stored = before.segments.get(other.name, {}).get(fragment, {})
    held = {s: [e for e in es if (e.state, e.key) == (kept.state, kept.key)] for s, es in stored.items()}
    arrived, new = (q.staged.routes.get(kept.stream, STAY) for q in (other, query))
    stays = kept.sent in (None, STAY)
    if stays and not (new.slots or set(new.key or ()) <= columns_read(wanted.source)):
        new = STAY
    at_site = kept.sent == STAY and (arrived.slots or arrived.everywhere)
    old = arrived if kept.sent is None or at_site else kept.sent
    readable = set(new.key or ()) <= kept.columns.keys()
    key = tuple(kept.columns[name] for name in new.key or ()) if readable else None
    slots = before.slots
    in_place = stays and (new == old or (new == STAY and not old.everywhere))
    if not in_place and (old.slots or new.slots or slots.shared or slots.doubled is not None or not readable):
        return None
    if not in_place and old.everywhere:
        held = dict(list(held.items())[:1])
    return Lying(held, in_place, key, new.everywhere)


def kept_of(query: RunningQuery) -> Iterator[tuple[int, KeptRows]]:
    """What a query keeps of streams, by fragment; windows of routed joins have segments of their own."""
    if not query.staged.windows:
        for number, box in query.boxes.items():
            yield from ((number, kept) for kept in kept_rows(box))


def columns_read(source: p.SourceNode) -> frozenset[str]:
    """The columns of its stream that a source gives."""
    return frozenset(_plain(source, name) for name in source.schema.names)


def kept_rows(box: Box) -> Iterator[KeptRows]:
    """What the operators of a fragment keep of streams."""
    for node, operator in zip(box.nodes, box.operators, strict=True):
        for port, state in ports_of(operator):
            below = None if port is None else _source_below(node.inputs[port])
            if below is None:
                continue
            source, conditions, columns, route = below
            hop = source.window if isinstance(source.window, Hop) else None
            longest = source.longest if hop is None else _kept_at_least(hop)
            if not isinstance(source.window, Range | Unbounded | Hop) or (hop is not None and longest is None):
                continue  # of other windows the validity of a row does not tell its time
            there = {name: column for column, name in columns.items()}
            filled = () if has_null_keys(operator, state) else (there[name] for name in state.key if name in there)
            if not has_null_keys(operator, state) and not set(state.key) <= there.keys():
                continue
            yield KeptRows(
                source.stream.alias,
                source.stream.name,
                state.id,
                state.key,
                longest,
                conditions,
                columns,
                frozenset(filled),
                STAY if state.rests else route,
                hop,
            )


def _kept_at_least(hop: Hop) -> int | None:
    """For how many ticks a hopping window keeps every row, at least; None: not all rows, or that is not a number."""
    counted = hop.zone is None and not (hop.cumulative or hop.takes_in_end or hop.months)
    return hop.size + 1 if counted and hop.slide <= hop.size else None


def _source_below(node: p.PhysicalNode) -> tuple[p.SourceNode, Conditions, dict[str, str], Route | None] | None:
    """The source below selections and projections, what rows had to meet, and where its columns are found.

    Last, how its rows came to the state's fragment, if that is not the one in which they arrive.
    """
    columns = {name: name for name in node.schema.names}
    predicates: list[Expression] = []
    route: Route | None = None
    while isinstance(node, Received) or not isinstance(node, p.SourceNode):
        match node:
            case Received():
                route = route or node.route
                node = node.producer
                continue
            case p.Filter():
                predicates += conjuncts(node.predicate)
            case p.Compute():
                passed = {c.name: c.expression.name for c in node.columns if isinstance(c.expression, Column)}
                if any(passed.get(name) != name for predicate in predicates for name in columns_of(predicate)):
                    return None
                columns = {passed[name]: there for name, there in columns.items() if name in passed}
            case _:
                return None
        node = node.inputs[0]
    conditions = tuple(_in_stream(node, predicate) for predicate in predicates)
    return node, conditions, {_plain(node, name): there for name, there in columns.items()}, route


def wanted_rows(plan: p.PhysicalNode) -> Iterator[WantedRows]:
    """What a fragment would have kept of the streams that it reads."""
    stack: list[tuple[p.PhysicalNode, tuple[Expression, ...], tuple[str, ...]]] = [(plan, (), ())]
    while stack:
        node, predicates, keys = stack.pop()
        match node:
            case Received():
                continue
            case p.SourceNode():
                names = frozenset(node.schema.names)
                own = [predicate for predicate in predicates if columns_of(predicate) <= names]
                filled = frozenset(_plain(node, name) for name in keys if name in names)
                yield WantedRows(node, tuple(_in_stream(node, predicate) for predicate in own), filled)
            case p.Filter():
                stack.append((node.input, (*predicates, *conjuncts(node.predicate)), keys))
            case p.Compute():
                same = {
                    c.name for c in node.columns if isinstance(c.expression, Column) and c.expression.name == c.name
                }
                known = tuple(predicate for predicate in predicates if columns_of(predicate) <= same)
                stack.append((node.input, known, tuple(key for key in keys if key in same)))
            case p.HashJoin() if not node.nulls_equal:
                stack += [(node.left, (), node.left_key), (node.right, (), node.right_key)]
            case _:
                stack += [(child, (), ()) for child in node.inputs]


def _in_stream(source: p.SourceNode, predicate: Expression) -> Expression:
    names = [name for name in columns_of(predicate) if name in source.schema.names]
    plain = {name: Column(_plain(source, name), source.schema.field(name).type) for name in names}
    return substitute(predicate, dict(plain))


def _plain(source: p.SourceNode, name: str) -> str:
    return name.removeprefix(f"{source.stream.alias}.")
