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
    Call,
    Column,
    Expression,
    Named,
    columns_of,
    conjunction,
    conjuncts,
)
from midstream.algebra.plan import (
    Aggregate,
    Difference,
    Distinct,
    Intersect,
    Join,
    MultiJoin,
    Project,
    Relation,
    Select,
    Sequence,
    Stream,
    ToStream,
    Union,
    Window,
    instants,
)
from midstream.algebra.windows import Hop, Rows
from midstream.errors import InternalError
from midstream.optimizer.equalities import Known

Names = frozenset[str]


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
                return p.Source(_schema(plan.schema, needed), plan)
            case Window():
                return self._window(plan, needed)
            case Select(child, predicate):
                inner = self.visit(child, needed | columns_of(predicate))
                return p.Filter(_schema(inner.schema, needed), inner, predicate)
            case Project(child, columns):
                return self._project(child, columns, needed)
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
        if isinstance(spec, Rows):
            # Ties are broken by all columns, so none can be left out below a row window.
            inner = _arranged(self._elements(child, everything), child.schema.names)
            return _pruned(p.RowWindow(inner.schema, inner, spec.count, spec.partition_by, self.grid), needed)
        if isinstance(child, Stream):
            return p.Source(_schema(child.schema, needed), child, spec)
        inner = self._elements(child, needed)
        return p.AssignWindow(inner.schema, inner, spec)

    def _elements(self, child: Relation, needed: Names) -> p.PhysicalNode:
        """What a window looks at: a stream's tuples, or the instants of a relation."""
        inner = self.visit(child, needed)
        if isinstance(child, Stream):
            return inner
        looked_at = instants(child)
        return p.Instants(inner.schema, inner, looked_at if isinstance(looked_at, Hop) else None)

    def _project(self, child: Relation, columns: tuple[Named, ...], needed: Names) -> p.PhysicalNode:
        kept = tuple(c for c in columns if c.name in needed) or columns[:1]
        inner = self.visit(child, _read(c.expression for c in kept))
        return p.Compute(pa.schema([pa.field(c.name, c.expression.type) for c in kept]), inner, kept)

    def _inner_join(self, plan: Join, needed: Names) -> p.PhysicalNode:
        split = _split_condition(plan.on, plan.left, plan.right)
        left = self._keyed(plan.left, split.left, needed | split.residual_columns)
        right = self._keyed(plan.right, split.right, needed | split.residual_columns)
        schema = _schema(pa.schema([*left.schema, *right.schema]), needed)
        return p.HashJoin(
            schema, left, right, _key_names(split.left), _key_names(split.right), split.nulls_equal, split.residual
        )

    def _semi_join(self, plan: Join, needed: Names) -> p.PhysicalNode:
        split = _split_condition(plan.on, plan.left, plan.right)
        if split.residual is not None or not split.left:
            return self._outer_join(plan, needed)
        # Equal keys only: a join with the right side's different keys, which never doubles and never waits.
        left = self._keyed(plan.left, split.left, needed)
        keys = self._keyed(plan.right, split.right, frozenset())
        once = p.Deduplicate(keys.schema, keys)
        schema = _schema(left.schema, needed)
        return p.HashJoin(schema, left, once, _key_names(split.left), _key_names(split.right), split.nulls_equal, None)

    def _outer_join(self, plan: Join, needed: Names) -> p.PhysicalNode:
        split = _split_condition(plan.on, plan.left, plan.right)
        left = self._keyed(plan.left, split.left, needed | split.residual_columns)
        right = self._keyed(plan.right, split.right, needed | split.residual_columns)
        schema = _schema(pa.schema([*left.schema, *right.schema]), needed)
        keys = _key_names(split.left), _key_names(split.right)
        return p.OuterJoin(schema, left, right, plan.kind, *keys, split.nulls_equal, split.residual, self.grid)

    def _multiway(self, plan: MultiJoin, needed: Names) -> p.PhysicalNode:
        conditions = conjuncts(plan.on)
        wanted = needed | _read(conditions)
        schemas = [r.schema for r in plan.joined]
        extra: list[dict[str, Expression]] = [{} for _ in plan.joined]
        routes = []
        for i, order in enumerate(plan.orders):
            routes.append(_route(i, order, schemas, conditions, wanted, extra))
        inputs = tuple(
            self._keyed(relation, tuple(extra[i].values()), wanted) for i, relation in enumerate(plan.joined)
        )
        steps = tuple(tuple(_finished_route(i, route, inputs)) for i, route in enumerate(routes))
        schema = _schema(pa.schema([f for node in inputs for f in node.schema]), needed)
        return p.MultiwayJoin(schema, inputs, steps, plan.on)

    def _keyed(self, relation: Relation, keys: Iterable[Expression], needed: Names) -> p.PhysicalNode:
        """A relation with its needed columns and a column for every key."""
        keys = tuple(keys)
        own = needed & frozenset(relation.schema.names)
        plain = frozenset(k.name for k in keys if isinstance(k, Column))
        computed = {_key_name(k): k for k in keys if not isinstance(k, Column)}
        inner = self.visit(relation, own | plain | _read(computed.values()))
        if not computed:
            return inner
        kept = [Named(f.name, Column(f.name, f.type)) for f in inner.schema if f.name in own | plain]
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
        inner = self.visit(plan.input, _read(columns.values()))
        named = tuple(Named(name, expression) for name, expression in columns.items())
        schema = pa.schema([pa.field(c.name, c.expression.type) for c in named])
        computed = p.Compute(schema, inner, named)
        keys = tuple(key.name for key in plan.keys)
        return p.GroupAggregate(plan.schema, computed, keys, tuple(aggregates), self.grid)

    def _union(self, united: tuple[Relation, ...], needed: Names) -> p.PhysicalNode:
        places = [i for i, name in enumerate(united[0].schema.names) if name in needed] or [0]
        nodes = []
        for relation in united:
            names = [relation.schema.names[i] for i in places]
            nodes.append(_arranged(self.visit(relation, frozenset(names)), names))
        return p.Concatenate(nodes[0].schema, tuple(nodes))

    def _set_operation(self, kind: str, left: Relation, right: Relation, needed: Names) -> p.PhysicalNode:
        here = _arranged(self.visit(left, frozenset(left.schema.names)), left.schema.names)
        there = _arranged(self.visit(right, frozenset(right.schema.names)), right.schema.names)
        node = p.SetOperation(here.schema, here, there, kind, self.grid)  # type: ignore[arg-type]
        return _pruned(node, needed)

    def _sequence(self, plan: Sequence, needed: Names) -> p.PhysicalNode:
        read = needed | columns_of(plan.condition)
        left = self._in_order(plan.first, [a for a, _ in plan.on])
        right = self._in_order(plan.second, [b for _, b in plan.on])
        schema = _schema(pa.schema([*left.schema, *right.schema]), read)
        condition = plan.condition if conjuncts(plan.condition) else None
        keys = tuple(_key_name(a) for a, _ in plan.on), tuple(_key_name(b) for _, b in plan.on)
        node = p.FollowedBy(schema, left, right, plan.mode, *keys, plan.within, condition, plan.outer)
        return _pruned(node, needed)

    def _in_order(self, relation: Relation, keys: list[Expression]) -> p.PhysicalNode:
        """A relation with all its columns in their order, then its keys: ties are broken by all of them."""
        node = self._keyed(relation, keys, frozenset(relation.schema.names))
        computed = [name for name in node.schema.names if name not in relation.schema.names]
        return _arranged(node, [*relation.schema.names, *computed])

    def _to_stream(self, child: Relation, kind: str) -> p.PhysicalNode:
        inner = _arranged(self.visit(child, frozenset(child.schema.names)), child.schema.names)
        if kind == "rstream":
            looked_at = instants(child)
            return p.Instants(inner.schema, inner, looked_at if isinstance(looked_at, Hop) else None)
        return p.Changes(inner.schema, inner, kind)  # type: ignore[arg-type]


