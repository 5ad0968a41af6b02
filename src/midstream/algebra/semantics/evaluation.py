"""The oracle: what a query means, computed the long way.

A relation is a list of elements, rows with the half-open interval over which they are valid; its snapshot at an
instant is the multiset of rows valid then. Windows set intervals; selection, projection, union and inner join carry
them over (a joined row is valid while all its parts are). Every other operator is applied to its inputs' snapshots,
once for each stretch of time in which none of them changes. Nothing here is shared with the operators that run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import pairwise, zip_longest

import pyarrow as pa

from midstream.algebra.declarations import ARRIVAL, Catalog
from midstream.algebra.expressions import Expression, columns_of
from midstream.algebra.plan import (
    Aggregate,
    Difference,
    Distinct,
    Intersect,
    Join,
    Match,
    MultiJoin,
    Over,
    Project,
    Relation,
    RowsOverStream,
    Select,
    Sequence,
    Stream,
    ToStream,
    Union,
    Unnested,
    Window,
    instants,
)
from midstream.algebra.semantics.aggregates import aggregate_evaluator
from midstream.algebra.semantics.inner_joins import equated_columns, is_inner_join, joined_inputs, pairs
from midstream.algebra.semantics.over import over_evaluator
from midstream.algebra.semantics.patterns import matches
from midstream.algebra.semantics.scalars import Evaluator, evaluator
from midstream.algebra.semantics.sequences import Arrival, sequenced
from midstream.algebra.semantics.values import (
    NANOSECONDS,
    Row,
    arrow_array,
    python_values,
    row_identity,
    row_order,
    time_ticks,
)
from midstream.algebra.semantics.windows import Element, Tuple, boundaries_of, in_order, windowed
from midstream.algebra.time import FARTHEST, INFINITY
from midstream.algebra.windows import Hop, Range
from midstream.errors import InputError, InternalError, QueryError

Snapshot = list[Row]


def evaluate(plan: Relation, inputs: Mapping[str, pa.Table], catalog: Catalog) -> pa.Table:
    """The plan's columns and `valid_from`, `valid_to` (null: for ever), or `ts` if the plan makes a stream."""
    oracle = Oracle(inputs, catalog)
    if isinstance(plan, ToStream):
        return _stream_table(plan, oracle.changes(plan))
    elements = oracle.elements(plan)
    return _relation_table(plan, elements if keeps_intervals(plan) else coalesced(elements))


def keeps_intervals(plan: Relation) -> bool:
    """Whether the algebra itself says over which intervals results are valid, not only what each snapshot holds."""
    match plan:
        case Stream() | Window() | Sequence() | Match():
            return True
        case Select() | Project() | RowsOverStream() | Unnested() | Union() | MultiJoin() | Join(kind="inner"):
            return all(keeps_intervals(node) for node in plan.inputs)
        case _:
            return False


def snapshot(elements: list[Element], instant: int) -> Snapshot:
    """The rows valid at an instant."""
    return [row for row, start, end in elements if start <= instant < end]


def moments(*relations: list[Element]) -> list[int]:
    """The instants at which any of the relations may change, in order; the last may be infinity."""
    return sorted({moment for elements in relations for element in elements for moment in element[1:]})


def coalesced(elements: list[Element]) -> list[Element]:
    """The same snapshots in as few elements as can be: what ends and starts again at the same instant goes on.

    Among equal rows the one that started first ends first.
    """
    balance: dict[Hashable, Counter[int]] = {}
    rows: dict[Hashable, Row] = {}
    for row, start, end in elements:
        key = row_identity(row)
        rows.setdefault(key, row)
        balance.setdefault(key, Counter()).update({start: 1})
        balance[key].subtract({end: 1})
    result = []
    for key, changes in balance.items():
        starts = sorted((+changes).elements())
        ends = sorted((-changes).elements())
        result += [Element(rows[key], start, end) for start, end in zip(starts, ends, strict=True)]
    return result


