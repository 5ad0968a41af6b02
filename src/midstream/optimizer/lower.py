"""From logical to physical: keys become columns, columns that nobody reads disappear, slices get their grid.

Which columns a state keeps depends on the inputs it joins and on the query, never on the order of joins around it, so
that equal contents have equal names in every plan of a query.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.emission import Emission
from midstream.algebra.expressions import (
    TRUE,
    Column,
    Expression,
    Named,
    columns_of,
    conjuncts,
)
from midstream.algebra.physical import routed
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
    RoutedJoins,
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
from midstream.algebra.windows import ColumnOrder, Hop, Rows, SessionGap, Until
from midstream.errors import InternalError
from midstream.optimizer.probing import (
    Names,
    columns_read,
    finished_route,
    key_name,
    key_names,
    route_of,
    split_condition,
)
from midstream.optimizer.row_identity import RowReader, row_readers

Asked = tuple[RowReader, ...]
"""The rows that sequences above ask for."""


def lower(plan: Relation, emission: Emission) -> p.PhysicalNode:
    """The physical plan of a prepared logical plan; its columns are the plan's, in the plan's order."""
    node = _Lowering(emission.grid).visit(plan, frozenset(plan.schema.names))
    return _arranged(node, plan.schema.names)


class _Lowering:
    def __init__(self, grid: Hop) -> None:
        self.grid = grid

    def visit(self, plan: Relation, needed: Names) -> p.PhysicalNode:
        """A node whose columns are exactly the needed ones."""
        match plan:
            case Stream():
                return p.SourceNode(_schema(plan.schema, needed), plan)
            case Window():
                return self._window(plan, needed)
            case Select(child, predicate):
                inner = self.visit(child, needed | columns_of(predicate))
                return p.Filter(_schema(inner.schema, needed), inner, predicate)
            case Project(child, columns):
                return self._project(child, columns, needed)
            case Unnested():
                return self._unnest(plan, needed)
            case Join(kind="inner"):
                return self._inner_join(plan, needed)
            case Join(kind="semi"):
                return self._semi_join(plan, needed)
            case Join():
                return self._outer_join(plan, needed)
            case MultiJoin():
                return self._multiway(plan, needed)
            case Distinct(child):
                whole = self.visit(child, frozenset(child.schema.names))
                return _pruned(p.Deduplicate(whole.schema, whole), needed)
            case Aggregate():
                return _pruned(self._aggregate(plan), needed)
            case Match():
                own = _arranged(self.visit(plan.input, frozenset(plan.input.schema.names)), plan.input.schema.names)
                return _pruned(p.MatchRows(plan.schema, own, plan.keys, plan), needed)
            case Over() | RowsOverStream():
                return _pruned(self._over(plan), needed)
            case Union(united):
                return self._union(united, needed)
            case Difference(left, right):
                return self._set_operation("difference", left, right, needed)
            case Intersect(left, right):
                return self._set_operation("intersect", left, right, needed)
            case Sequence():
                return self._sequence(plan, needed)
            case ToStream(child, kind):
                return self._to_stream(child, kind)
        raise InternalError(f"no physical form of {type(plan).__name__}")

    def _window(self, plan: Window, needed: Names) -> p.PhysicalNode:
        child, spec = plan.input, plan.spec
        everything = frozenset(child.schema.names)
        bounds = plan.bounds if needed & frozenset(plan.bounds or ()) else None
        if isinstance(spec, Rows):
            # Ties are broken by all columns, so none can be left out below a row window.
            inner = _arranged(self._elements(child, everything), child.schema.names)
            return _pruned(p.RowWindow(inner.schema, inner, spec.partition_by, spec, self.grid), needed)
        if isinstance(spec, SessionGap):
            inner = self._elements(child, everything & (needed | frozenset(spec.partition_by)))
            return _pruned(
                p.SessionWindow(_bounded(plan, inner, bounds), inner, spec.partition_by, spec, bounds), needed
            )
        below = needed | {spec.column} if isinstance(spec, Until) else needed
        if isinstance(child, Stream):
            inner = p.SourceNode(_schema(child.schema, below), child, spec)
        else:
            inner = self._elements(child, everything & below)
            inner = p.AssignWindow(inner.schema, inner, spec)
        if bounds is None:
            return inner if below == needed else _pruned(inner, needed)
        assert isinstance(spec, Hop)
        kind = p.WindowBounds if spec.size <= spec.slide else p.OverlappingBounds
        return _pruned(kind(_bounded(plan, inner, bounds), inner, spec, bounds), needed)

    def _elements(self, child: Relation, needed: Names) -> p.PhysicalNode:
        """What a window looks at: a stream's tuples, or the instants of a relation."""
        inner = self.visit(child, needed)
        if isinstance(child, Stream):
            return inner
        looked_at = instants(child)
        return p.Instants(inner.schema, inner, looked_at if isinstance(looked_at, Hop) else None)

    def _project(self, child: Relation, columns: tuple[Named, ...], needed: Names) -> p.PhysicalNode:
        kept = tuple(c for c in columns if c.name in needed) or columns[:1]
        inner = self.visit(child, columns_read(c.expression for c in kept))
        return p.Compute(pa.schema([pa.field(c.name, c.expression.type) for c in kept]), inner, kept)

    def _unnest(self, plan: Unnested, needed: Names, asked: Asked = ()) -> p.PhysicalNode:
        """All lists are read, because the longest counts, though perhaps not all of their elements."""
        below = needed & frozenset(plan.input.schema.names)
        inner = self._with_rows(plan.input, below | columns_read(one.expression for one in plan.lists), asked)
        elements = [plan.schema.field(one.name) for one in plan.lists]
        return p.Unnest(_schema(pa.schema([*inner.schema, *elements]), needed | _hidden(asked)), inner, plan.lists)

    def _inner_join(self, plan: Join, needed: Names) -> p.PhysicalNode:
        split = split_condition(plan.on, plan.left, plan.right)
        left = self._keyed(plan.left, split.left, needed | split.residual_columns)
        right = self._keyed(plan.right, split.right, needed | split.residual_columns)
        schema = _schema(pa.schema([*left.schema, *right.schema]), needed)
        return p.HashJoin(
            schema, left, right, key_names(split.left), key_names(split.right), split.nulls_equal, split.residual
        )

    def _semi_join(self, plan: Join, needed: Names) -> p.PhysicalNode:
        split = split_condition(plan.on, plan.left, plan.right)
        if split.residual is not None or not split.left:
            return self._outer_join(plan, needed)
        # Equal keys only: a join with the right side's different keys, which never doubles and never waits.
        left = self._keyed(plan.left, split.left, needed)
        keys = self._keyed(plan.right, split.right, frozenset())
        once = p.Deduplicate(keys.schema, keys)
        schema = _schema(left.schema, needed)
        return p.HashJoin(schema, left, once, key_names(split.left), key_names(split.right), split.nulls_equal, None)

    def _outer_join(self, plan: Join, needed: Names) -> p.PhysicalNode:
        split = split_condition(plan.on, plan.left, plan.right)
        left = self._keyed(plan.left, split.left, needed | split.residual_columns)
        right = self._keyed(plan.right, split.right, needed | split.residual_columns)
        schema = _schema(pa.schema([*left.schema, *right.schema]), needed)
        keys = key_names(split.left), key_names(split.right)
        return p.OuterJoin(schema, left, right, plan.kind, *keys, split.nulls_equal, split.residual, self.grid)

    def _multiway(self, plan: MultiJoin, needed: Names) -> p.PhysicalNode:
        conditions = conjuncts(plan.on)
        wanted = needed | columns_read(conditions)
        schemas = [r.schema for r in plan.joined]
        extra: list[dict[str, Expression]] = [{} for _ in plan.joined]
        routes = []
        for i, order in enumerate(plan.orders):
            routes.append(route_of(i, order, schemas, conditions, wanted, extra))
        inputs = tuple(
            self._keyed(relation, tuple(extra[i].values()), wanted) for i, relation in enumerate(plan.joined)
        )
        steps = tuple(tuple(finished_route(i, route, inputs)) for i, route in enumerate(routes))
        schema = _schema(pa.schema([f for node in inputs for f in node.schema]), needed)
        if isinstance(plan, RoutedJoins):
            return routed.RoutedJoin(schema, inputs, steps, plan.on, plan.placements)
        return p.MultiwayJoin(schema, inputs, steps, plan.on)

    def _keyed(
        self, relation: Relation, keys: Iterable[Expression], needed: Names, asked: Asked = ()
    ) -> p.PhysicalNode:
        """A relation with its needed columns, a column for every key, and the rows that are asked for."""
        keys = tuple(keys)
        own = needed & frozenset(relation.schema.names)
        plain = frozenset(k.name for k in keys if isinstance(k, Column))
        computed = {key_name(k): k for k in keys if not isinstance(k, Column)}
        inner = self._with_rows(relation, own | plain | columns_read(computed.values()), asked)
        if not computed:
            return inner
        wanted = own | plain | _hidden(asked)
        kept = [Named(f.name, Column(f.name, f.type)) for f in inner.schema if f.name in wanted]
        columns = sorted([*kept, *(Named(n, e) for n, e in computed.items())], key=lambda c: c.name)
        return p.Compute(pa.schema([pa.field(c.name, c.expression.type) for c in columns]), inner, tuple(columns))

    def _aggregate(self, plan: Aggregate) -> p.PhysicalNode:
        columns: dict[str, Expression] = {key.name: key.expression for key in plan.keys}
        aggregates = []
        for aggregate in plan.aggregates:
            call = aggregate.call
            names = tuple(_argument(columns, a) for a in call.args)
            where = None if call.where is None else _argument(columns, call.where)
            aggregates.append(p.AggregateColumn(aggregate.name, call, names, where))
        if not columns:
            columns["#row"] = TRUE
        inner = self.visit(plan.input, columns_read(columns.values()))
        named = tuple(Named(name, expression) for name, expression in columns.items())
        schema = pa.schema([pa.field(c.name, c.expression.type) for c in named])
        computed = p.Compute(schema, inner, named)
        keys = tuple(key.name for key in plan.keys)
        return p.GroupAggregate(plan.schema, computed, keys, tuple(aggregates), self.grid)

    def _over(self, plan: Over | RowsOverStream) -> p.PhysicalNode:
        """All columns of the input are kept: ties are broken by them."""
        running = isinstance(plan, RowsOverStream) and plan.running
        own = plan.input.schema.names
        columns: dict[str, Expression] = {f.name: Column(f.name, f.type) for f in plan.input.schema}
        keys = tuple(_argument(columns, key) for key in plan.keys)
        order = tuple(ColumnOrder(_argument(columns, o.key), o.descending, o.nulls == "FIRST") for o in plan.order)
        computed = []
        for over in plan.columns:
            names = tuple(_argument(columns, a, f"#{over.name}" if running else None) for a in over.call.args)
            where = None if over.call.where is None else _argument(columns, over.call.where)
            computed.append(p.OverColumn(over, names, where))
        inner = _arranged(self.visit(plan.input, frozenset(own)), own)
        if len(columns) > len(own):
            named = tuple(Named(name, expression) for name, expression in columns.items())
            inner = p.Compute(pa.schema([pa.field(c.name, c.expression.type) for c in named]), inner, named)
        if isinstance(plan, RowsOverStream):
            return p.OverStream(plan.schema, inner, keys, order, tuple(own), tuple(computed), running)
        return p.OverPartition(plan.schema, inner, keys, order, tuple(own), tuple(computed), self.grid)

    def _union(self, united: tuple[Relation, ...], needed: Names, asked: Asked = ()) -> p.PhysicalNode:
        places = [i for i, name in enumerate(united[0].schema.names) if name in needed] or [0]
        nodes = []
        for relation in united:
            names = [relation.schema.names[i] for i in places]
            node = self._with_rows(relation, frozenset(names), asked)
            nodes.append(_arranged(node, [*names, *sorted(_hidden(asked))]))
        return p.Concatenate(nodes[0].schema, tuple(nodes))

    def _set_operation(self, kind: str, left: Relation, right: Relation, needed: Names) -> p.PhysicalNode:
        here = _arranged(self.visit(left, frozenset(left.schema.names)), left.schema.names)
        there = _arranged(self.visit(right, frozenset(right.schema.names)), right.schema.names)
        node = p.SetOperation(here.schema, here, there, kind, self.grid)  # type: ignore[arg-type]
        return _pruned(node, needed)

    def _sequence(self, plan: Sequence, needed: Names, asked: Asked = ()) -> p.PhysicalNode:
        wanted = needed | _hidden(asked)
        readers = row_readers(plan, asked)
        sides: tuple[Asked, Asked] = ((), ()) if readers is None else ((readers[0],), (readers[1],))
        # A result happens at the row of its later part, so that side answers for it.
        first, second = (sides[0] + asked, sides[1]) if plan.waits else (sides[0], sides[1] + asked)
        left = self._in_order(plan.first, [a for a, _ in plan.on], first)
        right = self._in_order(plan.second, [b for _, b in plan.on], second)
        schema = _schema(pa.schema([*left.schema, *right.schema]), wanted | columns_of(plan.condition))
        node = p.FollowedBy(
            schema,
            left,
            right,
            plan.mode,
            tuple(key_name(a) for a, _ in plan.on),
            tuple(key_name(b) for _, b in plan.on),
            plan.within,
            plan.condition if conjuncts(plan.condition) else None,
            plan.outer,
            plan.order,
            None if readers is None else (readers[0].columns, readers[1].columns),
            tuple(reader.columns for reader in asked),
        )
        return _pruned(node, wanted)

    def _in_order(self, relation: Relation, keys: list[Expression], asked: Asked) -> p.PhysicalNode:
        """A relation with all its columns in their order, then its keys and rows: ties are broken by all of them."""
        own, rows = relation.schema.names, [name for reader in asked for name in reader.columns.names]
        node = self._keyed(relation, keys, frozenset(own), asked)
        computed = [name for name in node.schema.names if name not in own and name not in rows]
        return _arranged(node, [*own, *computed, *rows])

    def _with_rows(self, plan: Relation, needed: Names, asked: Asked) -> p.PhysicalNode:
        """A node with the needed columns of a relation without windows, and those that say at which rows it happens."""
        if not asked:
            return self.visit(plan, needed)
        match plan:
            case Stream():
                rows = [value for reader in asked for value in reader.values(plan)]
                return self._project(plan, (*_unchanged(_schema(plan.schema, needed)), *rows), needed | _hidden(asked))
            case Select(child, predicate):
                inner = self._with_rows(child, needed | columns_of(predicate), asked)
                return p.Filter(_schema(inner.schema, needed | _hidden(asked)), inner, predicate)
            case Project(child, columns):
                kept = tuple(c for c in columns if c.name in needed) or columns[:1]
                inner = self._with_rows(child, columns_read(c.expression for c in kept), asked)
                rows = _unchanged(_schema(inner.schema, _hidden(asked)))
                everything = (*kept, *rows)
                return p.Compute(
                    pa.schema([pa.field(c.name, c.expression.type) for c in everything]), inner, everything
                )
            case Unnested():
                return self._unnest(plan, needed, asked)
            case Union(united):
                return self._union(united, needed, asked)
            case Sequence():
                return self._sequence(plan, needed, asked)
        raise InternalError(f"{type(plan).__name__} does not happen at rows of streams")

    def _to_stream(self, child: Relation, kind: str) -> p.PhysicalNode:
        inner = _arranged(self.visit(child, frozenset(child.schema.names)), child.schema.names)
        if kind == "rstream":
            looked_at = instants(child)
            return p.Instants(inner.schema, inner, looked_at if isinstance(looked_at, Hop) else None)
        return p.Changes(inner.schema, inner, kind)  # type: ignore[arg-type]