class _Split:
    """A join condition as equal keys and the rest."""

    def __init__(self, pairs: list[tuple[Expression, Expression]], nulls_equal: bool, rest: list[Expression]) -> None:
        self.left = tuple(a for a, _ in pairs)
        self.right = tuple(b for _, b in pairs)
        self.nulls_equal = nulls_equal
        self.residual = conjunction(rest) if rest else None
        self.residual_columns = _read(rest)


def _split_condition(on: Expression, left: Relation, right: Relation) -> _Split:
    return _split_by(on, frozenset(left.schema.names), frozenset(right.schema.names))


def _split_by(on: Expression, left: Names, right: Names) -> _Split:
    parts = conjuncts(on)
    strict = [_sides(c, "=", left, right) for c in parts]
    if not any(strict):
        loose = [_sides(c, "is_not_distinct_from", left, right) for c in parts]
        pairs = [s for s in loose if s]
        return _Split(pairs, bool(pairs), [c for c, s in zip(parts, loose, strict=True) if not s])
    return _Split([s for s in strict if s], False, [c for c, s in zip(parts, strict, strict=True) if not s])


def _sides(c: Expression, function: str, left: Names, right: Names) -> tuple[Expression, Expression] | None:
    """The two sides of an equality whose sides read different inputs, left one first."""
    if not (isinstance(c, Call) and c.function == function and _hashable(c.args[0].type)):
        return None
    a, b = c.args
    reads_a, reads_b = columns_of(a), columns_of(b)
    if not reads_a or not reads_b:
        return None
    if reads_a <= left and reads_b <= right:
        return a, b
    if reads_a <= right and reads_b <= left:
        return b, a
    return None