class Oracle:
    """Evaluates plans over finite inputs."""

    def __init__(self, inputs: Mapping[str, pa.Table], catalog: Catalog) -> None:
        self.inputs = inputs
        self.catalog = catalog

    def elements(self, plan: Relation) -> list[Element]:
        """The relation as elements; how rows are cut into intervals is canonical only where `keeps_intervals`."""
        match plan:
            case Stream():
                return [Element(row, time, time + 1) for time, row in self._arrivals(plan)]
            case Window(inner, spec, bounds):
                tick = 1 if plan.domain.is_integer else NANOSECONDS["us"]
                found = windowed(self.tuples(inner), spec, inner.schema.names, bounds is not None, tick)
                return found if bounds is None else [_with_times(plan, element) for element in found]
            case Sequence():
                return [Element(row, time, time + 1) for time, row, _ in self.arrivals(plan)]
            case Match(inner):
                return matches(plan, self.tuples(inner), self.catalog)
            case RowsOverStream(inner):
                return self._over_stream(plan, len(inner.schema))
            case Select(inner) if is_inner_join(inner):
                return self._inner_join(plan)
            case Select(inner, predicate):
                holds = self._evaluator(predicate, inner)
                return [element for element in self.elements(inner) if holds(element.row) is True]
            case Project(inner, columns):
                parts = [self._evaluator(column.expression, inner) for column in columns]
                return [Element(tuple(part(row) for part in parts), *when) for row, *when in self.elements(inner)]
            case Unnested(inner):
                rows = self._unnested(plan)
                return [Element(new, *when) for row, *when in self.elements(inner) for new in rows(row)]
            case Union(united):
                return [element for relation in united for element in self.elements(relation)]
            case _ if is_inner_join(plan):
                return self._inner_join(plan)
            case ToStream():
                raise InternalError("a stream is made only at the top of a query")
            case _:
                return self._by_snapshots(plan)

    def arrivals(self, plan: Relation) -> list[Arrival]:
        """A stream, or what is made of streams without windows, each tuple with the row at which it happens."""
        match plan:
            case Stream():
                return [Arrival(time, row, (plan.name, i)) for i, (time, row) in enumerate(self._arrivals(plan))]
            case Select(inner, predicate):
                holds = self._evaluator(predicate, inner)
                return [arrival for arrival in self.arrivals(inner) if holds(arrival.row) is True]
            case Project(inner, columns):
                parts = [self._evaluator(column.expression, inner) for column in columns]
                return [Arrival(t, tuple(part(row) for part in parts), at) for t, row, at in self.arrivals(inner)]
            case Unnested(inner):
                rows = self._unnested(plan)
                return [Arrival(t, new, at) for t, row, at in self.arrivals(inner) for new in rows(row)]
            case Union(united):
                return [arrival for relation in united for arrival in self.arrivals(relation)]
            case Sequence(first, second):
                return sequenced(plan, self.arrivals(first), self.arrivals(second), self.catalog)
        raise InternalError(f"a sequence takes streams, not {plan.label}")

    def tuples(self, plan: Relation) -> list[Tuple]:
        """The relation looked at instant by instant: one tuple for every instant at which a row is valid."""
        rhythm = instants(plan)
        if rhythm is None:
            raise QueryError(
                "this relation has one element per microsecond",
                hint="a window over it, or RSTREAM, needs [NOW] or hopping windows below",
            )
        result = []
        for row, start, end in self.elements(plan):
            if end == INFINITY:
                raise QueryError("this relation never ends, so it cannot be looked at instant by instant")
            result += [Tuple(instant, row) for instant in _looks(rhythm, start, end)]
        return result

    def changes(self, plan: ToStream) -> list[Tuple]:
        """The stream that a relation-to-stream operator makes."""
        if plan.kind == "rstream":
            return self.tuples(plan.input)
        if plan.kind == "keep":
            return []
        elements = self.elements(plan.input)
        result = []
        for moment in moments(elements):
            if moment == INFINITY:
                continue
            before, now = snapshot(elements, moment - 1), snapshot(elements, moment)
            changed = _without(now, before) if plan.kind == "istream" else _without(before, now)
            result += [Tuple(moment, row) for row in changed]
        return result

    def _arrivals(self, stream: Stream) -> list[Tuple]:
        """The stream's tuples in order; those without a usable time are left out."""
        if stream.name not in self.inputs:
            raise InputError(
                f"there is no input for stream {stream.name}", detail=f"inputs are {', '.join(self.inputs) or 'none'}"
            )
        table = self.inputs[stream.name]
        if ARRIVAL in stream.columns.names and ARRIVAL not in table.column_names:
            table = table.append_column(ARRIVAL, pa.array(range(table.num_rows), pa.int64()))
        missing = [name for name in stream.columns.names if name not in table.column_names]
        if missing:
            raise InputError(f"the input of stream {stream.name} has no column {', '.join(missing)}")
        columns = [table.column(field.name).cast(field.type) for field in stream.columns]
        times = time_ticks(columns[stream.columns.get_field_index(stream.time)], stream.time)
        rows = zip(*(python_values(column) for column in columns), strict=True)
        timed = [Tuple(time, row) for time, row in zip(times, rows, strict=True) if time is not None]
        return in_order([arrival for arrival in timed if -FARTHEST < arrival.time < FARTHEST])

    def _inner_join(self, plan: Relation) -> list[Element]:
        """One input after the other; each condition is asked as soon as all its columns are there."""
        inputs, conditions = joined_inputs(plan)
        found, names = [Element((), -INFINITY, INFINITY)], []
        for relation in inputs:
            names += relation.schema.names
            ready = [condition for condition in conditions if columns_of(condition) <= set(names)]
            conditions = [condition for condition in conditions if condition not in ready]
            holds = [evaluator(condition, names, self.catalog) for condition in ready]
            found = pairs(found, self.elements(relation), holds, equated_columns(ready, names, len(relation.schema)))
        return found

    def _over_stream(self, plan: RowsOverStream, width: int) -> list[Element]:
        """All rows of the stream at once: no frame reaches beyond its own row's time."""
        timed = [(*row, time) for time, row in self.tuples(plan.input)]
        found = over_evaluator(plan, self.catalog)(timed)
        return [Element((*row[:width], *row[width + 1 :]), row[width], row[width] + 1) for row in found]

    def _by_snapshots(self, plan: Relation) -> list[Element]:
        relations = [self.elements(relation) for relation in plan.inputs]
        twin = self._relational_twin(plan)
        result = []
        for start, end in pairwise(moments(*relations)):
            result += [Element(row, start, end) for row in twin(*(snapshot(each, start) for each in relations))]
        return coalesced(result)

    def _relational_twin(self, plan: Relation) -> Callable[..., Snapshot]:
        """What the operator does to plain multisets of rows."""
        match plan:
            case Distinct():
                return _distinct
            case Difference():
                return _without
            case Intersect():
                return lambda left, right: _without(left, _without(left, right))
            case Aggregate():
                return self._aggregate(plan)
            case Over():
                return over_evaluator(plan, self.catalog)
            case Join(kind="semi" | "anti"):
                return self._half_join(plan)
            case Join():
                return self._outer_join(plan)
            case _:
                raise InternalError(f"the oracle does not know {plan.label}")

    def _aggregate(self, plan: Aggregate) -> Callable[[Snapshot], Snapshot]:
        names = plan.input.schema.names
        keys = [self._evaluator(key.expression, plan.input) for key in plan.keys]
        aggregates = [aggregate_evaluator(aggregate.call, names, self.catalog) for aggregate in plan.aggregates]

        def twin(rows: Snapshot) -> Snapshot:
            groups: dict[Hashable, tuple[Row, Snapshot]] = {}
            for row in rows:
                key = tuple(part(row) for part in keys)
                groups.setdefault(row_identity(key), (key, []))[1].append(row)
            return [(*key, *(aggregate(group) for aggregate in aggregates)) for key, group in groups.values()]

        return twin

    def _half_join(self, plan: Join) -> Callable[[Snapshot, Snapshot], Snapshot]:
        holds = self._evaluator(plan.on, plan.left, plan.right)
        wanted = plan.kind == "semi"
        return lambda left, right: [a for a in left if any(holds(a + b) is True for b in right) is wanted]

    def _outer_join(self, plan: Join) -> Callable[[Snapshot, Snapshot], Snapshot]:
        holds = self._evaluator(plan.on, plan.left, plan.right)
        no_left, no_right = ((None,) * len(side.schema) for side in plan.inputs)

        def twin(left: Snapshot, right: Snapshot) -> Snapshot:
            pairs = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if holds(a + b) is True]
            result = [left[i] + right[j] for i, j in pairs]
            if plan.kind in ("left", "full"):
                met = {i for i, _ in pairs}
                result += [a + no_right for i, a in enumerate(left) if i not in met]
            if plan.kind in ("right", "full"):
                met = {j for _, j in pairs}
                result += [no_left + b for j, b in enumerate(right) if j not in met]
            return result

        return twin

    def _unnested(self, plan: Unnested) -> Callable[[Row], Snapshot]:
        """What becomes of a row: one row for each place in its longest list."""
        lists = [(self._evaluator(one.expression, plan.input), one.expression.type.value_type) for one in plan.lists]

        def rows(row: Row) -> Snapshot:
            elements = [python_values(pa.array(read(row) or [], type_)) for read, type_ in lists]
            return [(*row, *new) for new in zip_longest(*elements)]

        return rows

    def _evaluator(self, expression: Expression, *relations: Relation) -> Evaluator:
        names = [name for relation in relations for name in relation.schema.names]
        return evaluator(expression, names, self.catalog)