def _argument(columns: dict[str, Expression], expression: Expression, own: str | None = None) -> str:
    """The column an aggregate's argument is computed into, shared between aggregates and keys unless it has its own."""
    if own is not None:
        columns[own] = expression
        return own
    for name, known in columns.items():
        if known == expression:
            return name
    name = expression.name if isinstance(expression, Column) else f"#{expression}"
    while name in columns:
        name = f"#{name}"
    columns[name] = expression
    return name


def _schema(schema: pa.Schema, needed: Names) -> pa.Schema:
    """The needed columns in order of name: one order for all plans of a query. At least one, so that rows count."""
    kept = [f for f in schema if f.name in needed] or [min(schema, key=_weight)]
    return pa.schema(sorted(kept, key=lambda f: f.name))


def _weight(field: pa.Field) -> tuple[bool, str]:
    return not pa.types.is_primitive(field.type), field.name


def _bounded(plan: Window, inner: p.PhysicalNode, bounds: tuple[str, str] | None) -> pa.Schema:
    """The columns of a node, and those of the bounds of a window."""
    return pa.schema([*inner.schema, *(plan.schema.field(name) for name in bounds or ())])


def _hidden(asked: Asked) -> Names:
    return frozenset(name for reader in asked for name in reader.columns.names)


def _unchanged(schema: pa.Schema) -> list[Named]:
    return [Named(f.name, Column(f.name, f.type)) for f in schema]


def _pruned(node: p.PhysicalNode, needed: Names) -> p.PhysicalNode:
    if needed >= frozenset(node.schema.names):
        return node
    return _arranged(node, [name for name in node.schema.names if name in needed] or node.schema.names[:1])


def _arranged(node: p.PhysicalNode, names: list[str]) -> p.PhysicalNode:
    """The node with its columns in the given order."""
    if node.schema.names == list(names):
        return node
    columns = tuple(Named(name, Column(name, node.schema.field(name).type)) for name in names)
    return p.Compute(pa.schema([node.schema.field(name) for name in names]), node, columns)