def _hashable(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


def _route(
    start: int,
    order: tuple[int, ...],
    schemas: list[pa.Schema],
    conditions: tuple[Expression, ...],
    wanted: Names,
    extra: list[dict[str, Expression]],
) -> list[tuple[int, _Split]]:
    """Each probe of a route with the conditions it decides; registers the keys that inputs must offer."""
    here = frozenset(schemas[start].names)
    waiting, route, known = list(conditions), [], Known()
    for target in order:
        there = frozenset(schemas[target].names)
        ready = [c for c in waiting if columns_of(c) <= here | there]
        waiting = [c for c in waiting if c not in ready]
        # What earlier probes of the route have made equal need not be compared again.
        fresh = [c for c in sorted(ready, key=str) if known.learns(c)]
        split = _probing(_split_by(conjunction(fresh), here, there), schemas)
        for key in split.right:
            extra[target][_key_name(key)] = key
        for key in split.left:
            for owner, schema in enumerate(schemas):
                if columns_of(key) <= frozenset(schema.names):
                    extra[owner][_key_name(key)] = key
        route.append((target, split))
        here |= there
    return route


def _probing(split: _Split, schemas: list[pa.Schema]) -> _Split:
    """Keys that one input can compute; an equality over several inputs is checked after the probe instead."""
    pairs, rest = [], list(conjuncts(split.residual))
    for left, right in zip(split.left, split.right, strict=True):
        if any(columns_of(left) <= frozenset(schema.names) for schema in schemas):
            pairs.append((left, right))
        else:
            function = "is_not_distinct_from" if split.nulls_equal else "="
            rest.append(Call(function, (left, right), pa.bool_()))
    pairs.sort(key=lambda pair: str(pair[1]))  # one order of columns, so that routes share an index
    return _Split(pairs, split.nulls_equal, rest)


def _finished_route(
    start: int, route: list[tuple[int, _Split]], inputs: tuple[p.PhysicalNode, ...]
) -> Iterable[p.ProbeStep]:
    so_far = inputs[start].schema
    for target, split in route:
        so_far = pa.schema([*so_far, *inputs[target].schema])
        yield p.ProbeStep(
            target, _key_names(split.left), _key_names(split.right), split.nulls_equal, split.residual, so_far
        )


def _key_name(key: Expression) -> str:
    return key.name if isinstance(key, Column) else f"#{key}"


def _key_names(keys: Iterable[Expression]) -> tuple[str, ...]:
    return tuple(map(_key_name, keys))


def _argument(columns: dict[str, Expression], expression: Expression) -> str:
    """The column an aggregate's argument is computed into, shared between aggregates and keys."""
    for name, known in columns.items():
        if known == expression:
            return name
    name = expression.name if isinstance(expression, Column) else f"#{expression}"
    while name in columns:
        name = f"#{name}"
    columns[name] = expression
    return name


def _read(expressions: Iterable[Expression]) -> Names:
    return frozenset(name for e in expressions for name in columns_of(e))


def _schema(schema: pa.Schema, needed: Names) -> pa.Schema:
    """The needed columns in order of name: one order for all plans of a query. At least one, so that rows count."""
    kept = [f for f in schema if f.name in needed] or [min(schema, key=_weight)]
    return pa.schema(sorted(kept, key=lambda f: f.name))


def _weight(field: pa.Field) -> tuple[bool, str]:
    return not pa.types.is_primitive(field.type), field.name


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