def _with_times(plan: Window, element: Element) -> Element:
    """An element whose last two values, the bounds of its window, are values of the plan's time."""
    *row, start, end = element.row
    return element._replace(row=(*row, *python_values(_times(plan, [start, end]))))


def _looks(rhythm: Range | Hop, start: int, end: int) -> Iterator[int]:
    return iter(range(start, end)) if isinstance(rhythm, Range) else boundaries_of(rhythm).within(start, end)


def _distinct(rows: Snapshot) -> Snapshot:
    return list({row_identity(row): row for row in rows}.values())


def _without(left: Snapshot, right: Snapshot) -> Snapshot:
    """Multiset difference: every row of `right` takes away one equal row of `left`."""
    taken = Counter(row_identity(row) for row in right)
    kept = []
    for row in left:
        key = row_identity(row)
        if taken[key] > 0:
            taken[key] -= 1
        else:
            kept.append(row)
    return kept


def _relation_table(plan: Relation, elements: list[Element]) -> pa.Table:
    ordered = sorted(elements, key=lambda element: (element.start, row_order(element.row), element.end))
    columns = _columns(plan, [element.row for element in ordered])
    starts = _times(plan, [element.start for element in ordered])
    ends = _times(plan, [None if element.end == INFINITY else element.end for element in ordered])
    return pa.Table.from_arrays([*columns, starts, ends], names=[*plan.schema.names, "valid_from", "valid_to"])


def _stream_table(plan: Relation, stream: list[Tuple]) -> pa.Table:
    ordered = sorted(stream, key=lambda tuple_: (tuple_.time, row_order(tuple_.row)))
    columns = _columns(plan, [tuple_.row for tuple_ in ordered])
    times = _times(plan, [tuple_.time for tuple_ in ordered])
    return pa.Table.from_arrays([*columns, times], names=[*plan.schema.names, "ts"])


def _columns(plan: Relation, rows: list[Row]) -> list[pa.Array]:
    return [arrow_array([row[i] for row in rows], field.type) for i, field in enumerate(plan.schema)]


def _times(plan: Relation, ticks: list[int | None] | list[int]) -> pa.Array:
    return pa.array(ticks, pa.int64()).cast(plan.domain.output_type)
